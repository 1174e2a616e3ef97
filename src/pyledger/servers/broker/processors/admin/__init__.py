"""Requests of operators."""
