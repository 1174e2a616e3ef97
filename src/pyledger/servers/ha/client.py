"""A slave's HA client: takes the master's log, writes it at the end of its own, and reports how far it is.

One connection at a time; when it ends the next is made after a pause. What stands behind the last whole
record is taken back then: the next master may go on differently.

Source: RocketMQ store/.../ha/DefaultHAClient.java.
"""

import asyncio
import contextlib
import logging
import os
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
"""So many times as long a slave waits at most before it connects again, while its own disk refuses."""
GROWN_PAUSE_S = 0.002
"""Pause between two times that the event loop hears of new records: it is not woken for each."""
FLUSH_PAUSE_MS = 1_000
"""So long a flush is waited for before the master is told, perhaps, that this slave is alive."""


class HaClient:
    """Follows a master from `start` to `close`."""

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
        """A client that does nothing yet.

        Args:
            store: Takes the log.
            config: The rules.
            now_ms: A clock that never goes back.
            learn: Asks who is master, before each connection; what is found comes to `follow`.
            agree: Why the master's log and this one cannot go on together, asked on each connection before
                anything is said there; empty: they can.
            grown: Called after the log has grown.
            tls: Certificates, and whether requests travel over TLS: so does the log then, unless the settings
                say that the master speaks none there.

        Raises:
            ConfigError: a certificate or key cannot be read.
        """
        tls = tls or TlsConfig()
        self._context = None if config.plain_master else client_context(tls)
        self._handshake_s = tls.handshake_timeout_ms / 1000
        self.replica = store.replica()
        self.connection: SlaveLink | None = None
        """The connection to the master, while there is one."""
        self.problem = ""
        """Why there is none."""
        self.master_end = 0
        """How far (bytes) the master's log went when it was last heard of; 0: nothing was."""
        self._store = store
        self._config = config
        self._now_ms = now_ms
        self._learn = learn
        self._agree = agree
        self._grown = grown
        self._address = config.master_address
        self._changed = asyncio.Event()
        """The master is another one than at the last attempt."""
        self._task: asyncio.Task[None] | None = None
        self._disk_refuses = False
        """The last attempt ended because this slave cannot store what comes."""

    @property
    def master_address(self) -> str:
        """`host:port` of the master's HA service; empty while nobody has said."""
        return self._address

    def follow(self, address: str) -> None:
        """Take the log from another master, `host:port`. A configured one stays."""
        if self._config.master_address or address == self._address:
            return
        self._address = address
        self.master_end = 0
        self._changed.set()
        if self.connection is not None:
            self.connection.end("another master")

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Follow no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        pause_s = least_s = self._config.reconnect_interval_ms / 1000
        while True:
            self._changed.clear()
            self._disk_refuses = False
            problem = await self._follow_once()
            if problem != self.problem:
                event(log, logging.WARNING, "master not followed", master=self._address, problem=problem)
            self.problem = problem
            # A disk that refuses does so for a while: master and logs need not hear of it each time.
            pause_s = min(2 * pause_s, PAUSE_FACTOR_MAX * least_s) if self._disk_refuses else least_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()

    async def _follow_once(self) -> str:
        """Follow until the connection ends; why it did."""
        connected = None
        try:
            self.replica.truncate_partial()  # raises for a failed log, also when there is nothing to truncate
            await self._learn()
            if not (address := self._address):
                return "no name server knows a master"
            connected = await self._connect(address)
            # The connection ends with the master: what comes over it is of the log that is compared here.
            if problem := await self._agree():
                return problem
            if address != self._address:
                return "another master"
            if not await self._is_stored():
                return "the end of the log is not on disk yet"
            link = SlaveLink(connected, self.replica_machine(), self)
            self.connection, self.problem = link, ""
            event(log, logging.INFO, "master followed", master=self._address, offset=self.replica.end_offset)
            await asyncio.wait([link.ended])  # to await it would cancel it, and its thread goes on
            self._disk_refuses = link.disk_refuses
            return link.ended.result()
        except (OSError, TimeoutError) as failure:
            return str(failure) or "no answer in time"
        except (PyLedgerError, ValueError) as failure:
            self._disk_refuses = isinstance(failure, StoreError)
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
            with contextlib.suppress(StoreError):  # it is told by the next attempt
                self.replica.truncate_partial()

    async def _is_stored(self) -> bool:
        """Whether all is on disk that has to be: the first report is an acknowledgement, too."""
        flush = self._store.until_durable(self.replica.end_offset)
        return flush is None or await flush

    def replica_machine(self) -> SlaveConnection:
        """The machine of a new connection."""
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
    """Store what came of a master. Whole frames go on together; the machine sees what is not so ordinary."""
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
    """Run a receiver for this long (ms), report to the machine, and store what the receiver left.

    Returns:
        Whether there was such.
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
    """One connection to a master: a thread of its own around `SlaveConnection`.

    What is ordinary never comes to Python (`ReplicaReceiver`): a send at the master waits for it. The machine
    hears of it afterwards, decides all else, and says when something is due.
    """

    def __init__(self, connected: socket.socket, machine: SlaveConnection, client: HaClient) -> None:
        """Report at once on a connected socket that does not block, then take what comes."""
        self.machine = machine
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Why the connection ended, when it has; nothing is written any more."""
        self.disk_refuses = False
        """It ended because nothing more can be stored here."""
        self._problem = ""
        self._socket = connected
        self._client = client
        self._replica = client.replica
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._receiver = self._replica.receiver(connected.fileno(), self._event_fd)
        self._seen_end = -1
        self._loop.add_reader(self._event_fd, self._on_notified)
        self._receiver.arm()
        Thread(target=self._run, name="ha-client", daemon=True).start()

    @property
    def last_read_ms(self) -> int:
        """When something came."""
        return self._client.now_ms() - self._receiver.since_read_ms

    @property
    def last_write_ms(self) -> int:
        """When something was reported."""
        return self._client.now_ms() - self._receiver.since_report_ms

    def end(self, problem: str) -> None:
        """The connection is of no use any more."""
        self._problem = self._problem or problem
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """End it and let go of the socket. Once."""
        self.end("closed")
        while not self.ended.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self.ended])
        self._loop.remove_reader(self._event_fd)
        os.close(self._event_fd)
        self._socket.close()

    # --- of the event loop

    def _on_notified(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event_fd)
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

    # --- of the thread

    def _run(self) -> None:
        try:
            problem = self._follow()
        except (OSError, PyLedgerError) as failure:
            self.disk_refuses = isinstance(failure, StoreError)
            problem = str(failure)
        except BaseException as failure:
            problem = repr(failure)
            raise
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
                self._loop.call_soon_threadsafe(self._finished, problem)

    def _follow(self) -> str:
        """Take what comes until the connection ends; why it did."""
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
        """What was written is stored: now, or when it is on disk where it has to be."""
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
            raise BlockingIOError("a report was cut")
