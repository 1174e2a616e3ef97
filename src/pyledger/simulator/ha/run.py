"""A master, slaves, a producer, a consumer and an operator under faults, then without them.

Connections break at any byte, become silent and are slow; processes are killed or pause; machines lose power
or run out of disk; foreign clients report false offsets. When a master stays away, the operator promotes the
slave with the longest log, and the old master comes back as a slave, with the bytes that only it had.
"""

import struct
from dataclasses import dataclass, replace
from itertools import pairwise

from pyledger.config.ha import HaConfig
from pyledger.protocol.ha.group_transfer import PUT_OK
from pyledger.protocol.ha.master import REPORT
from pyledger.simulator.ha.broker import Fault, Setting, SimulatedBroker
from pyledger.simulator.ha.checks import HaChecks
from pyledger.simulator.ha.log import HEAD, SimulatedLog
from pyledger.simulator.safety import require
from pyledger.simulator.world import Faults, World

TICK_MS = 10
HEAL_MS = 4000
CALM_MS = 3000
NUMBER = struct.Struct(">q")
BODY_BYTES_MAX = 900
KINDS = (
    *("kill", "break", "kill master") * 2,
    "power",
    "silence",
    "stall",
    "full disk",
    "foreign client",
    "blackout",
)
"""The faults; the first three are drawn more often."""


@dataclass
class HaReport:
    """The result of a run."""

    seed: int
    trace: str
    """Hash of all events: equal for equal seeds, on every machine."""
    role: str
    sent: int
    acknowledged: int
    consumed: int
    promotions: int
    deaths: int
    breaks: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.acknowledged} of {self.sent} messages acknowledged ({self.role}), "
            f"{self.consumed} consumed, {self.promotions} promotions, {self.deaths} deaths, "
            f"{self.breaks} links broken, trace {self.trace[:16]}"
        )


def no_fault(_: object) -> None:
    """Build in no bug."""


