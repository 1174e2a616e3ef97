"""SQL92 subscriptions: which messages a group wants, by their properties."""
