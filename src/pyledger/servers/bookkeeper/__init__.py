"""A bookie."""
