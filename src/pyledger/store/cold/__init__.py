"""Cold segments: mapped files compressed by LZ4."""
