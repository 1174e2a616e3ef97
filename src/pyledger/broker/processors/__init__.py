"""Answers to requests, a file for each kind. The rules of `protocol/delivery` decide; here it is done."""
