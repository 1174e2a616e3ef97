"""Processors of requests, one file for each kind; the rules are in `protocol/broker`."""
