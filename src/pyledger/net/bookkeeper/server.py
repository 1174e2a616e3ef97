"""The listening side of a bookie: frames of BookKeeper's protocol, handed on as they come.

A connection uses TLS from its first byte, or once its client has sent START_TLS, as upstream.

Source: BookKeeper proto/BookieNettyServer.java, BookieRequestHandler.java.
"""

import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from pyledger.config.net import DAY_S, NetConfig, TlsConfig
from pyledger.log_events import event, logger
from pyledger.net.endpoint import Endpoint, Received
from pyledger.net.remoting.server import RemotingServer
from pyledger.net.stream import FrameStream
from pyledger.wire.bookkeeper.protocol_version import VersionNegotiation

log = logger("net")

IDLE_SECONDS = DAY_S
"""As upstream, a silent connection is not closed; a dead peer is noticed within a day."""


class LedgerConnection(FrameStream):
    """One connection of a client of ledgers.

    Attributes:
        versions: Which version of the protocol it speaks.
        in_flight: Requests that are not answered yet.
        must_secure: Nothing but START_TLS is allowed yet.
    """

    __slots__ = (
        "_server",
        "_upgrading",
        "in_flight",
        "must_secure",
        "versions",
    )

    def __init__(
        self, server: "LedgerServer", endpoint: Endpoint[Any], own: socket.socket, *, secure: bool
    ) -> None:
        """Made by a server."""
        super().__init__(endpoint, own, secure=secure)
        self._server = server
        self.versions = VersionNegotiation()
        self.in_flight = 0
        self.must_secure = server.requires_tls and not secure
        self._upgrading = False

    def connection_made(self, transport: Any) -> None:
        """The connection is open."""
        super().connection_made(transport)
        self.endpoint.add(self)

    def respond(self, frames: Iterable[bytes], done: int) -> None:
        """Send responses; `done` requests in flight end. On a closed connection the responses are dropped."""
        self.in_flight -= done
        self.write(frames)
        self.go_on()
        if self._finishing:
            self._wake_drained()

    # --- TLS

    @property
    def may_secure(self) -> bool:
        """Whether the client may send START_TLS now."""
        return self._server.context is not None and not self._secure and not self._upgrading

    def secure(self, answer: bytes) -> None:
        """Send an answer, the last one in clear, and use TLS from then on."""
        self._transport.pause_reading()
        # Bytes that arrive over TLS before the handshake is known to be complete wait.
        self._paused = self._upgrading = True
        self.write((answer,))
        self._server.spawn(self._upgrade())

    async def _upgrade(self) -> None:
        self._flush()
        if self.closed:
            return
        if self.queued_bytes or self.in_flight or self._waiting or self._decoder.pending_bytes:
            event(log, logging.WARNING, "more in clear before TLS", peer=self.remote_address)
            self.abort()
            return
        self._transport.set_write_buffer_limits()
        context = self._server.context
        assert context is not None
        try:
            transport = await self.endpoint.loop.start_tls(
                self._transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._server.handshake_s,
            )
        except (OSError, TimeoutError) as error:
            event(log, logging.INFO, "no TLS", peer=self.remote_address, problem=error)
            self.abort()
            return
        if transport is not None:
            self.go_secure(transport)
            self.must_secure = self._upgrading = False
            self.go_on()

    # --- what the stream calls

    def take(self, frames: list[Received]) -> list[Received]:
        """Hand on frames, until the connection must be paused; those that have to wait."""
        at, take = 0, self._server.take
        while at < len(frames) and not self.closed:
            at += take(self, frames, at)
            if self.charge_call() or (self.congested and self.must_pause()):
                return frames[at:]
        return []

    def ended(self, problem: str) -> None:  # noqa: ARG002 - no request waits for the reason
        """The connection is gone."""
        self.endpoint.remove(self)

    def has_work(self) -> bool:
        """Whether requests wait for their answer."""
        return self.in_flight > 0

    def overworked(self) -> bool:
        """Whether nothing more should be taken now."""
        return self.in_flight >= self.endpoint.limits.requests_max or self._upgrading or self._server.full()


class LedgerServer(RemotingServer):
    """Accepts connections and hands their frames to one taker.

    Attributes:
        requires_tls: Whether requests in clear are rejected.
        handshake_s: How long a handshake may take.
    """

    def __init__(
        self,
        take: Callable[[LedgerConnection, list[Any], int], int],
        full: Callable[[], bool],
        *,
        host: str,
        port: int,
        config: NetConfig,
        tls: TlsConfig | None = None,
        on_close: Callable[[Any], None] | None = None,
    ) -> None:
        """A server that listens once it is started.

        Args:
            take: Gets a connection, its frames without their lengths, and the index of the next one; handles
                as many of them as it can at once, and returns their number. It responds by the connection.
            full: Whether nothing more should be taken; when that ends, `go_on` of all connections is called.
            host: Address or name to listen on.
            port: 0 takes any free port.
            config: Limits.
            tls: Certificates; without, the server speaks no TLS.
            on_close: Called when a connection is gone.
        """
        tls = tls or TlsConfig()
        self.requires_tls = tls.server_mode == "enforcing"
        self.handshake_s = tls.handshake_timeout_ms / 1000
        if self.requires_tls:
            # START_TLS arrives in clear, so the server must accept plain connections.
            tls = replace(tls, server_mode="permissive")
        super().__init__(_no_requests, host=host, port=port, config=config, tls=tls, on_close=on_close)
        self.take, self.full = take, full

    @property
    def context(self) -> ssl.SSLContext | None:
        """For TLS; None: it speaks none."""
        return self._context

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that ends with the server."""
        assert self._endpoint is not None
        task = self._endpoint.loop.create_task(work)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def connection(self, endpoint: Endpoint[Any], accepted: socket.socket, *, secure: bool) -> FrameStream:
        """A connection of BookKeeper's protocol."""
        return LedgerConnection(self, endpoint, accepted, secure=secure)


def _no_requests(*_request: object) -> None:
    """Remoting's handler, never called: a bookie speaks no remoting."""
