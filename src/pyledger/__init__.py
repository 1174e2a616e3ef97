"""PyLedger: the message store of Apache RocketMQ, without a JVM."""
