"""TLS for code that wants a plain socket: native code reads and writes one end of a socket pair.

What is written there travels over the TLS connection, and the other way round. Each direction holds a bounded
number of bytes: a side that takes nothing stops the other.
"""

import asyncio
import socket
import ssl

PIECE_BYTES = 256 << 10


class TlsSocket:
    """A TLS connection that is used as a plain socket; made by `accepted` and `connected`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.plain, self._other = socket.socketpair()
        """What is to be used, and closed, as the connection itself."""
        self.plain.setblocking(False)
        self._other.setblocking(False)
        self._reader, self._writer = reader, writer
        self.names = certificate_names(writer.get_extra_info("peercert"))
        """Names in the peer's certificate, if it was checked."""
        loop = asyncio.get_running_loop()
        self._ways = [loop.create_task(self._receive()), loop.create_task(self._send())]
        for way in self._ways:
            way.add_done_callback(self._ended)

    @classmethod
    async def accepted(
        cls, accepted: socket.socket, context: ssl.SSLContext, handshake_s: float
    ) -> "TlsSocket":
        """The server's side of a socket that was accepted.

        Raises:
            OSError: the handshake failed (`ssl.SSLError` is one), or took too long.
        """
        reader, protocol = _reading()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=handshake_s
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    @classmethod
    async def connected(
        cls, connected: socket.socket, context: ssl.SSLContext, host: str, handshake_s: float
    ) -> "TlsSocket":
        """The client's side of a socket that is connected to a host; raises as `accepted` does."""
        reader, protocol = _reading()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            lambda: protocol,
            sock=connected,
            ssl=context,
            server_hostname=host,
            ssl_handshake_timeout=handshake_s,
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        while data := await self._reader.read(PIECE_BYTES):
            await loop.sock_sendall(self._other, data)

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(self._other, PIECE_BYTES):
            self._writer.write(data)
            await self._writer.drain()

    def _ended(self, way: "asyncio.Task[None]") -> None:
        """One direction ended, so the connection did."""
        if not way.cancelled():
            way.exception()  # the user of the plain socket sees its end
        for one in self._ways:
            one.cancel()
        self._writer.transport.abort()
        if all(one.done() for one in self._ways):
            self._other.close()


def _reading() -> tuple[asyncio.StreamReader, asyncio.StreamReaderProtocol]:
    reader = asyncio.StreamReader(limit=PIECE_BYTES)
    return reader, asyncio.StreamReaderProtocol(reader)


def certificate_names(certificate: object) -> frozenset[str]:
    """Common names and DNS names of a certificate as `ssl` gives it; empty: none was shown and checked."""
    if not isinstance(certificate, dict):
        return frozenset()
    common = {
        value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"
    }
    return frozenset(
        common | {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    )
