"""Replication of a commit log: a master's service, a slave's client."""
