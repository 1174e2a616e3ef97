"""A member of a DLedger group."""
