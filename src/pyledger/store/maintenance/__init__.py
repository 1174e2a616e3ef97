"""Commands on a folder: verify, repair, rebuild, truncate, dump."""
