"""Ledgers: what their writers, readers and bookies decide, without a socket or a disk."""
