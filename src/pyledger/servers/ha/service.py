"""A master's HA service: accepts slaves, sends them the log, and completes puts when slaves have it.

Upstream's classes correspond by name: the accept service is `HaService`, its group transfer service the
machine `GroupTransfer`, and `HaConnection` has a read side and a write side. All of it runs on the event
loop, except for slaves with a large lag, which are served by threads.

Source: RocketMQ store/.../ha/DefaultHAService.java, DefaultHAConnection.java, GroupTransferService.java.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from pyledger.config.ha import SINGLE, HaConfig
from pyledger.config.net import TlsConfig
from pyledger.errors import ListenError
from pyledger.log_events import event, logger
from pyledger.net.remoting.server import first_byte
from pyledger.net.sockets import ACCEPT_PAUSE_S, OUT_OF_RESOURCES, bound_socket, reason_of
from pyledger.net.tls import TLS_HELLO, server_context
from pyledger.net.tls_socket import TlsSocket
from pyledger.protocol.ha.admission import Admission
from pyledger.protocol.ha.group_transfer import PUT_OK, GroupTransfer
from pyledger.protocol.ha.master import LogRange
from pyledger.servers.ha.connection import HaConnection
from pyledger.store.messages.store_engine import StoreEngine

log = logger("ha")

BACKLOG = 64
ADMISSIONS_MAX = 64
"""Connections that wait for admission at most; each may need a query to the name servers."""
CONNECTIONS_MAX = 64
"""Connected slaves at most, and so threads for slaves with a large lag."""
CONNECTIONS_OF_HOST_MAX = 16
"""Connections of one address at most, including waiting ones: one machine must not lock out others."""

Known = Callable[[str], Awaitable[bool]]
"""Returns whether an address is known as a slave's."""


class SlaveStatus(NamedTuple):
    """State of a connected slave, as the master sees it."""

    address: str
    ack_offset: int
    """Acknowledged physical offset (bytes); -1 before its first report."""
    next_offset: int
    """Physical offset (bytes) at which the next transfer starts."""
    in_sync: bool
    sent_bytes: int
    """Log bytes sent on this connection."""


