"""One simulated broker: its log and disk, its role, and the state machines of HA."""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from pyledger.config.ha import HaConfig
from pyledger.protocol.ha.group_transfer import PUT_OK, GroupTransfer
from pyledger.protocol.ha.log_divergence import TailSearch
from pyledger.protocol.ha.slave import merged_offset
from pyledger.simulator.ha.checks import Acknowledged, HaChecks
from pyledger.simulator.ha.link import Link
from pyledger.simulator.ha.log import SimulatedLog
from pyledger.simulator.world import World

TICK_MS = 10
COPY_INTERVAL_MS = 60

Fault = Callable[[object], None]
"""Builds a bug into a broker or a link."""
Answer = Callable[[str, int], None]
"""Called with the result of a send, as upstream names it, and the number of the message."""


class Setting(NamedTuple):
    """What all brokers of a run share."""

    world: World
    config: HaConfig
    sync_flush: bool
    flush_ms_max: int
    checks: HaChecks
    fault: Fault
    master: Callable[[], "SimulatedBroker | None"]
    """The broker that name servers report as the master, if it is up."""
    logs_of_others: Callable[["SimulatedBroker"], list[SimulatedLog]]


class SimulatedBroker:
    """A broker that may be killed, lose power, pause, run out of disk and change its role."""

    def __init__(self, setting: Setting, name: str, host: str) -> None:
        self.setting, self.name, self.host = setting, name, host
        self.world, self.config = setting.world, setting.config
        self.log = SimulatedLog()
        self.up = self.is_master = self.disk_full = False
        self.life = 0
        self.paused_until_ms = 0
        self.offset = self.stored_offset = 0
        """Of the consumer, in messages: in memory, and on disk."""
        self.seen: int | None = None
        """The master's consumer offset at the last copy."""
        self.reign = 0
        """Of a master: the number of promotions before it."""
        self.followed_reign: int | None = None
        """Of a slave: the reign of the master whose log it has compared with its own since it started."""
        self.links: list[Link] = []
        self.link: Link | None = None
        """The connection of a slave to its master."""
        self.transfer = GroupTransfer(self.config)
        self.compares = self.takes_back = True
        """Whether it compares the ends of logs, and removes an incomplete record at the end."""
        self._numbers = count(1)
        self._flushing = False

    # --- start and stop

    def start(self, *, is_master: bool) -> None:
        """Start a process."""
        self.up, self.is_master = True, is_master
        self.life += 1
        self.links, self.link, self.seen, self.followed_reign = [], None, None, None
        self.transfer = GroupTransfer(self.config)
        self.disk_full = self._flushing = False
        self.paused_until_ms = 0
        # The page cache keeps what a killed process wrote; it is flushed before anything else.
        self.log.truncate(self.log.whole_end)
        self.log.durable_end = self.log.end
        self.offset = min(self.stored_offset, len(self.log.ends))
        self.world.note(f"{self.name} starts as {'master' if is_master else 'slave'} at {self.log.end}")
        self.setting.fault(self)
        if is_master:
            self.setting.checks.leads(self.name, self.log)
            self.setting.checks.consumed_before(self.name, self.offset, self.log)
        else:
            self._later(self._connect)
            self._later(self._copy)
        self._later(self._tick)

    def stop(self, *, power: bool) -> None:
        """Stop the process by a kill, or by a power failure of its machine."""
        self.up = False
        self.life += 1
        self.world.note(f"{self.name} {'loses power' if power else 'is killed'} at {self.log.end}")
        for link in (*self.links, *([self.link] if self.link else [])):
            link.silent = link.silent or power
            link.close_slave("gone") if link.slave is self else link.close_master("gone")
        if power:
            self.log.lose_power(self.world.random)
        self.stored_offset = self.world.random.choice((self.offset, min(self.stored_offset, self.offset)))

    def runs(self, action: Callable[[], None]) -> bool:
        """Return whether the process runs now; a paused one runs the action when it continues."""
        pause_ms = self.paused_until_ms - self.world.now_ms
        if self.up and pause_ms > 0:
            self.world.after(pause_ms, action)
        return self.up and pause_ms <= 0

    def _later(self, action: Callable[[], None], delay_ms: int = 1) -> None:
        life = self.life

        def act() -> None:
            if self.life == life and self.runs(act):
                action()

        self.world.after(delay_ms, act)

    def _tick(self) -> None:
        self.transfer.tick(self.world.now_ms)
        self._later(self._tick, TICK_MS)

    # --- the disk

    @property
    def confirmed_end(self) -> int:
        """End of what slaves and consumers may read (bytes): with sync flush, of what is on disk."""
        return self.log.durable_end if self.setting.sync_flush else self.log.whole_end

    def _flush(self, then: Callable[[], None]) -> None:
        end = self.log.whole_end

        def done() -> None:
            self.log.durable_end = max(self.log.durable_end, min(end, self.log.end))
            then()

        self._later(done, self.world.random.randint(1, self.setting.flush_ms_max))

    # --- the master

    def put(self, number: int, body: bytes, answer: Answer) -> None:
        """Store a message, and answer when the required number of brokers has it."""
        rejection = self.transfer.rejection(self.log.end)
        if rejection is not None:
            answer(rejection, number)
            return
        offset = self.log.end
        end = self.log.put(body)
        wanted = self.transfer.wanted_count(end) - 1
        done: list[str] = []

        def part_done(status: str) -> None:
            done.append(status)
            if len(done) == 2:
                if done == [PUT_OK, PUT_OK]:
                    others = self.setting.logs_of_others(self)
                    one = Acknowledged(number, offset, self.log.record_at(offset))
                    self.setting.checks.acknowledge(one, others, wanted)
                answer(next((one for one in done if one != PUT_OK), PUT_OK), number)

        def flushed() -> None:
            part_done(PUT_OK)
            self.push()

        if self.setting.sync_flush:
            self._flush(flushed)
        else:
            self.log.durable_end = end
            part_done(PUT_OK)
        status = self.transfer.wait(end, part_done, self.world.now_ms)
        if status is not None:
            part_done(status)
        self.push()

    def push(self) -> None:
        """Send new bytes to the slaves."""
        for link in tuple(self.links):
            link.push()

    def accept(self, slave: "SimulatedBroker") -> Link:
        """Accept the connection of a slave."""
        link = Link(next(self._numbers), self, slave)
        self.links.append(link)
        self.setting.fault(link)
        return link

    def slave_came(self, link: Link) -> None:
        """Handle the first bytes of a slave: older connections from its machine may be its own."""
        for one in self.links:
            if one is not link and self.host_of(one) == self.host_of(link):
                self.transfer.doubt(one.number, one.master_side.next_offset)

    def host_of(self, link: Link) -> str:
        """The address of a slave's machine."""
        assert isinstance(link.slave, SimulatedBroker)
        return link.slave.host

    def slave_reported(self, link: Link, offset: int) -> None:
        """Take the physical offset (bytes) that a slave reported."""
        if link.slave is not self:
            self.setting.checks.known(link.slave.name, offset, link.slave.log)
        self.transfer.acknowledged(link.number, offset)

    def slave_gone(self, link: Link) -> None:
        """Forget the closed connection of a slave."""
        self.transfer.gone(link.number)
        if link in self.links:
            self.links.remove(link)

    # --- the slave

    def _connect(self) -> None:
        """Connect to the master, truncate the log where it diverges, then report its end."""
        master = self.setting.master()
        if self.link is None and master is not None and self.may_report:
            if self.compares:
                self._agree(master.log)
            self.link = master.accept(self)
            self.followed_reign = master.reign
            self.world.note(f"{self.name} follows {master.name} from {self.log.end}")
            self.setting.checks.prefix(self.name, self.log, master.log)
            self.setting.checks.consumed_before(self.name, self.offset, self.log)
            self.link.start()
        self._later(self._connect, self.world.random.randint(10, 60))

    @property
    def may_report(self) -> bool:
        """Whether the whole log is on disk: the first report of a connection acknowledges it."""
        return self.log.durable_end == self.log.end

    def _agree(self, master: SimulatedLog) -> None:
        """Truncate the log at its divergence from the master's."""
        starts = [0, *self.log.ends[:-1]] if self.log.ends else []
        if not starts or self._is_same(master, starts[-1]):
            return
        search = TailSearch(starts)
        while (offset := search.next_offset) is not None:
            search.answer(self._is_same(master, offset))
        last = search.last_common
        end = 0 if last is None else last + len(self.log.record_at(last))
        self.world.note(f"{self.name} truncates {self.log.end} to {end}")
        self.log.truncate(end)
        self.offset = min(self.offset, len(self.log.ends))

    def _is_same(self, master: SimulatedLog, offset: int) -> bool:
        return self.log.record_at(offset) == master.record_at(offset)

    def write(self, link: Link, data: memoryview) -> bool:
        """Append bytes of the master; return False when the disk is full."""
        if self.disk_full:
            return False
        self.log.write(data)
        self.setting.checks.prefix(self.name, self.log, link.master.log)
        end = self.log.whole_end
        if self.setting.sync_flush:
            self._flush(lambda: self._stored(link, end))
        else:
            self.log.durable_end = end
            self._stored(link, end)
        return True

    def _stored(self, link: Link, end: int) -> None:
        if link.slave_open:
            link.slave_side.stored(end)
            link.report()

    def link_ended(self, link: Link) -> None:
        """Handle the end of the connection to the master."""
        if self.takes_back:
            self.log.truncate(self.log.whole_end)
        if self.link is link:
            self.link = None

    # --- the consumer's offset

    def _copy(self) -> None:
        """Copy the master's consumer offset, up to the end of this log."""
        master = self.setting.master()
        if master is not None and self.link is not None and self.link.master is master:
            at_master = self.bound(master.offset)
            self.offset = merged_offset(self.offset, self.seen, at_master)
            self.seen = at_master
        self._later(self._copy, COPY_INTERVAL_MS)

    def bound(self, offset: int) -> int:
        """Limit a queue offset of the master to the end of the slave's queue."""
        return min(offset, len(self.log.ends))
