"""Clients of ledgers."""
