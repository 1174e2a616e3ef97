"""Typed headers of commands, by theme. `table.py` lists the header of each command."""
