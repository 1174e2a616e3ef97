"""Deterministic worlds over the real machines: one seed is one history."""
