"""Routing: which brokers hold which queues of a topic, as a name server knows it."""
