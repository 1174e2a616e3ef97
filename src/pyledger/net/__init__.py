"""Sockets: servers and clients of remoting and of bookies, on asyncio, without rules of a protocol."""
