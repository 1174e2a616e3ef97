"""Bytes of BookKeeper: entries and their digests, both protocols, metadata, names of znodes."""
