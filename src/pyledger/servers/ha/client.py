"""A slave's HA client: receives the master's log, appends it to its own, and reports its end.

There is one connection at a time; after it ends, the next one is opened after a pause. Bytes after the last
whole record are then truncated: the next master may continue differently.

Source: RocketMQ store/.../ha/DefaultHAClient.java.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from threading import Thread

from pyledger.config.ha import HaConfig
from pyledger.config.net import TlsConfig
from pyledger.errors import PyLedgerError, StoreError
from pyledger.log_events import event, logger
from pyledger.model.address import split_address
from pyledger.net.tls import client_context
from pyledger.net.tls_socket import TlsSocket
from pyledger.protocol.ha.slave import SlaveConnection, SlaveState
from pyledger.store.messages.replica import ReplicaReceiver, StoreReplica
from pyledger.store.messages.store_engine import StoreEngine

log = logger("ha")

CONNECT_TIMEOUT_S = 3.0
PAUSE_FACTOR_MAX = 12
"""Longest pause before a reconnect while the slave's own disk fails, as a multiple of the configured one."""
GROWN_PAUSE_S = 0.002
"""Interval at which the event loop is notified of new records, not for each one."""
FLUSH_PAUSE_MS = 1_000
"""How long a flush is awaited before a heartbeat to the master may be due."""


