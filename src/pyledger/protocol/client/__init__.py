"""Rules of producers and consumers."""
