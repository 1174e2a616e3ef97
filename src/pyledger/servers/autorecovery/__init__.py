"""Autorecovery: finds ledgers that lost replicas with a bookie, and re-replicates them."""
