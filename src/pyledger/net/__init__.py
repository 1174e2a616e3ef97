"""Sockets: servers and clients of remoting on asyncio. No rule of a protocol stands here."""
