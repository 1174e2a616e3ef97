"""Answers to requests, a file for each kind. The rules of `protocol/broker` decide; here it is done."""
