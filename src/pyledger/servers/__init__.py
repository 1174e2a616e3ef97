"""Servers: each joins rules (protocol), bytes (wire), disks (store) and sockets (net). No rule lives here."""
