"""DLedger's replicated log as a pure machine: elections, replication, commit, reads."""
