"""Commands for a running RocketMQ cluster."""
