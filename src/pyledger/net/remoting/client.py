"""The connecting side of remoting: one connection per address, made when it is needed.

Source: RocketMQ remoting/.../netty/NettyRemotingClient.java.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from random import Random
from typing import Any, TypeVar

from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import (
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
)
from pyledger.log_events import event, logger
from pyledger.model.address import split_address
from pyledger.model.remoting_codes import ResponseCode
from pyledger.net.deferred import Deferred
from pyledger.net.endpoint import Endpoint
from pyledger.net.remoting.connection import Connection, Handler
from pyledger.net.remoting.name_servers import NameServerList
from pyledger.net.remoting.request_table import reject_unknown
from pyledger.net.sockets import open_socket, reason_of
from pyledger.net.tls import client_context
from pyledger.wire.remoting.command import RemotingCommand, encode_head
from pyledger.wire.remoting.native_codec import ResponseFuture

T = TypeVar("T")

log = logger("net")

NAME_SERVER = "a name server"
GO_AWAY = ResponseCode.GO_AWAY
SENT_AWAY = "the server is shutting down"


class RemotingClient:
    """Calls servers by address, or whichever name server is chosen. Belongs to one event loop."""

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        config: NetConfig | None = None,
        tls: TlsConfig | None = None,
        random: Random | None = None,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        """A client that connects when it is first used.

        Args:
            handler: Answers requests of servers; without one, they are rejected.
            config: Limits and waits.
            tls: Certificates, and whether to speak TLS at all.
            random: Shuffles the name servers.
            on_open: Called with each new connection.
            on_close: Called when a connection is gone.

        Raises:
            ConfigError: a certificate cannot be read.
        """
        self._handler = handler or reject_unknown
        self._config = config or NetConfig()
        self._tls = tls or TlsConfig()
        self._context = client_context(self._tls)
        self._on_open = on_open
        self._on_close = on_close
        self._endpoint: Endpoint[Connection] | None = None
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._name_servers = NameServerList(random or Random())
        self._chosen: str | None = None
        self._choosing = asyncio.Lock()
        self._scan: asyncio.TimerHandle | None = None
        self._closed = False

    # --- calls

    async def call(self, address: str | None, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for its answer.

        Args:
            address: `host:port`; None: a name server.
            command: A request; its opaque is set here.
            timeout_ms: For everything, connecting included.

        Raises:
            RemotingConnectError: no connection could be opened; nothing was sent.
            RemotingTooMuchRequestError: no permit became free in time; nothing was sent.
            RemotingTimeoutError: no answer came in time.
            RemotingSendRequestError: the connection broke before the answer came.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return await self._call(address, command, timeout_ms, deadline, attempts=2)

    def start(
        self, address: str | None, command: RemotingCommand, timeout_ms: int
    ) -> Deferred[RemotingCommand]:
        """Send a request without waiting for free space: the caller limits the bytes to be written itself.

        Args:
            address: `host:port`; None: a name server.
            command: A request; its opaque is set here.
            timeout_ms: For everything, connecting included.

        Returns:
            The response, or the error of `call`, from the event loop.

        Cost: no task and no future while the connection is open.
        """
        result: Deferred[RemotingCommand] = Deferred()
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection = self._connections.get(address or self._chosen or "")
        if connection is None or connection.closed:
            self._call_later(result, address, command, timeout_ms, deadline, attempts=2)
            return result
        endpoint = connection.endpoint
        if not connection.takes_calls:
            result.set_exception(endpoint.async_permits.exhausted(connection.remote_address))
            return result

        def responded(response: Deferred[RemotingCommand]) -> None:
            try:
                answer = response.result()
                retries = answer.code == GO_AWAY and self._leave(connection)
            except Exception as error:  # noqa: BLE001 - what awaits the result gets it
                result.set_exception(error)
                return
            if retries:
                self._call_later(result, address, command, timeout_ms, deadline, attempts=1)
            else:
                result.set_result(answer)

        response: Deferred[RemotingCommand] = Deferred()
        response.add_done_callback(responded)
        command.opaque = opaque = endpoint.next_opaque()
        parts = encode_head(command), command.body
        connection.start(ResponseFuture(response), opaque, parts, timeout_ms)
        return result

    async def call_oneway(self, address: str | None, command: RemotingCommand, timeout_ms: int) -> None:
        """Send a request that has no answer; returns when it is queued to be written.

        Args:
            address: `host:port`; None: a name server.
            command: A request; its opaque is set here.
            timeout_ms: For connecting, for space in the write queue, and for a permit.

        Raises:
            RemotingConnectError: no connection could be opened.
            RemotingTooMuchRequestError: no permit became free in time; nothing was sent.
            RemotingTimeoutError: the peer reads too slowly; nothing was sent.
            RemotingSendRequestError: the connection broke.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        connection = await self.connect(address, timeout_ms)
        await connection.call_oneway_within(command, self._left_ms(address, timeout_ms, deadline))

    # --- connections

    async def connect(self, address: str | None, timeout_ms: int | None = None) -> Connection:
        """The connection to an address, made if there is none.

        Args:
            address: `host:port`; None: a name server.
            timeout_ms: At most `connect_timeout_ms`, which is also the default.

        Raises:
            RemotingConnectError: no connection could be opened in time.
        """
        limit_ms = self._config.connect_timeout_ms
        return await self._connection(address, limit_ms if timeout_ms is None else timeout_ms)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The open connections."""
        return () if self._endpoint is None else tuple(self._endpoint.connections)

    @property
    def name_server(self) -> str | None:
        """The name server that was chosen last."""
        return self._chosen

    def update_name_servers(self, addresses: Iterable[str]) -> None:
        """Use these name servers from now on, and keep a connection to each of them. Needs a running loop."""
        if self._name_servers.update(addresses):
            event(log, logging.INFO, "name servers set", addresses=";".join(self._name_servers.addresses))
            if self._chosen not in self._name_servers.addresses:
                self._chosen = None
        if self._scan is None and not self._closed:
            self._scan_name_servers()

    async def close(self) -> None:
        """Close every connection; calls in flight fail. Idempotent."""
        self._closed = True
        if self._scan is not None:
            self._scan.cancel()
        tasks = [*self._connecting.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._endpoint is not None:
            await self._endpoint.close()

    # --- inside

    async def _connection(self, address: str | None, timeout_ms: float) -> Connection:
        if address is None:
            return await self._name_server_connection(timeout_ms)
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise RemotingConnectError(address, "this client is closed")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(address))
            self._connecting[address] = task
            task.add_done_callback(partial(self._opened, address))
        limit_ms = min(timeout_ms, self._config.connect_timeout_ms)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await asyncio.shield(task)
        except TimeoutError:
            raise RemotingConnectError(address, f"no answer within {int(limit_ms)} ms") from None

    async def _open(self, address: str) -> Connection:
        endpoint = self._endpoint = self._endpoint or self._new_endpoint()
        config = self._config
        try:
            async with asyncio.timeout(config.connect_timeout_ms / 1000):
                plain = await open_socket(
                    address, config.client_socket_send_bytes, config.client_socket_receive_bytes
                )
        except TimeoutError:
            raise RemotingConnectError(address, f"no answer within {config.connect_timeout_ms} ms") from None
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
            raise RemotingConnectError(address, reason) from error
        context = self._context
        try:
            _, connection = await endpoint.loop.create_connection(
                lambda: Connection(endpoint, plain, secure=context is not None),
                sock=plain,
                ssl=context,
                server_hostname=None if context is None else split_address(address)[0],
                ssl_handshake_timeout=None if context is None else self._tls.handshake_timeout_ms / 1000,
            )
        except OSError as error:
            plain.close()
            raise RemotingConnectError(address, reason_of(error)) from error
        except BaseException:
            plain.close()
            raise
        self._connections[address] = connection
        return connection

    def _new_endpoint(self) -> Endpoint[Connection]:
        return Endpoint(
            asyncio.get_running_loop(),
            self._config,
            self._handler,
            server=False,
            on_open=self._on_open,
            on_close=self._connection_closed,
        )

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        del self._connecting[address]
        if not task.cancelled():
            task.exception()  # the callers have it; asyncio would log it when none is left

    def _connection_closed(self, connection: Connection) -> None:
        self._retire(connection)
        if self._on_close is not None:
            self._on_close(connection)

    def ready(self, address: str | None) -> Connection | None:
        """The connection to an address, if a call could be written to it now without waiting."""
        connection = self._connections.get(address or "")
        return None if connection is None or not connection.writable else connection

    def open_connection(self, address: str) -> Connection | None:
        """The connection to an address, if a call could be queued on it now, however much waits there."""
        connection = self._connections.get(address)
        return None if connection is None or not connection.takes_calls else connection

    def retire(self, address: str) -> None:
        """Make no further call on the connection to an address: its server is shutting down."""
        connection = self._connections.get(address)
        if connection is not None and self._config.reconnect_on_go_away:
            self._retire(connection)

    def _leave(self, connection: Connection) -> bool:
        """Obey a GO_AWAY: retire its connection and return whether to retry; False: it is the response.

        Raises:
            RemotingSendRequestError: `retry_on_go_away` is off, or the client is closed.
        """
        if not self._config.reconnect_on_go_away:
            return False
        self._retire(connection)
        if self._closed or not self._config.retry_on_go_away:
            raise RemotingSendRequestError(connection.remote_address, SENT_AWAY)
        return True

    def _retire(self, connection: Connection) -> None:
        """Make no further call on a connection. The server closes it, or the idle timeout does."""
        for address in [a for a, known in self._connections.items() if known is connection]:
            del self._connections[address]

    def _left_ms(self, address: str | None, timeout_ms: int, deadline: float) -> int:
        left_ms = int((deadline - asyncio.get_running_loop().time()) * 1000 + 0.5)
        if left_ms <= 0:
            raise RemotingTimeoutError(address or NAME_SERVER, timeout_ms)
        return left_ms

    def _spawn(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _call(
        self,
        address: str | None,
        command: RemotingCommand,
        timeout_ms: int,
        deadline: float,
        *,
        attempts: int,
    ) -> RemotingCommand:
        for _ in range(attempts):
            connection = self._connections.get(address or self._chosen or "")
            if connection is None or connection.closed:
                connection = await self._connection(address, self._left_ms(address, timeout_ms, deadline))
            left_ms = self._left_ms(address, timeout_ms, deadline)
            try:
                answer = await connection.call(command, left_ms)
            except RemotingTimeoutError:
                raise RemotingTimeoutError(connection.remote_address, timeout_ms) from None
            if answer.code != GO_AWAY or not self._leave(connection):
                return answer
        assert connection is not None
        raise RemotingSendRequestError(connection.remote_address, SENT_AWAY)

    def _call_later(
        self,
        result: Deferred[RemotingCommand],
        address: str | None,
        command: RemotingCommand,
        timeout_ms: int,
        deadline: float,
        *,
        attempts: int,
    ) -> None:
        """Make a call in a task, which connects first."""

        def ended(task: asyncio.Task[RemotingCommand]) -> None:
            if task.cancelled():
                result.set_exception(
                    RemotingSendRequestError(address or NAME_SERVER, "this client was closed")
                )
            elif (error := task.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(task.result())

        call = self._call(address, command, timeout_ms, deadline, attempts=attempts)
        self._spawn(call).add_done_callback(ended)

    # --- name servers

    async def _name_server_connection(self, timeout_ms: float) -> Connection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        async with self._choosing:
            if self._chosen is not None and self._is_open(self._chosen):
                return self._connections[self._chosen]
            failure = RemotingConnectError(NAME_SERVER, "none is known")
            for address in self._name_servers.rotation():
                left_ms = (deadline - loop.time()) * 1000
                if left_ms <= 0:
                    break
                try:
                    connection = await self._connection(address, left_ms)
                except RemotingConnectError as error:
                    failure = error
                    continue
                self._chosen = address
                event(log, logging.INFO, "name server chosen", address=address)
                return connection
            raise failure

    def _is_open(self, address: str) -> bool:
        connection = self._connections.get(address)
        return connection is not None and not connection.closed

    def _scan_name_servers(self) -> None:
        loop = asyncio.get_running_loop()
        self._scan = loop.call_later(self._config.name_server_scan_ms / 1000, self._scan_name_servers)
        for address in self._name_servers.addresses:
            if not self._is_open(address) and address not in self._connecting:
                self._spawn(self._try_name_server(address))

    async def _try_name_server(self, address: str) -> None:
        try:
            await self._connection(address, self._config.connect_timeout_ms)
        except RemotingConnectError as error:
            event(log, logging.DEBUG, "name server not reached", address=address, problem=error.reason)
