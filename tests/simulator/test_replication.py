"""A master, slaves, a producer, a consumer, in a world where connections break anywhere and the master dies.

What must hold after every step: a slave's log is a prefix of its master's; what the master believes of a
slave is true; what was acknowledged is on a slave's log, thus on that of the foremost, which takes over; what
a consumer's offset says that it has consumed it has, whoever keeps the offset.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from pyledger.broker.slave_sync import merged_offset
from pyledger.config.ha import HaConfig
from pyledger.protocol.ha.group_transfer import PUT_OK, GroupTransfer
from pyledger.protocol.ha.master import REPORT, LogRange, MasterConnection, MasterState
from pyledger.protocol.ha.slave import FRAME_HEADER, SlaveConnection, SlaveState

FILE_BYTES = 1 << 20
"""More than a world ever writes: all logs begin at 0."""
STEPS = 1500
CONFIG = HaConfig(role="sync_master", transfer_batch_bytes=1024, slave_timeout_ms=500)


@dataclass(eq=False)
class Slave:
    """A slave's log and, while it has one, its connection with what is under way on it."""

    log: bytearray = field(default_factory=bytearray)
    machine: SlaveConnection | None = None
    master: MasterConnection | None = None
    offset: int = 0
    """Of the consumer, in messages, as the slave has it."""
    seen: int | None = None
    """The master's at the last copy."""
    to_slave: bytearray = field(default_factory=bytearray)
    to_master: bytearray = field(default_factory=bytearray)


