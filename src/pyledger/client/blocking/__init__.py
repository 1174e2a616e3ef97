"""Clients that wait: the asynchronous ones, driven by an event loop in a thread."""
