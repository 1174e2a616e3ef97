"""Servers in one process, for development and tests."""
