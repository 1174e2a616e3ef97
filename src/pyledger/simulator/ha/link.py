"""One connection between a master and a slave, with the bytes in flight."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from pyledger.config.ha import HaConfig
from pyledger.protocol.ha.master import REPORT, LogRange, MasterConnection, MasterState
from pyledger.protocol.ha.slave import FRAME_HEADER, SlaveConnection, SlaveState
from pyledger.simulator.ha.log import SimulatedLog
from pyledger.simulator.world import World

FILE_BYTES = 1 << 24
"""More than a run ever writes, so that an empty slave begins at offset 0."""
POLL_INTERVAL_MS = 20
PIECE_BYTES_MAX = 3000


class Broker(Protocol):
    """The broker at either end of a link."""

    name: str
    config: HaConfig
    world: World
    log: SimulatedLog

    @property
    def confirmed_end(self) -> int:
        """End of what slaves may read (bytes)."""
        ...

    def runs(self, action: Callable[[], None]) -> bool:
        """Return whether the process runs now; a paused one runs the action later."""
        ...

    def write(self, link: "Link", data: memoryview) -> bool:
        """Append bytes of the master; return False when the disk is full."""
        ...

    def slave_came(self, link: "Link") -> None:
        """Handle the first bytes of a slave."""
        ...

    def slave_reported(self, link: "Link", offset: int) -> None:
        """Take the physical offset (bytes) that a slave reported."""
        ...

    def slave_gone(self, link: "Link") -> None:
        """Forget the closed connection of a slave."""
        ...

    def link_ended(self, link: "Link") -> None:
        """Handle the end of the connection to the master."""
        ...


class Link:
    """Carries bytes both ways, in order, until it breaks or becomes silent."""

    def __init__(self, number: int, master: Broker, slave: Broker) -> None:
        self.number, self.master, self.slave = number, master, slave
        self.world = master.world
        config, now_ms = master.config, self.world.now_ms
        self.master_side = MasterConnection(config, now_ms)
        self.slave_side = SlaveConnection(config, slave.log.end, FILE_BYTES, now_ms)
        self.silent = False
        """No byte arrives, and neither side is notified."""
        self.master_open = self.slave_open = True
        self._arrival_ms = {True: 0, False: 0}
        self._in_flight: dict[bool, deque[bytes]] = {True: deque(), False: deque()}

    def start(self) -> None:
        """Report the slave's offset, and pass the time to both sides at intervals."""
        self._poll()

    # --- the master's side

    def log_range(self) -> LogRange:
        """The range of the log that the slave may read."""
        return LogRange(0, self.master.confirmed_end, FILE_BYTES)

    def push(self) -> None:
        """Send all that the slave may have now."""
        while self.master_open:
            transfer = self.master_side.next_transfer(self.log_range(), self.world.now_ms)
            if transfer is None:
                return
            data = bytes(self.master.log.data[transfer.offset : transfer.offset + transfer.size])
            self.master_side.sent(transfer, self.world.now_ms)
            self._carry(FRAME_HEADER.pack(*transfer) + data, to_slave=True)

    def take_reports(self, data: bytes) -> None:
        """Take bytes of a slave, or of a client that claims to be one."""
        side = self.master_side
        if side.state is MasterState.READY:
            self.master.slave_came(self)
        progress = side.receive(data, self.log_range(), self.world.now_ms)
        if side.state is MasterState.SHUTDOWN:
            self.close_master(side.problem)
        elif progress:
            self.master.slave_reported(self, side.slave_ack_offset)
            self.push()

    def close_master(self, problem: str) -> None:
        """Close the master's side. Idempotent."""
        if self.master_open:
            self.master_open = False
            self.world.note(f"{self.master.name} closes link {self.number}: {problem}")
            self.master.slave_gone(self)
            if not self.silent:
                self.world.after(self._delay_ms(), lambda: self.close_slave("closed by the master"))

    # --- the slave's side

    def take_frames(self, chunk: bytes) -> None:
        """Take bytes of the master."""
        if not self.slave_open:
            return
        side, slave = self.slave_side, self.slave
        for piece in side.take(memoryview(chunk), self.world.now_ms):
            if not slave.write(self, piece.data):
                self.close_slave("no space")
                return
        if side.state is SlaveState.SHUTDOWN:
            self.close_slave(side.problem)

    def report(self) -> None:
        """Report the slave's offset, if it has changed."""
        offset = self.slave_side.report(self.world.now_ms) if self.slave_open else None
        if offset is not None:
            self._carry(REPORT.pack(offset), to_slave=False)

    def close_slave(self, problem: str) -> None:
        """Close the slave's side, which removes an incomplete record. Idempotent."""
        if self.slave_open:
            self.slave_open = False
            self.world.note(f"{self.slave.name} closes link {self.number}: {problem}")
            self.slave.link_ended(self)
            if not self.silent:
                self.world.after(self._delay_ms(), lambda: self.close_master("closed by the slave"))

    # --- the network

    def _poll(self) -> None:
        now_ms = self.world.now_ms
        if self.master_open and self.master.runs(self._tick_master):
            self._tick_master()
        if self.slave_open and self.slave.runs(self._tick_slave):
            self._tick_slave()
        if self.master_open or self.slave_open:
            self.world.after(POLL_INTERVAL_MS + now_ms % 7, self._poll)

    def _tick_master(self) -> None:
        beat = self.master_side.tick(self.world.now_ms)
        if self.master_side.state is MasterState.SHUTDOWN:
            self.close_master(self.master_side.problem)
        elif beat is not None:
            self.master_side.sent(beat, self.world.now_ms)
            self._carry(FRAME_HEADER.pack(*beat), to_slave=True)

    def _tick_slave(self) -> None:
        self.slave_side.tick(self.world.now_ms)
        if self.slave_side.state is SlaveState.SHUTDOWN:
            self.close_slave(self.slave_side.problem)
        else:
            self.report()

    def _carry(self, data: bytes, *, to_slave: bool) -> None:
        random, at = self.world.random, 0
        while at < len(data):
            size = random.randint(1, PIECE_BYTES_MAX) if random.random() < 0.3 else PIECE_BYTES_MAX
            piece = data[at : at + size]
            at += size
            arrival_ms = max(self.world.now_ms + self._delay_ms(), self._arrival_ms[to_slave])
            self._arrival_ms[to_slave] = arrival_ms
            self._in_flight[to_slave].append(piece)
            arrive = self._frames_arrive if to_slave else self._reports_arrive
            self.world.after(arrival_ms - self.world.now_ms, arrive)

    def _frames_arrive(self) -> None:
        if self.slave_open and not self.silent and self.slave.runs(self._frames_arrive):
            self.take_frames(self._in_flight[True].popleft())

    def _reports_arrive(self) -> None:
        if self.master_open and not self.silent and self.master.runs(self._reports_arrive):
            self.take_reports(self._in_flight[False].popleft())

    def _delay_ms(self) -> int:
        faults = self.world.faults
        return self.world.random.randint(1, 5 if self.world.healed else faults.delay_ms_max)
