"""The server of a bookie."""
