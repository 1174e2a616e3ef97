"""The disks of one bookie: journal, entry logs, index."""
