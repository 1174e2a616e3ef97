"""Producers, consumers and administration, for programs with and without asyncio."""
