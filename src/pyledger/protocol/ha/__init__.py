"""Rules of replication: both sides of an HA connection, and the puts that wait for slaves."""
