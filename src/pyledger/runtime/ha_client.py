"""A slave's HA client: takes the master's log, writes it at the end of its own, and reports how far it is.

One connection at a time; when it ends the next is made after a pause. What stands behind the last whole
record is taken back then: the next master may go on differently.

Source: RocketMQ store/.../ha/DefaultHAClient.java.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable

from pyledger.config.ha import HaConfig
from pyledger.errors import PyLedgerError, StoreFailedError
from pyledger.log import event, logger
from pyledger.protocol.ha.master import REPORT
from pyledger.protocol.ha.slave import SlaveConnection, SlaveState
from pyledger.store.message_store import MessageStore
from pyledger.store.replica import StoreReplica

log = logger("ha")

READ_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 3.0


class HaClient:
    """Follows a master from `start` to `close`."""

    def __init__(
        self,
        store: MessageStore,
        config: HaConfig,
        now_ms: Callable[[], int],
        *,
        learn: Callable[[], Awaitable[object]],
        agree: Callable[[], Awaitable[str]],
        grown: Callable[[], None],
    ) -> None:
        """A client that does nothing yet.

        Args:
            store: Takes the log.
            config: The rules.
            now_ms: A clock that never goes back.
            learn: Asks who is master, before each connection; what is found comes to `follow`.
            agree: Why the master's log and this one cannot go on together, asked on each connection before
                anything is said there; empty: they can.
            grown: Told after the log has grown.
        """
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
        while True:
            self._changed.clear()
            problem = await self._follow_once()
            if problem != self.problem:
                event(log, logging.WARNING, "master not followed", master=self._address, problem=problem)
            self.problem = problem
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.reconnect_interval_ms / 1000):
                    await self._changed.wait()

    async def _follow_once(self) -> str:
        """Follow until the connection ends; why it did."""
        connected = None
        try:
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
            link = SlaveLink(connected, self._store, self.replica_machine(), self)
            self.connection, self.problem = link, ""
            event(log, logging.INFO, "master followed", master=self._address, offset=self.replica.end_offset)
            return await link.ended
        except (OSError, TimeoutError) as failure:
            return str(failure) or "no answer in time"
        except PyLedgerError as failure:
            return str(failure)
        finally:
            if self.connection is not None:
                self.connection.close()
                self.connection = None
            elif connected is not None:
                connected.close()
            with contextlib.suppress(StoreFailedError):
                self.replica.cut_partial()

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

    @staticmethod
    async def _connect(address: str) -> socket.socket:
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        connected = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(connected, (host, int(port)))
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


class SlaveLink:
    """One connection to a master: the socket around `SlaveConnection`."""

    def __init__(
        self, connected: socket.socket, store: MessageStore, machine: SlaveConnection, client: HaClient
    ) -> None:
        """Report at once on a connected socket that does not block, then take what comes."""
        self.machine = machine
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the connection ended, when it has."""
        self.last_read_ms = self.last_write_ms = 0
        self.received_bytes = 0
        self._socket = connected
        self._store = store
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._timer: asyncio.TimerHandle | None = None
        self._reading = True
        self._loop.add_reader(connected.fileno(), self._readable)
        self._tick()

    def end(self, problem: str) -> None:
        """The connection is of no use any more."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())
        if not self.ended.done():
            self.ended.set_result(problem)

    def close(self) -> None:
        """Let go of the socket."""
        self.end("closed")
        if self._timer is not None:
            self._timer.cancel()
        self._socket.close()

    def _readable(self) -> None:
        try:
            size = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(str(error))
            return
        if not size:
            self.end("the master closed the connection")
            return
        machine, replica = self.machine, self._client.replica
        self.last_read_ms = self._client.now_ms()
        before = machine.max_offset
        try:
            store_frames(machine, replica, self._buffer[:size], self.last_read_ms)
        except PyLedgerError as problem:
            self.end(str(problem))
            return
        self._client.master_end = machine.master_offset
        if machine.max_offset > before:
            self.received_bytes += machine.max_offset - before
            # The report first: sends wait for it at the master.
            self._settle(replica.whole_offset)
            replica.announce()
            self._client.grown()
        if machine.state is SlaveState.SHUTDOWN:
            self.end(machine.problem)

    def _settle(self, end_offset: int) -> None:
        """Report what was written: now, or when it is on disk where it has to be."""
        flush = self._store.until_durable(end_offset)
        if flush is None:
            self.machine.stored(end_offset)
            self._report(self.last_read_ms)
        else:
            flush.add_done_callback(lambda ended: self._flushed(end_offset, ended))

    def _flushed(self, end_offset: int, flush: "asyncio.Future[bool]") -> None:
        if flush.cancelled() or self.ended.done():
            return
        problem = flush.exception()
        if problem is not None:
            self.end(str(problem))
        elif flush.result():
            self.machine.stored(end_offset)
            self._report(self._client.now_ms())

    def _report(self, now_ms: int) -> None:
        offset = None if self.ended.done() else self.machine.report(now_ms)
        if offset is None:
            return
        try:
            # Eight bytes: the kernel has room for them, or the master has not read for very long.
            if self._socket.send(REPORT.pack(offset)) != REPORT.size:
                self.end("a report was cut")
        except OSError as error:
            self.end(str(error))
        self.last_write_ms = now_ms

    def _tick(self) -> None:
        now_ms = self._client.now_ms()
        self.machine.tick(now_ms)
        if self.machine.state is SlaveState.SHUTDOWN:
            self.end(self.machine.problem)
            return
        self._report(now_ms)
        pause_ms = self.machine.deadline_ms() - self._client.now_ms()
        self._timer = self._loop.call_later(max(1, pause_ms) / 1000, self._tick)
