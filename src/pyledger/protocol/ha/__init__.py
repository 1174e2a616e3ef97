"""Master and slave: what each connection of the HA service does, and who waits for whom."""
