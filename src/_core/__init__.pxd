# Makes the headers beside this file c-importable as `_core.<name>` at compile time.
