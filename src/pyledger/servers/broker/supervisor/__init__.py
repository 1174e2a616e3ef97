"""Restart a broker in place when its role changes or its log must be truncated."""
