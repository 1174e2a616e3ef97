"""Typed headers of commands, by theme. `table.py` says which command has which."""
