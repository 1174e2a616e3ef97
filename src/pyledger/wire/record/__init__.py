"""The record of the commit log, and what a message puts into it: batches, properties, compressed bodies."""
