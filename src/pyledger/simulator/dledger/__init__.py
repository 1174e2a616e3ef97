"""Simulated DLedger groups, on the real machines."""
