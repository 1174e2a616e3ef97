"""Administration of brokers and name servers."""
