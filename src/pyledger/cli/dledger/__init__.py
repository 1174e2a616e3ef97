"""Commands for DLedger groups."""
