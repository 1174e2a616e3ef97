"""Simulated bookies, clients and autorecovery over the real state machines."""
