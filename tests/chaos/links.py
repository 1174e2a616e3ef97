"""Links between members that can be disconnected: a proxy on loopback per direction of each pair."""

import asyncio
import contextlib


class Link:
    """Forwards connections to one address; while disconnected, no byte passes in either direction."""

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

    def disconnect(self) -> None:
        """Hold all bytes, as a network that drops them for a while."""
        self._open.clear()

    def reconnect(self) -> None:
        """Forward bytes again, those that were held first."""
        self._open.set()

    def reset(self) -> None:
        """Abort the open connections."""
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
        """Forward bytes in order; the end of one direction ends the other."""
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
