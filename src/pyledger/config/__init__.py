"""Settings: frozen dataclasses with unit, range and upstream name."""
