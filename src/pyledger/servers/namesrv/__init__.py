"""The name server: where brokers say what they have, and clients ask where a topic is."""