class World:
    """Everything, played by one random source."""

    def __init__(self, seed: int, slaves: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.log = bytearray()
        self.ends: list[int] = []
        self.transfer = GroupTransfer(CONFIG)
        self.slaves = [Slave() for _ in range(slaves)]
        self.acknowledged = 0
        self.waited = self.cuts = self.deaths = 0
        self.dead = False
        """The master is, and no slave has taken over yet."""
        self.offset = 0
        """The consumer's, in messages, as the master has it."""
        self.consumed: dict[int, bytes] = {}
        """What the consumer has read last at each offset."""
        self.next = 0

    def play(self) -> None:
        actions = [self.put, self.put, self.send, self.send, self.deliver, self.deliver, self.report]
        actions += [self.report, self.receive, self.receive, self.connect, self.tick]
        actions += [self.consume, self.consume, self.copy_offset]
        for _ in range(STEPS):
            self.now_ms += self.random.randrange(20)
            self.random.choice(actions)()
            if self.random.random() < 0.01:
                self.cut(self.random.choice(self.slaves))
            if self.random.random() < 0.004:
                self.die()
            if self.dead and self.random.random() < 0.1:
                self.promote()
            if self.random.random() < 0.01:
                self.restart_consumer()
            self.check()

    # --- what happens

    def put(self) -> None:
        if self.dead:
            return
        self.log += self.random.randbytes(self.random.randrange(1, 300))
        end = len(self.log)
        self.ends.append(end)

        def answer(status: str) -> None:
            self.waited += 1
            if status == PUT_OK:
                self.acknowledged = max(self.acknowledged, end)

        status = self.transfer.wait(end, answer, self.now_ms)
        if status is not None:
            answer(status)

    def range(self) -> LogRange:
        return LogRange(0, len(self.log), FILE_BYTES)

    def connect(self) -> None:
        slave = self.random.choice(self.slaves)
        if slave.machine is None and not self.dead:
            slave.machine = SlaveConnection(CONFIG, len(slave.log), FILE_BYTES, self.now_ms)
            slave.master = MasterConnection(CONFIG, self.now_ms)

    def send(self) -> None:
        slave = self.random.choice(self.slaves)
        if slave.master is None:
            return
        transfer = slave.master.next_transfer(self.range(), self.now_ms)
        if transfer is not None:
            at, size = transfer
            slave.to_slave += FRAME_HEADER.pack(at, size) + self.log[at : at + size]
            slave.master.sent(transfer, self.now_ms)

    def deliver(self) -> None:
        slave = self.random.choice(self.slaves)
        if slave.machine is None or not slave.to_slave:
            return
        size = self.random.randrange(1, 2000)
        chunk = memoryview(bytes(slave.to_slave[:size]))
        del slave.to_slave[:size]
        for piece in slave.machine.take(chunk, self.now_ms):
            assert piece.offset == len(slave.log)
            slave.log += piece.data
        assert slave.machine.state is not SlaveState.SHUTDOWN, slave.machine.describe()
        slave.machine.stored(len(slave.log))

    def report(self) -> None:
        slave = self.random.choice(self.slaves)
        offset = None if slave.machine is None else slave.machine.report(self.now_ms)
        if offset is not None:
            slave.to_master += REPORT.pack(offset)

    def receive(self) -> None:
        number = self.random.randrange(len(self.slaves))
        slave = self.slaves[number]
        if slave.master is None or not slave.to_master:
            return
        size = self.random.randrange(1, 20)
        progress = slave.master.receive(bytes(slave.to_master[:size]), self.range(), self.now_ms)
        del slave.to_master[:size]
        assert slave.master.state is not MasterState.SHUTDOWN, slave.master.describe()
        if progress:
            self.transfer.acknowledged(number, slave.master.slave_ack_offset)

    def tick(self) -> None:
        self.transfer.tick(self.now_ms)

    def cut(self, slave: Slave) -> None:
        """The connection breaks; the slave takes back what is no whole record."""
        if slave.machine is None:
            return
        self.cuts += 1
        slave.machine = slave.master = None
        slave.to_slave.clear()
        slave.to_master.clear()
        whole = max([end for end in self.ends if end <= len(slave.log)], default=0)
        del slave.log[whole:]
        self.transfer.gone(self.slaves.index(slave))

    def die(self) -> None:
        """The master is gone; consumers read at slaves."""
        for slave in self.slaves:
            self.cut(slave)
        self.transfer.close()
        self.transfer = GroupTransfer(CONFIG)
        self.dead = True
        self.deaths += 1

    def promote(self) -> None:
        """The foremost slave takes over, the others and the old master go on from its log."""
        foremost = max(self.slaves, key=lambda slave: len(slave.log))
        assert len(foremost.log) >= self.acknowledged
        self.log = bytearray(foremost.log)
        self.ends = [end for end in self.ends if end <= len(self.log)]
        self.offset = foremost.offset
        # It takes the offsets of the new master for true; its reads beyond the end are led back there.
        foremost.seen = None
        self.dead = False
        self.next = min(self.next, len(self.ends))
        self.check_offsets()

    def message(self, number: int) -> bytes:
        return bytes(self.log[self.ends[number - 1] if number else 0 : self.ends[number]])

    def consume(self) -> None:
        """Read the next message, where there is one, and commit; at a slave while the master is gone."""
        slave = self.random.choice(self.slaves) if self.dead else None
        end = len(self.log) if slave is None else len(slave.log)
        if self.next >= len(self.ends) or self.ends[self.next] > end:
            return
        self.consumed[self.next] = self.message(self.next)
        self.next += 1
        if slave is None:
            self.offset = max(self.offset, self.next)
        else:
            slave.offset = max(slave.offset, self.next)

    def copy_offset(self) -> None:
        """A slave copies the table of its master."""
        slave = self.random.choice(self.slaves)
        if self.dead:
            return
        own_end = sum(end <= len(slave.log) for end in self.ends)
        at_master = min(self.offset, own_end)
        slave.offset = merged_offset(slave.offset, slave.seen, at_master)
        slave.seen = at_master

    def restart_consumer(self) -> None:
        """It asks where to go on."""
        self.next = self.random.choice(self.slaves).offset if self.dead else self.offset

    # --- what must hold

    def check(self) -> None:
        for number, slave in enumerate(self.slaves):
            assert self.log.startswith(slave.log)
            if slave.master is not None:
                assert slave.master.slave_ack_offset <= len(slave.log)
            assert self.transfer.acks.get(number, 0) <= len(slave.log)
        assert max(len(slave.log) for slave in self.slaves) >= self.acknowledged
        for slave in self.slaves:
            assert slave.offset <= len(self.ends)

    def check_offsets(self) -> None:
        """All before an offset was consumed, as it stands in the log."""
        for offset in (self.offset, *(slave.offset for slave in self.slaves)):
            for number in range(offset):
                assert self.consumed[number] == self.message(number)


@pytest.mark.parametrize("slaves", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_acknowledged_is_lost(seed: int, slaves: int) -> None:
    world = World(seed, slaves)
    world.play()
    assert world.acknowledged > 0
    assert world.waited > 100
    assert world.cuts > 0
    world.promote()
    assert world.consumed


def test_the_same_seed_gives_the_same_world() -> None:
    first, second = World(5, 2), World(5, 2)
    first.play()
    second.play()
    assert (first.log, first.acknowledged, first.waited) == (second.log, second.acknowledged, second.waited)
