"""Frames and bodies of the DLedger protocol."""
