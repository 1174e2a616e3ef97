"""Bytes in, objects out. Pure: no clock, no disk, no socket."""
