"""Connections of the remoting protocol."""