class HaRun:
    """One run of one seed."""

    def __init__(self, seed: int, brokers: int = 3, *, fault: Fault = no_fault) -> None:
        self.world = World(seed, Faults())
        random = self.world.random
        self.world.faults = replace(
            self.world.faults,
            delay_ms_max=random.choice((2, 10, 60)),
            crash_interval_ms=random.choice((60, 200, 800)),
        )
        self.checks = HaChecks()
        self.sync_flush = random.random() < 0.5
        setting = Setting(
            self.world,
            self._drawn_config(brokers),
            self.sync_flush,
            random.choice((1, 8, 40)),
            self.checks,
            fault,
            lambda: self.master if self.master.up else None,
            self._logs_of_others,
        )
        one_machine = random.random() < 0.5
        self.brokers = [
            SimulatedBroker(setting, f"b{number}", "h" if one_machine else f"h{number}")
            for number in range(brokers)
        ]
        self.master = self.brokers[0]
        self.next = 0
        """The consumer's next queue offset."""
        self.sent = self.promotions = self.deaths = self.breaks = 0
        self.compares_all = True
        """Whether the operator compares all slaves before one is promoted."""
        self.trusts_all = False
        """Whether slaves count that have not connected to this master since they started."""
        fault(self)
        for broker in self.brokers:
            self._start_later(broker, random.randint(0, 100))
        self.world.after(random.randint(100, 300), self.produce)
        self.world.after(random.randint(100, 300), self.consume)
        self.world.after(random.randint(100, 600), self.inject_fault)
        self.world.after(random.randint(100, 600), self.operate)

    def _drawn_config(self, brokers: int) -> HaConfig:
        random = self.world.random
        wanted = random.randint(2, brokers) if brokers > 1 else 2
        least = random.randint(1, wanted)
        way = random.choice(("fixed", "fixed", "auto", "all"))
        return HaConfig(
            role="sync_master",
            transfer_batch_bytes=random.choice((1024, 4096)),
            heartbeat_interval_ms=100,
            silence_max_ms=400,
            slave_timeout_ms=300,
            in_sync_replicas=wanted,
            # With one in-sync broker an acknowledgement would promise nothing.
            in_sync_replicas_min=least if way == "fixed" else max(2, least),
            auto_in_sync_replicas=way == "auto",
            all_in_sync_replicas=way == "all",
            gap_max_bytes=random.choice((4096, 1 << 28)),
        )

    def _logs_of_others(self, broker: SimulatedBroker) -> list[SimulatedLog]:
        return [one.log for one in self.brokers if one is not broker]

    # --- producer, consumer and operator

    def produce(self) -> None:
        """Send a message to the master that name servers report, and plan the next one."""
        world, random = self.world, self.world.random
        if world.calm:
            return
        if self.master.up:
            self.sent += 1
            number, master = self.sent, self.master
            body = NUMBER.pack(number) + random.randbytes(random.randint(0, BODY_BYTES_MAX))

            def arrive() -> None:
                if master.is_master and master.runs(arrive):
                    master.put(number, body, self._answered)

            world.after(random.randint(1, world.faults.delay_ms_max), arrive)
        world.after(random.randint(1, 40), self.produce)

    def _answered(self, status: str, number: int) -> None:
        if status != PUT_OK:
            self.world.note(f"message {number} {status}")

    def consume(self) -> None:
        """Read the next message, from a slave while the master is away, and commit the offset there."""
        random = self.world.random
        up = self._readable()
        broker = random.choice(up) if up else None
        if random.random() < 0.02:
            self.restart_consumer()
        elif broker is not None and self.next < broker.log.count_before(broker.confirmed_end):
            self.checks.consumed[self.next] = broker.log.message(self.next)
            self.next += 1
            broker.offset = max(broker.offset, self.next)
        self.world.after(random.randint(1, 20), self.consume)

    def restart_consumer(self) -> None:
        """Restart the consumer at the offset that a broker returns."""
        if up := self._readable():
            self.next = self.world.random.choice(up).offset

    def _readable(self) -> list[SimulatedBroker]:
        """Brokers to read from: the master or, while it is away, the slaves that have compared their logs."""
        if self.master.up:
            return [self.master]
        return [one for one in self.brokers if one.up and one.followed_reign == self.master.reign]

    def operate(self) -> None:
        """Replace a master that is down, at times; otherwise it restarts by itself."""
        random = self.world.random
        if not self.master.up and random.random() < 0.5:
            self.promote()
        self.world.after(random.randint(50, 400), self.operate)

    def promote(self) -> None:
        """Promote the slave with the longest log, if all slaves can be compared."""
        slaves = [one for one in self.brokers if one is not self.master]
        reign = self.master.reign
        known = [one for one in slaves if one.up and (self.trusts_all or one.followed_reign == reign)]
        if not known or (self.compares_all and len(known) < len(slaves)):
            return
        chosen = max(known, key=lambda one: one.log.end) if self.compares_all else known[0]
        self.promotions += 1
        chosen.stop(power=False)
        self.master = chosen
        chosen.reign = self.promotions
        self.world.note(f"{chosen.name} is promoted")
        chosen.start(is_master=True)
        if self.next > len(chosen.log.ends):
            # It has read messages that are lost; others get their offsets: see docs/protocols/ha.md.
            self.restart_consumer()

    # --- faults

    def inject_fault(self) -> None:
        """Inject a random fault."""
        world, random = self.world, self.world.random
        if world.healed:
            return
        kind, broker = random.choice(KINDS), random.choice(self.brokers)
        world.note(f"fault {kind} {broker.name}")
        if kind in ("kill", "kill master", "power"):
            self._end(self.master if kind == "kill master" else broker, power=kind == "power")
        elif kind == "blackout":
            for one in self.brokers if random.random() < 0.3 else ():
                self._end(one, power=True)
        elif kind == "stall":
            broker.paused_until_ms = world.now_ms + random.choice((30, 300, 1000))
        elif kind == "full disk":
            self._fill_disk(broker)
        elif kind == "foreign client" and self.master.up:
            self._report_false_offsets(self.master)
        elif broker.link is not None:
            self.breaks += 1
            broker.link.silent = kind == "silence"
            if kind == "break":
                broker.link.close_slave("broken")
        world.after(random.randint(1, 2 * world.faults.crash_interval_ms), self.inject_fault)

    def _end(self, broker: SimulatedBroker, *, power: bool) -> None:
        """Stop a process or a machine, and plan its restart."""
        if not broker.up:
            return
        self.deaths += 1
        # Without sync flush an acknowledgement does not cover a power failure.
        broker.stop(power=power and self.sync_flush)
        random = self.world.random
        self._start_later(broker, random.choice((5, 100, 1500)) + random.randint(0, 300))

    def _start_later(self, broker: SimulatedBroker, delay_ms: int) -> None:
        def start() -> None:
            if not broker.up:
                broker.start(is_master=broker is self.master)

        self.world.after(delay_ms, start)

    def _fill_disk(self, broker: SimulatedBroker) -> None:
        if broker is self.master:
            return
        broker.disk_full = True

        def freed() -> None:
            broker.disk_full = False

        self.world.after(self.world.random.randint(50, 600), freed)

    def _report_false_offsets(self, master: SimulatedBroker) -> None:
        """Connect a client that is not a slave and reports false offsets."""
        link = master.accept(master)
        random = self.world.random
        link.slave_open = False
        end = link.log_range().end
        for offset in (0, random.choice((-1, end + 1, end + random.randint(1, 5000)))):
            link.take_reports(REPORT.pack(offset))
        link.close_master("the foreign client leaves")

    # --- the whole run

    def run(self, ticks: int) -> HaReport:
        """Run `ticks` of 10 ms with faults, then a healed world."""
        world = self.world
        world.run(ticks * TICK_MS)
        world.healed = True
        world.note("healed")
        for broker in self.brokers:
            broker.disk_full, broker.paused_until_ms = False, 0
        world.run(HEAL_MS)
        acknowledged = len(self.checks.acknowledged)
        world.run(HEAL_MS)
        if len(self.brokers) > 1:
            require(len(self.checks.acknowledged) > acknowledged, "a healed pair acknowledges", acknowledged)
        world.calm = True
        world.run(CALM_MS)
        self._check_end()
        return HaReport(
            world.seed,
            world.digest.hexdigest(),
            "sync flush" if self.sync_flush else "async flush",
            self.sent,
            len(self.checks.acknowledged),
            len(self.checks.consumed),
            self.promotions,
            self.deaths,
            self.breaks,
        )

    def _check_end(self) -> None:
        log = self.master.log
        self.checks.leads(self.master.name, log)
        for broker in self.brokers:
            require(broker.log.data == log.data, "slaves of a healed master have all of its log", broker.name)
        numbers = [NUMBER.unpack_from(log.data, at + HEAD.size)[0] for at, _ in pairwise([0, *log.ends])]
        require(len(set(numbers)) == len(numbers), "no message is stored twice", len(numbers))
        require(self.next == len(log.ends), "all that is stored is consumed", self.next)
        self.checks.consumed_before(self.master.name, self.master.offset, log)
