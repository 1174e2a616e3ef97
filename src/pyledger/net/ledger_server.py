"""The listening side of a bookie: frames of BookKeeper's protocol, handed on as they come.

Source: BookKeeper proto/BookieNettyServer.java.
"""

import socket
from collections.abc import Callable, Iterable
from typing import Any

from pyledger.config.net import DAY_S, NetConfig, TlsConfig
from pyledger.net.endpoint import Endpoint, Received
from pyledger.net.server import RemotingServer
from pyledger.net.stream import FrameStream
from pyledger.wire.ledger.dialect import Dialect

IDLE_SECONDS = DAY_S
"""As upstream, a silent connection is not closed; a dead peer is noticed within a day."""


class LedgerConnection(FrameStream):
    """One connection of a client of ledgers.

    Attributes:
        dialect: The version of the protocol that it speaks.
        in_work: Requests that are not answered yet.
    """

    __slots__ = ("_server", "dialect", "in_work")

    def __init__(
        self, server: "LedgerServer", endpoint: Endpoint[Any], own: socket.socket, *, secure: bool
    ) -> None:
        """Made by a server."""
        super().__init__(endpoint, own, secure=secure)
        self._server = server
        self.dialect = Dialect()
        self.in_work = 0

    def connection_made(self, transport: Any) -> None:
        """The connection stands."""
        super().connection_made(transport)
        self.endpoint.add(self)

    def begin(self) -> None:
        """A request was taken that is answered later."""
        self.in_work += 1

    def answer(self, frames: Iterable[bytes], done: int) -> None:
        """Send answers; `done` requests that were begun end. On a closed connection they are dropped."""
        self.in_work -= done
        self.write(frames)
        self.go_on()
        if self._finishing:
            self._wake_drained()

    # --- what the stream asks

    def take(self, frames: list[Received]) -> list[Received]:
        """Hand on frames, until the connection has to be paused."""
        return self._server.take(self, frames)

    def ended(self, problem: str) -> None:  # noqa: ARG002 - nobody waits here to be told
        """The connection is gone."""
        self.endpoint.remove(self)

    def has_work(self) -> bool:
        """Whether requests wait for their answer."""
        return self.in_work > 0

    def overworked(self) -> bool:
        """Whether nothing more should be taken now."""
        return self.in_work >= self.endpoint.limits.requests_max or self._server.full()


class LedgerServer(RemotingServer):
    """Accepts connections and hands their frames to one taker."""

    def __init__(
        self,
        take: Callable[[LedgerConnection, list[Any]], list[Any]],
        full: Callable[[], bool],
        *,
        host: str,
        port: int,
        config: NetConfig,
        tls: TlsConfig | None = None,
    ) -> None:
        """A server that listens once it is started.

        Args:
            take: Gets each connection's frames, without their lengths; answers by the connection. Returns
                those that have to wait because the connection was paused.
            full: Whether nothing more should be taken; when that ends, `go_on` of all connections is called.
            host: Address or name to listen on.
            port: 0 takes any free port.
            config: Limits.
            tls: Certificates; without, the server speaks no TLS.
        """
        super().__init__(_unasked, host=host, port=port, config=config, tls=tls)
        self.take, self.full = take, full

    def connection(self, endpoint: Endpoint[Any], accepted: socket.socket, *, secure: bool) -> FrameStream:
        """A connection of BookKeeper's protocol."""
        return LedgerConnection(self, endpoint, accepted, secure=secure)


def _unasked(*_request: object) -> None:
    """Remoting's handler: there is no remoting here."""
