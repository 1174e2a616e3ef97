"""A master's connection to one slave: its read side and its write side, on the event loop.

A thread serves a slave with a large lag.

Source: RocketMQ store/.../ha/DefaultHAConnection.java.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Protocol

from pyledger.config.ha import HaConfig
from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.protocol.ha.group_transfer import GroupTransfer
from pyledger.protocol.ha.master import LogRange, MasterConnection, MasterState, Transfer
from pyledger.store.messages.replica import LogSender, part_of_view
from pyledger.store.messages.store_engine import StoreEngine

log = logger("ha")

FOLLOW_BYTES = 2 << 20
"""Largest lag at which the event loop sends new records to a slave directly."""
REPORT_BYTES_MAX = 64 << 10
STREAM_BYTES_MAX = 1 << 30
"""Bytes of the log that a thread sends with one view: deleted files stay on disk while a view has them."""


class ConnectionOwner(Protocol):
    """What a connection needs of the service that accepted it."""

    store: StoreEngine
    config: HaConfig
    now_ms: Callable[[], int]
    transfer: GroupTransfer
    connections: "dict[int, HaConnection]"
    stream_threads: Executor
    streams: set[asyncio.Future[int]]
    """Running threads, including those of closed connections."""

    def log_range(self) -> LogRange:
        """Return the range of the log that slaves may have now."""

    def doubt_others(self, newer: "HaConnection") -> None:
        """Note a new connection that may belong to the slave of an older one."""

    def left(self, host: str) -> None:
        """Note that a connection of an address is closed."""


class HaConnection:
    """One connected slave."""

    def __init__(
        self, service: ConnectionOwner, connected: socket.socket, number: int, host: str, port: int
    ) -> None:
        """Wait for its first report on a connected non-blocking socket."""
        self.host, self.peer = host, f"{host}:{port}"
        self.machine = MasterConnection(service.config, service.now_ms())
        self.sent_bytes = 0
        self._service = service
        self._socket = connected
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._sender = LogSender(connected.fileno(), service.config.transfer_batch_bytes)
        self._stream: asyncio.Future[int] | None = None
        """Result of the thread that serves a slave with a large lag."""
        self._writing = self._again = self._due = self._closed = False
        self._loop.add_reader(connected.fileno(), self.read_reports)
        self._timer = self._later()

    @property
    def next_offset(self) -> int:
        """Physical offset (bytes) at which the next transfer starts; -1 before the first report."""
        known = self.machine.next_offset
        return known if self._stream is None else max(known, self._sender.next_offset)

    def close(self, problem: str) -> None:
        """Close the connection. Idempotent."""
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
        self._service.left(self.host)
        self._service.transfer.gone(self._number)
        event(log, logging.WARNING, "slave gone", peer=self.peer, problem=problem)

    # --- the read side

    def read_reports(self) -> None:
        """Process the slave's reports that have arrived."""
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
            service.transfer.acknowledged(self._number, machine.slave_ack_offset)
            if service.store.confirmed_where > machine.next_offset or self._sender.unfinished:
                self.push()

    # --- the write side

    def log_grew(self, end: int, *, wanted: bool) -> None:
        """Note that the log has grown to a physical offset (bytes); `wanted`: a put waits for this slave.

        Several reads of a busy sender may precede the loop's next iteration; a full frame does not wait for
        it.
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
        """Send the pending part of the log, up to a limit."""
        if self._closed or self._stream is not None:
            return
        service, machine, sender = self._service, self.machine, self._sender
        now_ms, start = service.now_ms(), machine.next_offset
        stop = machine.sendable(service.log_range(), now_ms)
        if stop <= start and not sender.unfinished:
            return
        view = service.store.log_view()
        if stop - start > FOLLOW_BYTES:
            stop = min(stop, start + STREAM_BYTES_MAX)
            last = view.files[-1]
            view = part_of_view(view, start - service.config.transfer_batch_bytes, stop)
            self._listen_writable(wanted=False)
            rests = not service.transfer.anyone_waits
            work = partial(sender.stream, view, start, stop, last, rests=rests)
            self._stream = self._loop.run_in_executor(service.stream_threads, work)
            service.streams.add(self._stream)
            self._stream.add_done_callback(self._streamed)
            return
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
        """Note that frames up to a physical offset (bytes) were sent of those up to `stop`; -1: again."""
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
        waits = self._stream is not None or self._writing
        beat = self.machine.tick(self._service.now_ms(), self.next_offset if waits else None)
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
