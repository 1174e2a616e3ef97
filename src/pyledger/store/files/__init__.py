"""One folder of a store: names, lock, checkpoint, small files, retention. Knows no message."""
