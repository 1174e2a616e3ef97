"""State machines. No clock, no disk, no socket, no randomness."""
