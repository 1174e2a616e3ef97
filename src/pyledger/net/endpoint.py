"""What the connections of one process side share: handler, permits, opaques, timers and limits."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyledger.config.net import NetConfig
from pyledger.net.permits import Permits
from pyledger.net.timers import TimerWheel
from pyledger.wire.remoting import RemotingCommand

if TYPE_CHECKING:
    from pyledger.net.stream import Connection

Answer = RemotingCommand | None
Handler = Callable[["Connection", RemotingCommand], Answer | Awaitable[Answer]]
"""Answers a request of the peer. None: nothing is written now; whoever holds the request sends its answer later.
Called from the event loop, so it must not block; where it has to wait it returns an awaitable."""

Intake = Callable[["Connection", list[memoryview]], list[memoryview]]
"""Sees the frames of one wake-up before they are decoded, answers those it knows by `Connection.write`, and
returns the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The part of the settings that differs between servers and clients, with the rest that connections need."""

    frame_max_bytes: int
    idle_seconds: int
    high_water_mark_bytes: int
    low_water_mark_bytes: int
    backlog_max_bytes: int
    requests_max: int
    throttles_reading: bool
    """A peer that does not read its answers is not read from. Only a server may do so: were both sides to, two
    that have much to say would wait for each other for ever."""
    close_on_timeout: bool

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
        )


class Endpoint:
    """One process side: a server with all its connections, or a client with all of its."""

    __slots__ = (
        "_opaques",
        "async_permits",
        "connections",
        "going_away",
        "handler",
        "intake",
        "limits",
        "loop",
        "on_close",
        "on_open",
        "oneway_permits",
        "wheel",
    )

    def __init__(  # noqa: D417 - the callbacks are explained where they are typed
        self,
        loop: asyncio.AbstractEventLoop,
        config: NetConfig,
        handler: Handler,
        *,
        server: bool,
        intake: Intake | None = None,
        on_open: "Callable[[Connection], None] | None" = None,
        on_close: "Callable[[Connection], None] | None" = None,
    ) -> None:
        self.loop = loop
        self.handler = handler
        self.intake = intake
        self.on_open = on_open
        self.on_close = on_close
        self.limits = Limits.of(config, server=server)
        self.wheel = TimerWheel(loop)
        self.connections: dict[Connection, None] = {}
        self.going_away = False
        self._opaques = itertools.count()
        side = "server" if server else "client"
        self.async_permits = Permits(f"{side}_async_permits", getattr(config, f"{side}_async_permits"))
        self.oneway_permits = Permits(f"{side}_oneway_permits", getattr(config, f"{side}_oneway_permits"))

    def next_opaque(self) -> int:
        """The next correlation id, an i32 that wraps into the negatives."""
        return ((next(self._opaques) + (1 << 31)) & 0xFFFF_FFFF) - (1 << 31)
