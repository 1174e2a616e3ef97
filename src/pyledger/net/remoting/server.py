"""The listening side of remoting.

Connections are accepted here and not by the event loop, so that one above the limit costs nothing, TLS and
plain connections can share a port, and each plain connection keeps its own socket for writing without copies.

Source: RocketMQ remoting/.../netty/NettyRemotingServer.java.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import ListenError
from pyledger.log_events import event, logger
from pyledger.net.endpoint import AnswerBatch, Endpoint
from pyledger.net.remoting.connection import Connection, Handler
from pyledger.net.sockets import (
    ACCEPT_PAUSE_S,
    OUT_OF_RESOURCES,
    address_text,
    bound_socket,
    first_kept_descriptor,
    prepare,
    reason_of,
)
from pyledger.net.stream import FrameStream
from pyledger.net.tls import TLS_HELLO, server_context
from pyledger.wire.remoting.framing import StreamDecoder

log = logger("net")

ACCEPTS_PER_ITERATION = 64


class RemotingServer:
    """Accepts connections and hands their requests to one handler.

    It speaks no PROXY protocol: `remote_address` of a connection is that of the socket's peer.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        config: NetConfig | None = None,
        tls: TlsConfig | None = None,
        answer_batch: AnswerBatch[Connection] | None = None,
        decoder: Callable[[int], StreamDecoder[Any]] | None = None,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        """A server that listens once it is started.

        Args:
            handler: Answers requests.
            host: Address or name to listen on.
            port: 0 takes any free port.
            config: Limits and waits.
            tls: Certificates; without, the server speaks no TLS.
            answer_batch: Gets the requests that native code decodes, before `handler`.
            decoder: Made for each connection, with the most bytes of a frame; decodes for `answer_batch`.
            on_open: Called with each new connection.
            on_close: Called when a connection is gone.

        Raises:
            ConfigError: a certificate cannot be read.
        """
        self._handler = handler
        self._address = (host, port)
        self._config = config or NetConfig()
        self._tls = tls or TlsConfig(server_mode="disabled")
        self._context = server_context(self._tls)
        self._answer_batch, self._decoder = answer_batch, decoder
        self._on_open = on_open
        self._on_close = on_close
        # Accepted, but not connections yet: TLS is not agreed.
        self._unopened: set[socket.socket] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._endpoint: Endpoint[Connection] | None = None
        self._full = False
        self._first_kept = 0
        self._resume: asyncio.TimerHandle | None = None
        self.port = port

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections."""
        return () if self._endpoint is None else tuple(self._endpoint.connections)

    async def bind(self) -> None:
        """Bind the address and set `port`; no connection is accepted before `start`.

        Raises:
            ListenError: the address cannot be had.
        """
        host, port = self._address
        try:
            self._listener = await bound_socket(host, port, self._config.server_socket_receive_bytes)
        except OSError as error:
            raise ListenError(f"{host}:{port}", reason_of(error)) from error
        self.port = self._listener.getsockname()[1]

    async def start(self) -> None:
        """Listen, and set `port`.

        Raises:
            ListenError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        if self._listener is None:
            await self.bind()
        listener = self._listener
        assert listener is not None
        host, port = self._address
        self._first_kept = first_kept_descriptor()
        try:
            listener.listen(self._config.server_socket_backlog)
        except OSError as error:
            self._stop_accepting()
            raise ListenError(f"{host}:{port}", reason_of(error)) from error
        self._endpoint = Endpoint(
            loop,
            self._config,
            self._handler,
            server=True,
            answer_batch=self._answer_batch,
            decoder=self._decoder,
            on_open=self._opened,
            on_close=self._on_close,
        )
        loop.add_reader(listener, self._accept)
        event(log, logging.INFO, "server listens", host=host, port=self.port)

    async def close(self, grace_ms: int = 3_000) -> None:
        """Stop: accept nothing, finish what was taken, close every connection. Idempotent.

        With `shutdown_gracefully` new requests are answered GO_AWAY first, until all clients have gone or
        `shutdown_wait_seconds` are over. A handler that holds requests must answer them before.

        Args:
            grace_ms: How long requests being processed may take to be answered and written.
        """
        if self._listener is None:
            return
        self._stop_accepting()
        if (endpoint := self._endpoint) is None:
            return
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        if self._config.shutdown_gracefully:
            endpoint.going_away = True
            await endpoint.wait_until_empty(self._config.shutdown_wait_seconds)
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await asyncio.gather(*[connection.finish() for connection in self.connections])
        except TimeoutError:
            event(log, logging.WARNING, "unfinished requests dropped", grace_ms=grace_ms)
        await endpoint.close()
        event(log, logging.INFO, "server closed", port=self.port)

    def connection(
        self, endpoint: Endpoint[Connection], accepted: socket.socket, *, secure: bool
    ) -> FrameStream:
        """What speaks on an accepted socket; another protocol has another class."""
        return Connection(endpoint, accepted, secure=secure)

    def _stop_accepting(self) -> None:
        assert self._listener is not None
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        assert self._endpoint is not None
        loop = self._endpoint.loop
        for _ in range(ACCEPTS_PER_ITERATION):
            try:
                accepted, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    event(log, logging.ERROR, "cannot accept", problem=error)
                    loop.remove_reader(self._listener)
                    self._resume = loop.call_later(
                        ACCEPT_PAUSE_S, loop.add_reader, self._listener, self._accept
                    )
                    return
                continue  # the peer has gone already
            count = len(self._endpoint.connections) + len(self._unopened)
            # The system gives the lowest descriptor that is free.
            if count >= self._config.connections_max or accepted.fileno() >= self._first_kept:
                self._reject(accepted, count)
                continue
            self._full = False
            self._unopened.add(accepted)
            task = loop.create_task(self._open(accepted, address_text(peer)))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _opened(self, connection: Connection) -> None:
        self._unopened.discard(connection.socket)
        if self._on_open is not None:
            self._on_open(connection)

    def _reject(self, accepted: socket.socket, count: int) -> None:
        accepted.close()
        if not self._full:
            self._full = True
            limits = {
                "count": count,
                "connections_max": self._config.connections_max,
                "first_descriptor_kept_for_files": self._first_kept,
            }
            event(log, logging.WARNING, "too many connections", **limits)

    async def _open(self, accepted: socket.socket, peer: str) -> None:
        assert self._endpoint is not None
        endpoint, context = self._endpoint, self._context
        try:
            prepare(accepted, self._config.server_socket_send_bytes, self._config.server_socket_receive_bytes)
            if context is not None and self._tls.server_mode == "permissive":
                async with asyncio.timeout(self._config.server_idle_seconds):
                    if await first_byte(endpoint.loop, accepted) != TLS_HELLO:
                        context = None
            await endpoint.loop.connect_accepted_socket(
                lambda: self.connection(endpoint, accepted, secure=context is not None),
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else self._tls.handshake_timeout_ms / 1000,
            )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            problem = str(error) or type(error).__name__
            endpoint.events.event(log, logging.INFO, "connection not opened", peer=peer, problem=problem)
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
        finally:
            self._unopened.discard(accepted)


async def first_byte(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> int:
    """Wait for the first byte of a connection and leave it there.

    Raises:
        OSError: the peer closed or reset the connection.
    """
    arrived = loop.create_future()

    def peek() -> None:
        if arrived.done():
            return
        try:
            peeked = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            arrived.set_exception(error)
            return
        if peeked:
            arrived.set_result(peeked[0])
        else:
            arrived.set_exception(ConnectionResetError("closed without a byte"))

    loop.add_reader(accepted, peek)
    try:
        found: int = await arrived
    finally:
        loop.remove_reader(accepted)
    return found
