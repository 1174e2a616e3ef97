"""A store on disk: everything that touches its files."""