class HaService:
    """Serves slaves from `start` to `close`."""

    def __init__(
        self,
        store: StoreEngine,
        config: HaConfig,
        now_ms: Callable[[], int],
        known: Known,
        *,
        access_control: bool = False,
        tls: TlsConfig | None = None,
    ) -> None:
        """Create a service, not listening yet.

        Args:
            store: Store whose log is sent.
            config: The rules.
            now_ms: A monotonic clock.
            known: Returns whether an address is a slave's, for masters without stricter rules.
            access_control: Requests to the broker must be signed, so slaves must authenticate.
            tls: Certificates; without them, it has no TLS.

        Raises:
            ConfigError: A certificate cannot be read, or no authority for the slaves' certificates is
                configured.
        """
        tls = tls or TlsConfig(server_mode="disabled")
        self.admission = Admission(
            config, access_control=access_control, tls_only=tls.server_mode == "enforcing"
        )
        if self.admission.certificates and tls.server_need_client_auth == "none":
            tls = replace(tls, server_need_client_auth="optional")
        self._context = server_context(tls)
        self._handshake_s = tls.handshake_timeout_ms / 1000
        self.store = store
        self.config = config
        self.now_ms = now_ms
        self.transfer = GroupTransfer(config)
        self.connections: dict[int, HaConnection] = {}
        self._known = known
        self._hosts: Counter[str] = Counter()
        self._numbers = count(1)
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Its own executor: the loop's threads write tables and flush the log meanwhile.
        self.stream_threads: Executor = ThreadPoolExecutor(CONNECTIONS_MAX, "ha-stream")
        self.streams: set[asyncio.Future[int]] = set()
        """Running threads, including those of closed connections."""
        self._polling = False

    @property
    def port(self) -> int:
        """Listening port; 0 before `start`."""
        return 0 if self._listener is None else int(self._listener.getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Listen, if the role requires it; port 0 takes a free one.

        Raises:
            ListenError: The address is not available.
        """
        if self.config.role == SINGLE:
            return
        if not self.admission.anyone:
            remedy = "name slaves in allowed_slaves or slave_certificates"
            event(log, logging.WARNING, "no slave could prove itself: port closed", remedy=remedy)
            return
        self._loop = asyncio.get_running_loop()
        try:
            self._listener = await bound_socket(host, port, 0)
            self._listener.listen(BACKLOG)
        except OSError as error:
            self._stop_accepting()
            raise ListenError(f"{host}:{port}", reason_of(error)) from error
        self._listen()

    async def close(self) -> None:
        """Close all connections and complete all waiting puts. Idempotent."""
        self._stop_accepting()
        for connection in tuple(self.connections.values()):
            connection.close("the master stops")
        for task in tuple(self._tasks):
            task.cancel()
        self.transfer.close()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self.streams, return_exceptions=True)
        self.stream_threads.shutdown()

    # --- puts

    def rejection(self) -> str | None:
        """Return why puts are rejected now, in upstream's words; None: they are not."""
        return self.transfer.rejection(self.store.max_offset)

    def wait(self, end_offset: int, answer: Callable[[str], None]) -> str | None:
        """Wait until slaves have the log up to a physical offset (bytes).

        Returns:
            Upstream's name of the result if it is known at once. None: `answer` will be called once.
        """
        if self.config.role != "sync_master":
            return PUT_OK
        status = self.transfer.wait(end_offset, answer, self.now_ms())
        if status is None and self._timer is None:
            self._set_timer()
        return status

    def appended(self) -> None:
        """Note that the log has grown: send it to slaves now, or at the end of this iteration of the loop."""
        if self.connections:
            end, wanted = self.store.confirmed_where, self.transfer.anyone_waits
            for connection in tuple(self.connections.values()):
                connection.log_grew(end, wanted=wanted)

    def poll_reports(self) -> None:
        """Process the reports that have arrived, without waiting."""
        if self._polling:  # a client that gets its response may put again at once
            return
        self._polling = True
        try:
            for connection in tuple(self.connections.values()):
                connection.read_reports()
        finally:
            self._polling = False

    def _set_timer(self) -> None:
        deadline_ms = self.transfer.deadline_ms()
        if deadline_ms is not None:
            pause_ms = max(1, deadline_ms - self.now_ms())
            self._timer = asyncio.get_running_loop().call_later(pause_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.transfer.tick(self.now_ms())
        self._set_timer()

    # --- slaves

    def log_range(self) -> LogRange:
        """Return the range of the log that slaves may have now."""
        store = self.store
        return LogRange(store.min_offset, store.confirmed_where, store.config.mapped_file_size_bytes)

    def slaves(self) -> list[SlaveStatus]:
        """Return the connected slaves."""
        end, gap = self.store.max_offset, self.config.gap_max_bytes
        return [
            SlaveStatus(
                one.peer,
                one.machine.slave_ack_offset,
                one.next_offset,
                one.machine.slave_ack_offset >= 0 and end - one.machine.slave_ack_offset < gap,
                one.sent_bytes,
            )
            for one in self.connections.values()
        ]

    def doubt_others(self, newer: HaConnection) -> None:
        """Count connections of one machine once: the slave may have lost the older one."""
        for number, one in self.connections.items():
            if one is not newer and one.host == newer.host:
                self.transfer.doubt(number, one.machine.next_offset)

    def _listen(self) -> None:
        assert self._loop is not None
        if self._listener is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _stop_accepting(self) -> None:
        if self._listener is not None and self._loop is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        assert self._loop is not None
        try:
            connected, address = self._listener.accept()
        except OSError as error:
            if error.errno in OUT_OF_RESOURCES:
                event(log, logging.WARNING, "slave not accepted", problem=error)
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(ACCEPT_PAUSE_S, self._listen)
            return
        host, port = str(address[0]), int(address[1])
        if (
            len(self._tasks) >= ADMISSIONS_MAX
            or len(self.connections) >= CONNECTIONS_MAX
            or self._hosts[host] >= CONNECTIONS_OF_HOST_MAX
        ):
            connected.close()
            return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._hosts[host] += 1
        task = self._loop.create_task(self._admit(connected, host, port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def left(self, host: str) -> None:
        """Note that a connection of an address is closed, or was rejected."""
        self._hosts[host] -= 1
        if self._hosts[host] <= 0:
            del self._hosts[host]

    async def _admit(self, connected: socket.socket, host: str, port: int) -> None:
        opened = connected
        try:
            opened, problem = await self._opened(connected, host)
        except (OSError, TimeoutError) as error:
            problem = reason_of(error) if isinstance(error, OSError) else "it sent nothing in time"
        except BaseException:
            connected.close()
            self.left(host)
            raise
        if problem or self._listener is None:
            opened.close()
            connected.close()
            self.left(host)
            event(log, logging.WARNING, "slave rejected", peer=host, problem=problem)
            return
        number = next(self._numbers)
        self.connections[number] = HaConnection(self, opened, number, host, port)
        event(log, logging.INFO, "slave connected", peer=f"{host}:{port}")

    async def _opened(self, connected: socket.socket, host: str) -> tuple[socket.socket, str]:
        """Return the socket to use, and why the connection is rejected, if it is.

        Raises:
            OSError: The connection failed.
            TimeoutError: No data arrived in time.
        """
        rules, context = self.admission, self._context
        named = rules.names_address(host)
        if not (named or rules.certificates) and (rules.wants_proof or not await self._known(host)):
            return connected, "allowed_slaves does not name it, and no name server knows it as a slave"
        if context is not None:
            async with asyncio.timeout(self.config.silence_max_ms / 1000):
                if await first_byte(asyncio.get_running_loop(), connected) != TLS_HELLO:
                    context = None
        if context is None:
            return connected, rules.rejection(named=named, secure=False, names=())
        secured = await TlsSocket.accepted(connected, context, self._handshake_s)
        return secured.plain, rules.rejection(named=named, secure=True, names=secured.names)
