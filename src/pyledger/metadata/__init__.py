"""What a cluster of bookies knows together: a tree of nodes, and ledgers, bookies and cookies in it."""
