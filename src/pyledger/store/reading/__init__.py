"""Reads of any folder, a live one too: messages, where a log ends, the key index. Never writes a byte."""
