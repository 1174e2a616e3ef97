"""A simulated master with slaves, on the real machines."""
