"""A master's HA service: takes slaves, sends them the log, and tells puts when slaves have it.

Upstream's parts by its names: the accept service is `HaService`, its group transfer service is the machine
`GroupTransfer`, an HA connection is `HaConnection` with its read side and its write side. All of it runs by
events of one loop: nothing waits in a thread, nothing polls.

Source: RocketMQ store/.../ha/DefaultHAService.java, DefaultHAConnection.java, GroupTransferService.java.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

from pyledger.config.ha import HaConfig
from pyledger.errors import ListenError
from pyledger.log import event, logger
from pyledger.protocol.ha.group_transfer import MASTER_ALONE, PUT_OK, GroupTransfer
from pyledger.protocol.ha.master import LogRange, MasterConnection, MasterState, Transfer
from pyledger.protocol.ha.slave import FRAME_HEADER
from pyledger.store.message_store import MessageStore

log = logger("ha")

FRAMES_PER_CALL = 16
"""Frames that go to the kernel at once: half a MiB keeps a turn of the loop short."""
YIELD_BYTES = 256 << 10
YIELD_S = 0.002
"""While sends come, but no more than so many bytes a turn, a slave that catches up pauses so long: it shall
not take from them what the machine has. With more it would never catch up."""
REPORT_BYTES_MAX = 64 << 10
BACKLOG = 64

Admits = Callable[[str], Awaitable[bool]]
"""Whether an address may have the log."""


class SlaveStatus(NamedTuple):
    """What a master knows of a slave in touch."""

    address: str
    ack_offset: int
    """Physical offset (bytes); -1 before its first report."""
    next_offset: int
    """Where the next transfer begins (bytes)."""
    in_sync: bool
    sent_bytes: int
    """Log bytes sent since it came."""


class HaService:
    """Serves slaves from `start` to `close`."""

    def __init__(
        self, store: MessageStore, config: HaConfig, now_ms: Callable[[], int], admits: Admits
    ) -> None:
        """A service that does not listen yet.

        Args:
            store: Whose log is sent.
            config: The rules.
            now_ms: A clock that never goes back.
            admits: Says who may have the log.
        """
        self.store = store
        self.config = config
        self.now_ms = now_ms
        self.transfer = GroupTransfer(config)
        self.connections: dict[int, HaConnection] = {}
        self._admits = admits
        self._numbers = count(1)
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._push_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Port that it listens on; 0 before `start`."""
        return 0 if self._listener is None else int(self._listener.getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            ListenError: the address cannot be had.
        """
        self._loop = asyncio.get_running_loop()
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise ListenError(f"{host}:{port}", error.strerror or str(error)) from error
        listener.setblocking(False)
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._accept)

    async def close(self) -> None:
        """Let all slaves go and end all waits. Idempotent."""
        if self._listener is not None and self._loop is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for connection in tuple(self.connections.values()):
            connection.close("the master stops")
        for task in tuple(self._tasks):
            task.cancel()
        self.transfer.close()
        if self._timer is not None:
            self._timer.cancel()

    # --- puts

    def refusal(self) -> str | None:
        """Why no put may be taken now, in upstream's words; None: it may."""
        return self.transfer.refusal(self.store.max_offset)

    def wait(self, end_offset: int, answer: Callable[[str], None]) -> str | None:
        """Wait until slaves have all below a physical offset (bytes).

        Returns:
            Upstream's word for how that ended where it is known at once. None: `answer` is told, once.
        """
        if self.transfer.wanted_count(end_offset) <= MASTER_ALONE:
            return PUT_OK
        status = self.transfer.wait(end_offset, answer, self.now_ms())
        if status is None:
            self._set_timer()
        return status

    def appended(self) -> None:
        """The log has grown: send it in this turn of the loop, after all else that is to be done in it."""
        if not self._push_due and self.connections:
            assert self._loop is not None
            self._push_due = True
            self._loop.call_soon(self._push_all)

    def _push_all(self) -> None:
        self._push_due = False
        for connection in tuple(self.connections.values()):
            connection.push()

    def _set_timer(self) -> None:
        deadline_ms = self.transfer.deadline_ms()
        if self._timer is None and deadline_ms is not None:
            pause_ms = max(1, deadline_ms - self.now_ms())
            self._timer = asyncio.get_running_loop().call_later(pause_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.transfer.tick(self.now_ms())
        self._set_timer()

    # --- slaves

    def log_range(self) -> LogRange:
        """What slaves may have at this moment."""
        store = self.store
        return LogRange(store.min_offset, store.confirmed_where, store.config.mapped_file_size_bytes)

    def slaves(self) -> list[SlaveStatus]:
        """The slaves in touch."""
        end, gap = self.store.max_offset, self.config.gap_max_bytes
        return [
            SlaveStatus(
                one.peer,
                one.machine.slave_ack_offset,
                one.machine.next_offset,
                one.machine.slave_ack_offset >= 0 and end - one.machine.slave_ack_offset < gap,
                one.sent_bytes,
            )
            for one in self.connections.values()
        ]

    def _accept(self) -> None:
        assert self._listener is not None
        assert self._loop is not None
        try:
            connected, address = self._listener.accept()
        except OSError:
            return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._admit(connected, str(address[0]), int(address[1])))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, connected: socket.socket, host: str, port: int) -> None:
        try:
            admitted = await self._admits(host)
        except BaseException:
            connected.close()
            raise
        if not admitted or self._listener is None:
            connected.close()
            event(log, logging.WARNING, "slave refused: it is neither registered nor configured", peer=host)
            return
        number = next(self._numbers)
        self.connections[number] = HaConnection(self, connected, number, f"{host}:{port}")
        event(log, logging.INFO, "slave connected", peer=f"{host}:{port}")


