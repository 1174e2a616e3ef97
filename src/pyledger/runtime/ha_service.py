"""A master's HA service: takes slaves, sends them the log, and tells puts when slaves have it.

Upstream's parts by its names: the accept service is `HaService`, its group transfer service is the machine
`GroupTransfer`, an HA connection is `HaConnection` with its read side and its write side. All of it runs by
events of one loop, but for a slave that is far behind: a thread brings it nearer.

Source: RocketMQ store/.../ha/DefaultHAService.java, DefaultHAConnection.java, GroupTransferService.java.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import NamedTuple

from pyledger.config.ha import HaConfig
from pyledger.errors import ListenError, PyLedgerError
from pyledger.log import event, logger
from pyledger.net.sockets import ACCEPT_PAUSE_S, OUT_OF_RESOURCES, bound_socket, reason_of
from pyledger.protocol.ha.group_transfer import PUT_OK, GroupTransfer
from pyledger.protocol.ha.master import LogRange, MasterConnection, MasterState, Transfer
from pyledger.store.log_sender import LogSender
from pyledger.store.message_store import MessageStore

log = logger("ha")

FOLLOW_BYTES = 2 << 20
"""A slave that is no further behind follows: it gets what is put at once, from the event loop."""
AWAKE_S = 0.0003
ROUND_TRIP_MAX_S = 0.0006
"""So long the loop does not sleep while sends wait for a slave, if it answered sooner the last time: to
fall asleep and to wake up take longer than that, and what comes meanwhile is served all the same."""
CROWDED_S = 0.001
SLEEPS_S = 0.1
"""Who waited so long (s) for a core that it let others have sleeps for so long (s): the kernel lets those who
were asleep go first."""
REPORT_BYTES_MAX = 64 << 10
BACKLOG = 64
ADMISSIONS_MAX = 64
"""Connections that wait at most to be let in; each may cost a question to the name servers."""
STREAMS_MAX = 64
"""Slaves that are brought nearer at a time, each by a thread; more wait for their turn."""

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
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Of its own: those of the loop write tables and flush the log meanwhile.
        self.stream_threads = ThreadPoolExecutor(STREAMS_MAX, "ha-stream")
        self.streams: set[asyncio.Future[int]] = set()
        """Those that run, also of connections that are closed."""
        self.round_trip_s = 0.0
        """How long the last slave took that answered, from a push to its report."""
        self._awake = self._looks = False
        self._awake_until_s = self._sleeps_until_s = 0.0

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
        try:
            self._listener = await bound_socket(host, port, 0)
            self._listener.listen(BACKLOG)
        except OSError as error:
            self._stop_accepting()
            raise ListenError(f"{host}:{port}", reason_of(error)) from error
        self._listen()

    async def close(self) -> None:
        """Let all slaves go and end all waits. Idempotent."""
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

    def refusal(self) -> str | None:
        """Why no put may be taken now, in upstream's words; None: it may."""
        return self.transfer.refusal(self.store.max_offset)

    def wait(self, end_offset: int, answer: Callable[[str], None]) -> str | None:
        """Wait until slaves have all below a physical offset (bytes).

        Returns:
            Upstream's word for how that ended where it is known at once. None: `answer` is told, once.
        """
        if self.config.role != "sync_master":
            return PUT_OK
        status = self.transfer.wait(end_offset, answer, self.now_ms())
        if status is None and self._timer is None:
            self._set_timer()
        return status

    def appended(self) -> None:
        """The log has grown: slaves get it now, or with what else comes in this turn of the loop."""
        if self.connections:
            end, wanted = self.store.confirmed_where, self.transfer.anyone_waits
            for connection in tuple(self.connections.values()):
                connection.log_grew(end, wanted=wanted)
            if wanted:
                self._stay_awake()

    def _stay_awake(self) -> None:
        now_s = time.perf_counter()
        self._awake_until_s = now_s + AWAKE_S
        if not self._awake and self.round_trip_s <= ROUND_TRIP_MAX_S and now_s >= self._sleeps_until_s:
            assert self._loop is not None
            self._awake = True
            self._loop.call_soon(self._look_again)

    def look(self) -> None:
        """Take what slaves have reported."""
        if self._looks:  # who is answered may put again at once
            return
        self._looks = True
        try:
            for connection in tuple(self.connections.values()):
                connection.look()
        finally:
            self._looks = False

    def _look_again(self) -> None:
        self.look()
        now_s = time.perf_counter()
        if self.transfer.anyone_waits and now_s < self._awake_until_s and now_s >= self._sleeps_until_s:
            assert self._loop is not None
            os.sched_yield()
            if time.perf_counter() - now_s > CROWDED_S:
                self._sleeps_until_s = now_s + SLEEPS_S
            self._loop.call_soon(self._look_again)
        else:
            self._awake = False

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
                one.next_offset,
                one.machine.slave_ack_offset >= 0 and end - one.machine.slave_ack_offset < gap,
                one.sent_bytes,
            )
            for one in self.connections.values()
        ]

    def doubt_others(self, newer: "HaConnection") -> None:
        """Connections of one machine may be of one slave, that has lost the older one: it counts once."""
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
        if len(self._tasks) >= ADMISSIONS_MAX:
            connected.close()
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
        self.connections[number] = HaConnection(self, connected, number, host, port)
        event(log, logging.INFO, "slave connected", peer=f"{host}:{port}")


