"""What lies between a slave and its master's HA port: it may be cut after any byte, or stand still."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pyledger.config.net import TlsConfig
from pyledger.net.tls import client_context
from pyledger.protocol.ha.master import REPORT

PIECE_BYTES = 4096


async def first_bytes(port: int, tls: TlsConfig | None = None, address: str = "127.0.0.1") -> bytes:
    """What an empty slave at an address of this machine gets; nothing, when it is rejected."""
    context = client_context(tls) if tls else None
    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, local_addr=(address, 0)
        )
    except OSError:
        return b""
    try:
        writer.write(REPORT.pack(0))
        return await reader.read(4096)
    except OSError:
        return b""
    finally:
        writer.close()


class Link:
    """Carries bytes both ways, one connection after the other."""

    def __init__(self, master_port: int) -> None:
        self.cuts: list[Callable[[int], int]] = []
        """For each connection to come: after how many bytes of the master, by the slave's offset."""
        self.report_cuts: list[int] = []
        """For each connection before those: after how many bytes of the slave."""
        self.carries = asyncio.Event()
        """Not set: bytes of the master wait."""
        self.carries.set()
        self.connections = 0
        self.address = ""
        self._master_port = master_port
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        plain = socket.socket()
        # Whatever this machine's limits are: what waits here is little.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self._master_port))
        master_reader, master_writer = await asyncio.open_connection(sock=plain)
        try:
            first = await reader.readexactly(REPORT.size)
            if self.report_cuts:
                master_writer.write(first[: self.report_cuts.pop(0)])
                await master_writer.drain()
                return
            budget = self.cuts.pop(0)(REPORT.unpack(first)[0]) if self.cuts else 1 << 60
            master_writer.write(first)
            ways = [
                asyncio.create_task(self._forward(reader, master_writer)),
                asyncio.create_task(self._send(master_reader, writer, budget)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            master_writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            writer.write(data)
            await writer.drain()

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int) -> None:
        while budget:
            await self.carries.wait()
            data = await reader.read(min(PIECE_BYTES, budget))
            if not data:
                return
            budget -= len(data)
            writer.write(data)
            await writer.drain()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def linked(master_port: int) -> AsyncIterator[Link]:
    """A link to a master's HA port for the length of a block."""
    link = Link(master_port)
    server = await asyncio.start_server(link.accept, "127.0.0.1", 0, limit=PIECE_BYTES)
    link.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield link
    finally:
        server.close()
        await link.close()