class HaConnection:
    """One slave in touch."""

    def __init__(self, service: HaService, connected: socket.socket, number: int, peer: str) -> None:
        """Wait for its first report on a connected socket that does not block."""
        self.peer = peer
        self.machine = MasterConnection(service.config, service.now_ms())
        self.sent_bytes = 0
        self._service = service
        self._socket = connected
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._pending: list[memoryview | bytes] = []
        self._writing = self._again = self._closed = False
        self._seen_end = self._grown_bytes = 0
        self._loop.add_reader(connected.fileno(), self._readable)
        self._timer = self._later()

    def close(self, problem: str) -> None:
        """Let the slave go. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        if self._writing:
            self._loop.remove_writer(self._socket.fileno())
        self._pending.clear()
        self._socket.close()
        self._service.connections.pop(self._number, None)
        self._service.transfer.gone(self._number)
        event(log, logging.WARNING, "slave gone", peer=self.peer, problem=problem)

    # --- the read side

    def _readable(self) -> None:
        try:
            data = self._socket.recv(REPORT_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(str(error))
            return
        if not data:
            self.close("it closed the connection")
            return
        service, machine = self._service, self.machine
        progress = machine.receive(data, service.log_range(), service.now_ms())
        if machine.state is MasterState.SHUTDOWN:
            self.close(machine.problem)
        elif progress:
            service.transfer.acknowledged(self._number, machine.slave_ack_offset)
            self.push()

    # --- the write side

    def push(self) -> None:
        """Send what there is, a bounded part of it in one turn of the loop."""
        if self._closed or self._writing:
            return
        if not self._pending:
            self._gather()
        if self._pending:
            self._send()

    def _gather(self) -> None:
        """Frames of the log, as they stand in mapped memory."""
        service, machine = self._service, self.machine
        if machine.next_offset >= service.store.confirmed_where or self._pending:
            return
        range_, view, now_ms = service.log_range(), service.store.log_view(), service.now_ms()
        self._grown_bytes, self._seen_end = range_.end - self._seen_end, range_.end
        while len(self._pending) < 2 * FRAMES_PER_CALL:
            transfer = machine.next_transfer(range_, now_ms)
            if transfer is None:
                break
            self._pending.append(FRAME_HEADER.pack(*transfer))
            self._pending.append(view.view(transfer.offset, transfer.size))
            machine.sent(transfer, now_ms)
            self.sent_bytes += transfer.size

    def _send(self) -> None:
        try:
            sent = self._socket.sendmsg(self._pending)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(str(error))
            return
        done = 0
        for part in self._pending:
            if sent < len(part):
                break
            sent -= len(part)
            done += 1
        del self._pending[:done]
        if self._pending:
            self._pending[0] = memoryview(self._pending[0])[sent:]
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._socket.fileno(), self._writable)
        elif not self._again and self.machine.next_offset < self._service.store.confirmed_where:
            # The rest after all else that is to be done: sends are not held up by a slave that catches up.
            self._again = True
            resume_ms = self.machine.resume_ms
            if resume_ms is not None:
                self._loop.call_later(max(1, resume_ms - self._service.now_ms()) / 1000, self._go_on)
            elif 0 < self._grown_bytes < YIELD_BYTES:
                self._loop.call_later(YIELD_S, self._go_on)
            else:
                self._loop.call_soon(self._go_on)

    def _writable(self) -> None:
        self._writing = False
        self._loop.remove_writer(self._socket.fileno())
        self.push()

    def _go_on(self) -> None:
        self._again = False
        self.push()

    # --- by the clock

    def _later(self) -> asyncio.TimerHandle:
        pause_ms = self.machine.deadline_ms() - self._service.now_ms()
        return self._loop.call_later(max(1, pause_ms) / 1000, self._tick)

    def _tick(self) -> None:
        beat = self.machine.tick(self._service.now_ms())
        if self.machine.state is MasterState.SHUTDOWN:
            self.close(self.machine.problem)
            return
        if beat is not None:
            self._beat(beat)
        self._timer = self._later()

    def _beat(self, beat: Transfer) -> None:
        self.machine.sent(beat, self._service.now_ms())
        if not self._pending:
            self._pending.append(FRAME_HEADER.pack(*beat))
            self._send()