class HaConnection:
    """One slave in touch."""

    def __init__(
        self, service: HaService, connected: socket.socket, number: int, host: str, port: int
    ) -> None:
        """Wait for its first report on a connected socket that does not block."""
        self.host, self.peer = host, f"{host}:{port}"
        self.machine = MasterConnection(service.config, service.now_ms())
        self.sent_bytes = 0
        self._service = service
        self._socket = connected
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._sender = LogSender(connected.fileno(), service.config.transfer_batch_bytes)
        self._stream: asyncio.Future[int] | None = None
        """Of a thread that brings a slave nearer which is far behind."""
        self._writing = self._again = self._due = self._closed = False
        self._pushed_s = 0.0
        self._loop.add_reader(connected.fileno(), self.look)
        self._timer = self._later()

    @property
    def next_offset(self) -> int:
        """Where the next transfer begins (bytes); -1 before the first report."""
        known = self.machine.next_offset
        return known if self._stream is None else max(known, self._sender.next_offset)

    def close(self, problem: str) -> None:
        """Let the slave go. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        if self._writing:
            self._loop.remove_writer(self._socket.fileno())
        self._sender.stop()
        if self._stream is None:
            self._socket.close()
        self._service.connections.pop(self._number, None)
        self._service.transfer.gone(self._number)
        event(log, logging.WARNING, "slave gone", peer=self.peer, problem=problem)

    # --- the read side

    def look(self) -> None:
        """Take what the slave has reported, if anything."""
        if self._closed:
            return
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
        if machine.state is MasterState.READY:
            service.doubt_others(self)
        progress = machine.receive(data, service.log_range(), service.now_ms())
        if machine.state is MasterState.SHUTDOWN:
            self.close(machine.problem)
        elif progress:
            service.round_trip_s = time.perf_counter() - self._pushed_s
            service.transfer.acknowledged(self._number, machine.slave_ack_offset)
            if service.store.confirmed_where > machine.next_offset or self._sender.unfinished:
                self.push()

    # --- the write side

    def log_grew(self, end: int, *, wanted: bool) -> None:
        """The log goes up to a physical offset (bytes) now; `wanted`: somebody waits for this slave.

        One read of a busy sender after the other may come before the loop's next turn: what is enough for a
        frame does not wait for that.
        """
        machine = self.machine
        if machine.state is not MasterState.TRANSFER or self._stream is not None or self._writing:
            return
        if wanted or end - machine.next_offset >= self._service.config.transfer_batch_bytes:
            self.push()
        elif not self._due:
            self._due = True
            self._loop.call_soon(self._push_due)

    def _push_due(self) -> None:
        self._due = False
        self.push()

    def push(self) -> None:
        """Send what there is, a bounded part of it at once."""
        if self._closed or self._stream is not None:
            return
        service, machine, sender = self._service, self.machine, self._sender
        now_ms, start = service.now_ms(), machine.next_offset
        stop = machine.sendable(service.log_range(), now_ms)
        if stop <= start and not sender.unfinished:
            return
        view = service.store.log_view()
        if stop - start > FOLLOW_BYTES:
            self._listen_writable(wanted=False)
            rests = not service.transfer.anyone_waits
            work = partial(sender.stream, view, start, stop, view.files[-1], rests=rests)
            self._stream = self._loop.run_in_executor(service.stream_threads, work)
            service.streams.add(self._stream)
            self._stream.add_done_callback(self._streamed)
            return
        self._pushed_s = time.perf_counter()
        try:
            reached = sender.send(view, start, stop)
        except (OSError, PyLedgerError) as error:
            self.close(str(error))
            return
        self._sent(reached, stop, now_ms)

    def _streamed(self, stream: "asyncio.Future[int]") -> None:
        self._stream = None
        self._service.streams.discard(stream)
        if self._closed:
            self._socket.close()
        elif not stream.cancelled():
            if (error := stream.exception()) is None:
                self._sent(stream.result(), -1, self._service.now_ms())
            else:
                self.close(str(error))

    def _sent(self, reached: int, stop: int, now_ms: int) -> None:
        """Frames up to a physical offset (bytes) went to the kernel, of those up to `stop`; -1: ask again."""
        machine = self.machine
        if reached > machine.next_offset:
            self.sent_bytes += reached - machine.next_offset
            machine.sent_to(reached, now_ms)
        self._listen_writable(wanted=self._sender.blocked)
        if self._writing:
            return
        if reached != stop and not self._again:
            self._again = True
            self._loop.call_soon(self._go_on)
        elif machine.resume_ms is not None and not self._again:
            self._again = True
            pause_ms = max(1, machine.resume_ms - now_ms)
            self._loop.call_later(pause_ms / 1000, self._go_on)

    def _listen_writable(self, *, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._socket.fileno(), self.push)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._socket.fileno())
        self._writing = wanted

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
        if not self._closed:
            self._timer = self._later()

    def _beat(self, beat: Transfer) -> None:
        self.machine.sent(beat, self._service.now_ms())
        if self._stream is None and not self._sender.unfinished:
            try:
                self._sender.beat(beat.offset)
            except OSError as error:
                self.close(str(error))
                return
            self._listen_writable(wanted=self._sender.blocked)
