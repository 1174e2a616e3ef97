"""Connections of the bookie protocol."""
