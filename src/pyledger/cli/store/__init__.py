"""Commands for a store's folder."""