class HaClient:
    """Copies a master's log from `start` to `close`."""

    def __init__(
        self,
        store: StoreEngine,
        config: HaConfig,
        now_ms: Callable[[], int],
        *,
        learn: Callable[[], Awaitable[object]],
        agree: Callable[[], Awaitable[str]],
        grown: Callable[[], None],
        tls: TlsConfig | None = None,
    ) -> None:
        """Create a client, not started.

        Args:
            store: Store to which the log is appended.
            config: The rules.
            now_ms: A monotonic clock.
            learn: Finds the master before each connection, and passes it to `follow`.
            agree: Returns why the master's log cannot continue this one; empty: it can. Called for each
                connection before anything is sent.
            grown: Called after the log has grown.
            tls: Certificates, and whether requests are sent over TLS. If so, the log is too, unless
                `plain_master` is set.

        Raises:
            ConfigError: A certificate or key cannot be read.
        """
        tls = tls or TlsConfig()
        self._context = None if config.plain_master else client_context(tls)
        self._handshake_s = tls.handshake_timeout_ms / 1000
        self.replica = store.replica()
        self.connection: SlaveLink | None = None
        """The connection to the master; None: not connected."""
        self.problem = ""
        """Why it is not connected."""
        self.master_end = 0
        """Last known end (bytes) of the master's log; 0: unknown."""
        self._store = store
        self._config = config
        self._now_ms = now_ms
        self._learn = learn
        self._agree = agree
        self._grown = grown
        self._address = config.master_address
        self._changed = asyncio.Event()
        """Set when the master has changed since the last attempt."""
        self._task: asyncio.Task[None] | None = None
        self._disk_failed = False
        """The last attempt ended because this slave could not store the data."""

    @property
    def master_address(self) -> str:
        """`host:port` of the master's HA service; empty while unknown."""
        return self._address

    def follow(self, address: str) -> None:
        """Copy the log of another master, `host:port`. A configured master is kept."""
        if self._config.master_address or address == self._address:
            return
        self._address = address
        self.master_end = 0
        self._changed.set()
        if self.connection is not None:
            self.connection.end("another master")

    def start(self) -> None:
        """Start copying."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop copying. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        pause_s = least_s = self._config.reconnect_interval_ms / 1000
        while True:
            self._changed.clear()
            self._disk_failed = False
            problem = await self._follow_once()
            if problem != self.problem:
                event(log, logging.WARNING, "master not followed", master=self._address, problem=problem)
            self.problem = problem
            # A disk fault lasts: retry less often, to spare the master and the log file.
            pause_s = min(2 * pause_s, PAUSE_FACTOR_MAX * least_s) if self._disk_failed else least_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _follow_once(self) -> str:
        """Copy until the connection ends; return the reason."""
        connected = None
        try:
            self.replica.truncate_partial()  # always raises after a failure of the log
            await self._learn()
            if not (address := self._address):
                return "no name server knows a master"
            connected = await self._connect(address)
            # The master's log cannot change during the connection, so it is the one compared here.
            if problem := await self._agree():
                return problem
            if address != self._address:
                return "another master"
            if not await self._is_stored():
                return "the end of the log is not on disk yet"
            link = SlaveLink(connected, self.replica_machine(), self)
            self.connection, self.problem = link, ""
            event(log, logging.INFO, "master followed", master=self._address, offset=self.replica.end_offset)
            await asyncio.wait([link.ended])  # awaiting it directly would cancel it while its thread runs
            self._disk_failed = link.disk_failed
            return link.ended.result()
        except (OSError, TimeoutError) as failure:
            return str(failure) or "no answer in time"
        except (PyLedgerError, ValueError) as failure:
            self._disk_failed = isinstance(failure, StoreError)
            return str(failure)
        except Exception as failure:
            log.exception("master not followed")
            return repr(failure)
        finally:
            if self.connection is not None:
                link, self.connection = self.connection, None
                await link.close()
            elif connected is not None:
                connected.close()
            with contextlib.suppress(StoreError):  # the next attempt reports it
                self.replica.truncate_partial()

    async def _is_stored(self) -> bool:
        """Return whether everything required is on disk: the first report is an acknowledgement, too."""
        flush = self._store.until_durable(self.replica.end_offset)
        return flush is None or await flush

    def replica_machine(self) -> SlaveConnection:
        """Return the state machine of a new connection."""
        return SlaveConnection(
            self._config, self.replica.end_offset, self.replica.file_size_bytes, self._now_ms()
        )

    def grown(self) -> None:
        """The log has grown."""
        self._grown()

    def now_ms(self) -> int:
        """The time."""
        return self._now_ms()

    async def _connect(self, address: str) -> socket.socket:
        host, port = split_address(address)
        connected = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(connected, (host, port))
            if self._context is not None:
                secured = await TlsSocket.connected(connected, self._context, host, self._handshake_s)
                connected = secured.plain
        except BaseException:
            connected.close()
            raise
        return connected


def store_frames(machine: SlaveConnection, replica: StoreReplica, chunk: memoryview, now_ms: int) -> None:
    """Store received bytes: whole frames together, the rest through the state machine."""
    piece = machine.rest_of_frame(chunk, now_ms)
    if piece is not None:
        replica.append(piece.offset, piece.data)
        chunk = chunk[len(piece.data) :]
    if machine.between_frames and (used := replica.take_frames(chunk)):
        machine.took(replica.end_offset)
        chunk = chunk[used:]
    for piece in machine.take(chunk, now_ms):
        replica.append(piece.offset, piece.data)


def take_frames(
    machine: SlaveConnection,
    replica: StoreReplica,
    receiver: ReplicaReceiver,
    timeout_ms: int,
    now_ms: Callable[[], int],
) -> bool:
    """Run a receiver for this long (ms), update the machine, and store what the receiver left.

    Returns:
    Whether it left anything.
    """
    other = receiver.run(timeout_ms, between_frames=machine.between_frames)
    now = now_ms()
    machine.heard(now - receiver.since_read_ms)
    machine.took(replica.end_offset)
    if receiver.reported_offset > machine.stored_offset:
        machine.reported(receiver.reported_offset, now - receiver.since_report_ms)
    if other:
        store_frames(machine, replica, memoryview(other), now)
        replica.announce()
    replica.fed()
    return bool(other)


class SlaveLink:
    """One connection to a master: a thread around `SlaveConnection`.

    Plain frames are handled natively (`ReplicaReceiver`), because a send at the master waits for them. The
    machine is updated afterwards; it decides everything else and schedules reports.
    """

    def __init__(self, connected: socket.socket, machine: SlaveConnection, client: HaClient) -> None:
        """Report at once on a connected non-blocking socket, then start receiving."""
        self.machine = machine
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Completed with the reason when the connection has ended and nothing more is written."""
        self.disk_failed = False
        """It ended because the data could not be stored."""
        self._problem = ""
        self._socket = connected
        self._client = client
        self._replica = client.replica
        self._receiver = self._replica.receiver(connected.fileno())
        self._seen_end = -1
        self._loop.add_reader(self._receiver.event_fd, self._on_notified)
        self._receiver.arm()
        Thread(target=self._run, name="ha-client", daemon=True).start()

    @property
    def last_read_ms(self) -> int:
        """Time of the last received data."""
        return self._client.now_ms() - self._receiver.since_read_ms

    @property
    def last_write_ms(self) -> int:
        """Time of the last report."""
        return self._client.now_ms() - self._receiver.since_report_ms

    def end(self, problem: str) -> None:
        """Stop the connection."""
        self._problem = self._problem or problem
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """End it and close the socket. Call once."""
        self.end("closed")
        while not self.ended.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self.ended])
        self._loop.remove_reader(self._receiver.event_fd)
        self._socket.close()

    # --- on the event loop

    def _on_notified(self) -> None:
        self._receiver.clear_event()
        self._seen_end = self._replica.whole_offset
        self._client.grown()
        self._loop.call_later(GROWN_PAUSE_S, self._listen)

    def _listen(self) -> None:
        if self.ended.done():
            return
        self._receiver.arm()
        if self._replica.whole_offset != self._seen_end:
            self._on_notified()

    def _finished(self, problem: str) -> None:
        if not self.ended.done():
            self.ended.set_result(self._problem or problem)
            self._client.grown()

    # --- on the thread

    def _run(self) -> None:
        try:
            problem = self._follow()
        except (OSError, PyLedgerError) as failure:
            self.disk_failed = isinstance(failure, StoreError)
            problem = str(failure)
        except BaseException as failure:
            problem = repr(failure)
            raise
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._finished, problem)

    def _follow(self) -> str:
        """Receive until the connection ends; return the reason."""
        machine, receiver, client = self.machine, self._receiver, self._client
        while not receiver.closed:
            now_ms = client.now_ms()
            machine.tick(now_ms)
            if machine.state is SlaveState.SHUTDOWN:
                return machine.problem
            self._report(now_ms)
            take_frames(
                machine, self._replica, receiver, machine.deadline_ms() - client.now_ms(), client.now_ms
            )
            client.master_end = machine.master_offset
            self._settle(self._replica.whole_offset)
        return "the master closed the connection"

    def _settle(self, end_offset: int) -> None:
        """Mark written bytes as stored: now or, if required, when they are on disk."""
        if end_offset <= self.machine.stored_offset:
            return
        while not self._replica.until_durable(end_offset, FLUSH_PAUSE_MS):
            if self._problem:
                return
            self._report(self._client.now_ms())
        self.machine.stored(end_offset)

    def _report(self, now_ms: int) -> None:
        offset = self.machine.report(now_ms)
        if offset is not None and not self._receiver.report(offset):
            raise BlockingIOError("a report was sent only in part")
