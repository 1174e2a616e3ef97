"""A broker whose log is kept by a DLedger group."""
