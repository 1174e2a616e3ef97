"""The log of one DLedger node on disk."""
