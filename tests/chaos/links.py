"""Links between members that can be cut: a proxy on loopback for each direction of each pair."""

import asyncio
import contextlib


class Link:
    """Forwards connections to one address; while it is cut nothing passes, in either way of a connection."""

    def __init__(self, target: str, *, delay_s: float = 0.0) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        self.delay_s = delay_s
        self.address = ""
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), 1)

    def cut(self) -> None:
        """Let nothing pass: bytes wait, as on a network that drops them for now."""
        self._open.clear()

    def mend(self) -> None:
        """Let everything pass again, what has waited included."""
        self._open.set()

    def reset(self) -> None:
        """Break the connections that stand."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        try:
            back, forth = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, forth}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, forth))
                both.create_task(self._pump(back, writer))
        except* OSError:
            pass
        finally:
            for one in (writer, forth):
                one.transport.abort()
                self._writers.discard(one)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on, in their order; the end of one direction ends the other."""
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            if self.delay_s:
                await self._open.wait()
                loop.call_later(self.delay_s, writer.write, data)
                continue
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
