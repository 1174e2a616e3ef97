"""Consumers: groups, rebalance, pulls, offsets, listeners."""
