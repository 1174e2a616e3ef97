"""The name server: brokers register with it, and clients query the routes of topics."""
