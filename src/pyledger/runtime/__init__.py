"""Shells: they join machines of `protocol` with disk and sockets. No rules live here."""
