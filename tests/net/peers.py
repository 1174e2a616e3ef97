"""Small servers and raw connections for the tests of `net`."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pyledger.config.net import NetConfig
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection, Handler
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.remoting.command import RemotingCommand, decode, encode_frame
from pyledger.wire.remoting.framing import FrameDecoder

ECHO = 1


def echo(_connection: Connection, request: RemotingCommand) -> Answer:
    """Send fields and body back."""
    return request.response(0, ext_fields=request.ext_fields, body=bytes(request.body))


@asynccontextmanager
async def serving(handler: Handler = echo, **options: Any) -> AsyncIterator[RemotingServer]:
    """A server for the length of a block."""
    config = options.pop("config", None) or NetConfig()
    server = RemotingServer(handler, config=config, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def calling(handler: Handler | None = None, **options: Any) -> AsyncIterator[RemotingClient]:
    """A client for the length of a block."""
    client = RemotingClient(handler, **options)
    try:
        yield client
    finally:
        await client.close()


def address(server: RemotingServer) -> str:
    """Where a server listens."""
    return f"127.0.0.1:{server.port}"


class RawPeer:
    """A plain socket that sends and receives bytes as a test says."""

    def __init__(self, plain: socket.socket) -> None:
        self.socket = plain
        self.decoder = FrameDecoder()
        self.frames: list[memoryview] = []

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def request(self, command: RemotingCommand) -> RemotingCommand:
        """Send a command and read the next one."""
        await self.send(encode_frame(command))
        return await self.receive()

    async def receive(self) -> RemotingCommand:
        """The next command that the peer sends."""
        while not self.frames:
            data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
            if not data:
                raise ConnectionResetError("closed by the peer")
            self.frames = self.decoder.feed(data)
        return decode(self.frames.pop(0))

    async def ended(self) -> bool:
        """Wait for the peer to close; True unless it sent something first."""
        try:
            return await asyncio.get_running_loop().sock_recv(self.socket, 1) == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def raw(port: int, receive_bytes: int = 0) -> AsyncIterator[RawPeer]:
    """A plain connection for the length of a block; `receive_bytes` sets a small receive buffer."""
    with socket.socket() as plain:
        plain.setblocking(False)
        if receive_bytes:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
        yield RawPeer(plain)


async def until(condition: Any) -> None:
    """Let the loop turn until `condition()` holds; the test's own limit ends it otherwise."""
    while not condition():
        await asyncio.sleep(0.001)
