"""PyLedger: the message store of Apache RocketMQ, without a JVM."""

__version__ = "0.1.0"
