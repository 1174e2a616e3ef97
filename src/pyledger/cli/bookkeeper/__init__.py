"""Commands for bookies and ledgers."""
