"""Simulated bookies, clients and autorecovery, on the real machines."""
