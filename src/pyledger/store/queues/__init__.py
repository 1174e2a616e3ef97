"""Consume queues: sets of them, their units, reads of a live queue."""
