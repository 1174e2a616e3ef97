"""Roles of a broker: master, slave, one that follows another master."""
