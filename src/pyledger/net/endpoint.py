"""What the connections of one process side share: handler, permits, opaques, timers and limits."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pyledger.config.net import NetConfig
from pyledger.net.buffer_budget import BufferBudget, Holder
from pyledger.net.deferred import Deferred
from pyledger.net.event_limiter import EventLimiter
from pyledger.net.fair_queue import FairQueue
from pyledger.net.request_limits import Permits
from pyledger.net.timers import TimerWheel
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.framing import StreamDecoder
from pyledger.wire.remoting.native_codec import DecodedRequest, ResponseFuture


class Closable(Holder, Protocol):
    """What an endpoint needs to know of a connection."""

    def close(self) -> None:
        """Write what is queued, then close."""


C = TypeVar("C", bound=Closable)
Answer = RemotingCommand | None
Frame = memoryview | DecodedRequest
"""A frame without its length word; or a send or pull, decoded."""
Received = Frame | ResponseFuture
"""The same; or a send or pull of ours that is answered."""
BatchAnswer = bytes | Answer
"""Whole frames for all requests of a batch, or the answer to its only one. None: nothing is written now; a
request that is held is answered by `Connection.write`."""
AnswerBatch = Callable[[C, list[Frame], int], tuple[BatchAnswer | Deferred[Any] | asyncio.Future[Any], int]]
"""Answers the decoded request at an index of the frames, and those after it that can be answered together.

Returns their answer and how many they are. 0: the handler gets the first as a command."""

CLOSE_TIMEOUT_MS = 5_000
"""How long a connection that is closed may take to write what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What connections need of the settings, a server's or a client's."""

    frame_max_bytes: int
    idle_seconds: int
    high_water_mark_bytes: int
    low_water_mark_bytes: int
    backlog_max_bytes: int
    requests_max: int
    throttles_reading: bool
    """A peer that does not read its answers is not read from. Only a server does so: if both sides did, two
    that send much would wait for each other forever."""
    close_on_timeout: bool
    held_bytes_max: int

    @classmethod
    def of(cls, config: NetConfig, *, server: bool) -> "Limits":
        """The limits of a server's or a client's connections."""
        return cls(
            frame_max_bytes=config.frame_max_bytes,
            idle_seconds=config.server_idle_seconds if server else config.client_idle_seconds,
            high_water_mark_bytes=config.write_high_water_mark_bytes,
            low_water_mark_bytes=config.write_low_water_mark_bytes,
            backlog_max_bytes=config.write_backlog_max_bytes,
            requests_max=config.requests_max,
            throttles_reading=server,
            close_on_timeout=config.close_socket_on_timeout and not server,
            held_bytes_max=config.held_bytes_max,
        )


class Endpoint(Generic[C]):
    """One process side: a server with all its connections, or a client with all of its."""

    __slots__ = (
        "_empty",
        "_on_close",
        "_on_open",
        "_opaques",
        "answer_batch",
        "async_permits",
        "connections",
        "decoder",
        "events",
        "fair_queue",
        "going_away",
        "handler",
        "limits",
        "loop",
        "memory",
        "oneway_permits",
        "wheel",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: NetConfig,
        handler: Callable[[C, RemotingCommand], Answer | Awaitable[Answer]],
        *,
        server: bool,
        answer_batch: AnswerBatch[C] | None = None,
        decoder: Callable[[int], StreamDecoder[Any]] | None = None,
        on_open: Callable[[C], None] | None = None,
        on_close: Callable[[C], None] | None = None,
    ) -> None:
        self.loop = loop
        self.handler = handler
        self.answer_batch = answer_batch
        self.decoder = decoder
        self._on_open = on_open
        self._on_close = on_close
        self.limits = Limits.of(config, server=server)
        self.wheel = TimerWheel(loop)
        self.connections: dict[C, None] = {}
        self.events = EventLimiter(loop)
        self.fair_queue = FairQueue(loop)
        self.memory = BufferBudget(loop, self.limits.held_bytes_max, lambda: self.connections)
        self.going_away = False
        self._empty = asyncio.Event()
        self._opaques = itertools.count()
        side = "server" if server else "client"
        self.async_permits = Permits(f"{side}_async_permits", getattr(config, f"{side}_async_permits"))
        self.oneway_permits = Permits(f"{side}_oneway_permits", getattr(config, f"{side}_oneway_permits"))

    def next_opaque(self) -> int:
        """The next correlation id, an i32 that wraps into the negatives."""
        return ((next(self._opaques) + (1 << 31)) & 0xFFFF_FFFF) - (1 << 31)

    def add(self, connection: C) -> None:
        """A connection is open."""
        self.connections[connection] = None
        if self._on_open is not None:
            self._on_open(connection)

    def remove(self, connection: C) -> None:
        """A connection is gone."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._empty.set()
        if self._on_close is not None:
            self._on_close(connection)

    async def wait_until_empty(self, timeout_seconds: float) -> None:
        """Wait until no connection is left, at most `timeout_seconds`."""
        self._empty.clear()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    await self._empty.wait()

    async def close(self) -> None:
        """Close every connection; what is not written within `CLOSE_TIMEOUT_MS` is dropped."""
        for connection in tuple(self.connections):
            connection.close()
        await self.wait_until_empty((CLOSE_TIMEOUT_MS + 1_000) / 1000)
        self.wheel.close()
        self.memory.close()
        self.events.close()
