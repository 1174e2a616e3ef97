"""Types for numbers that must not be confused. At run time each is a plain `int`."""

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the start of the commit log."""

QueueId = NewType("QueueId", int)
"""Number of a queue within its topic, from 0."""

QueueOffset = NewType("QueueOffset", int)
"""Offset in a consume queue, in units, not bytes."""
