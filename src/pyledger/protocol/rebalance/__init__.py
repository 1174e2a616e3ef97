"""Rebalance: which queues of a topic a consumer of a group takes."""
