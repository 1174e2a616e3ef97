"""Shared metadata of a cluster of bookies: a tree of nodes with ledgers, bookies and cookies."""
