"""Processors of administrative requests."""
