"""Autorecovery: finds ledgers that lost copies with a bookie, and makes the copies again."""
