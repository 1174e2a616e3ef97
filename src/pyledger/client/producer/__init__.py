"""Producers: routes, batches, retries, transactions."""
