"""Commands that run a server."""
