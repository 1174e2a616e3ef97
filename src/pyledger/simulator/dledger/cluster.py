"""A DLedger group under faults, then without them, when it must make progress.

Frames are lost, duplicated, delayed and reordered; links fail; members crash and lose pages; disks are slow
and damage entries; clocks drift and are set.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyledger.config.dledger import DLedgerConfig
from pyledger.protocol.dledger.messages import (
    NO_INDEX,
    AppendEntryRequest,
    AppendEntryResponse,
    LeadershipTransferRequest,
    ReadIndexRequest,
    ReadIndexResponse,
    Response,
)
from pyledger.simulator.dledger.checks import DLedgerChecks
from pyledger.simulator.dledger.leader_faults import LeaderFaults
from pyledger.simulator.dledger.member import DLedgerMember, Fault
from pyledger.simulator.safety import require
from pyledger.simulator.world import Faults, Network, World

TICK_MS = 10
HEAL_MS = 6000
"""Time in which a healed group must make progress; doubled when members start late or find damage."""
CALM_MS = 1000
CLIENTS = 3
OPERATION_TIMEOUT_MS = 1500

KINDS: tuple[str, ...] = (
    *("crash", "disconnect", "isolate") * 2,
    "reconnect",
    "jump",
    "damage",
    "transfer",
    "power",
)
"""The faults of most runs; the first three are drawn more often."""
LEADER_FAULTS_EVERY = 5
"""In one of 5 runs leaders are the target: seeds 4, 9, 14 and so on."""
KINDS_BESIDE_LEADER_FAULTS = (("crash", "damage", "jump", "transfer"), ("transfer",))
"""Faults besides `LeaderFaults`, which disconnects links. Without crashes, members get very old responses."""
DISK_FAULTS_EVERY, DISK_FAULTS_AT = 10, 3
"""In one of 10 runs disks have more faults: the seeds that end with 3."""
KINDS_WITH_DISK_FAULTS = (*KINDS, *("full", "error", "term", "damage") * 2)
"""The faults of these runs: a full disk for a while, a write that fails halfway, a lost term file."""

CONFIG = DLedgerConfig(
    heart_beat_time_interval_ms=200,
    max_heart_beat_leak=3,
    heart_beat_jitter_ms=100,
    min_vote_interval_ms=40,
    max_vote_interval_ms=200,
    vote_wait_ms=400,
    rpc_timeout_ms=1000,
    max_push_time_out_ms=400,
    commit_push_interval_ms=150,
    dispatcher_pause_ms=100,
    max_batch_push_entries=4,
    max_pending_pushes=8,
    max_wait_ack_time_ms=1200,
    leadership_transfer_wait_timeout_ms=300,
)


@dataclass
class Report:
    """The result of a run."""

    seed: int
    trace: str
    """Hash of all events: equal for equal seeds, on every machine."""
    terms: int
    committed: int
    acknowledged: int
    reads: int
    crashes: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.committed} entries in {self.terms} terms, {self.acknowledged} acknowledged, "
            f"{self.reads} reads, {self.crashes} crashes, trace {self.trace[:16]}"
        )


class Client:
    """Appends and reads, one operation at a time; never retries one whose outcome is unknown."""

    def __init__(self, group: "DLedgerGroup", number: int) -> None:
        self.group, self.number, self.count, self.operation = group, number, 0, 0
        self.target = number % len(group.names)

    def act(self) -> None:
        """Begin the next operation."""
        group, world = self.group, self.group.world
        if world.calm:
            return
        self.operation += 1
        operation, known = self.operation, group.checks.highest_known
        name = group.names[self.target]
        if world.random.random() < 0.25:
            request: ReadIndexRequest | AppendEntryRequest = ReadIndexRequest(group="g", remote_id=name)
            bodies: tuple[bytes, ...] = ()
        else:
            many = world.random.randint(1, 3)
            bodies = tuple(f"{self.number}.{self.count + i}".encode() for i in range(many))
            self.count += many
            batch = bodies if many > 1 else None
            request = AppendEntryRequest(group="g", remote_id=name, body=bodies[0], batch_msgs=batch)
        member = group.members[name]
        life = member.life

        def reply(response: Response) -> None:
            group.network.send(name, self.number, lambda: self.answered(operation, known, bodies, response))

        group.network.send(self.number, name, lambda: member.receive(life, reply, request))
        world.after(group.election_timeout_ms, lambda: self.give_up(operation))

    def answered(self, operation: int, known: int, bodies: tuple[bytes, ...], response: Response) -> None:
        """Check a response, even a late one, then continue with the next operation."""
        checks = self.group.checks
        if isinstance(response, AppendEntryResponse) and response.code == 200:
            checks.appended(response.index, bodies[-1], known)
            self.group.appended_ms = self.group.world.now_ms
        elif isinstance(response, ReadIndexResponse) and response.code == 200:
            checks.read(response.index, known)
            self.group.reads += 1
        elif operation == self.operation and response.leader_id in self.group.names:
            self.target = self.group.names.index(response.leader_id)
        elif operation == self.operation:
            self.target = self.group.world.random.randrange(len(self.group.names))
        self.next(operation)

    def give_up(self, operation: int) -> None:
        """Give up after the timeout; in a healed world send the next operation to another member."""
        if operation == self.operation and self.group.world.healed:
            self.target = self.group.world.random.randrange(len(self.group.names))
        self.next(operation)

    def next(self, operation: int) -> None:
        """Plan the next operation; ignore a repeated call for the same one."""
        if operation == self.operation:
            self.operation += 1
            self.group.world.after(self.group.world.random.randint(5, 80), self.act)


class DLedgerGroup:
    """One run of one seed."""

    def __init__(
        self, seed: int, nodes: int = 5, *, fault: Fault | None = None, folder: Path | None = None
    ) -> None:
        self.world = World(seed, Faults(clock_drift_ppm_max=20_000, clock_jump_ms_max=2000))
        random = self.world.random
        self.world.faults = replace(
            self.world.faults,
            loss=random.choice((0.0, 0.02, 0.1)),
            duplicates=random.choice((0.0, 0.05, 0.3)),
            delay_ms_max=random.choice((5, 30, 120)),
            clogs=random.choice((0.0, 0.02, 0.1)),
            crash_interval_ms=random.choice((150, 500, 2000)),
        )
        self.real = folder is not None
        self.network = Network(self.world, ordered=random.random() < 0.3)
        self.checks = DLedgerChecks(nodes)
        self.names = [f"n{number}" for number in range(nodes)]
        peers = {name: f"{name}:1" for name in self.names}
        config = replace(
            CONFIG,
            batch_push_enabled=random.random() < 0.7,
            append_on_election=random.random() < 0.7,
            preferred_leader_ids="n0" if random.random() < 0.1 else "",
        )
        self.members = {
            name: DLedgerMember(self.world, self.network, self.checks, name, peers, config, fault, folder)
            for name in self.names
        }
        self.reads = self.crashes = 0
        self.appended_ms = NO_INDEX
        for member in self.members.values():
            member.members = self.members
            member.stop = partial(self.stop, member)
            self.world.after(random.randint(0, 50), self._starter(member))
        for number in range(CLIENTS):
            self.world.after(random.randint(300, 900), Client(self, number).act)
        self.world.after(random.randint(100, 1000), self.inject_fault)
        self.kinds = KINDS
        self.election_timeout_ms = OPERATION_TIMEOUT_MS
        """How long a client waits for a response."""
        if seed % DISK_FAULTS_EVERY == DISK_FAULTS_AT:
            self.kinds = KINDS_WITH_DISK_FAULTS
        if seed % LEADER_FAULTS_EVERY == LEADER_FAULTS_EVERY - 1:
            self.kinds = random.choice(KINDS_BESIDE_LEADER_FAULTS)
            if "crash" not in self.kinds:
                for member in self.members.values():
                    member.crash_at_write = 0.0
            faults = LeaderFaults(self.world, self.network, self.members, self.hand_over)
            self.election_timeout_ms = (
                30 if faults.returns else random.choice((200, 500, OPERATION_TIMEOUT_MS))
            )

    def _starter(self, member: DLedgerMember) -> Callable[[], None]:
        def start() -> None:
            if member.node is None:
                member.start()

        return start

    def inject_fault(self) -> None:
        """Inject a random fault, or end one."""
        world, random = self.world, self.world.random
        if world.healed:
            return
        member = self.members[random.choice(self.names)]
        kind = random.choice(self.kinds)
        world.note(f"fault {kind} {member.name}")
        faults: dict[str, Callable[[DLedgerMember], None]] = {
            "crash": self.stop,
            "power": self.stop_all,
            "disconnect": self.disconnect_links,
            "reconnect": self.reconnect_links,
            "isolate": self.isolate_leader,
            "jump": self.set_clock,
            "damage": self.damage,
            "transfer": self.hand_over,
            "full": self.fill_disk,
            "error": self.break_write,
            "term": self.lose_term,
        }
        faults[kind](member)
        world.after(random.randint(1, 2 * world.faults.crash_interval_ms), self.inject_fault)

    def stop(self, member: DLedgerMember) -> None:
        """Crash a member and plan its restart."""
        if member.node is None:
            return
        self.crashes += 1
        member.crash()
        random = self.world.random
        self.world.after(random.choice((5, 100, 3000)) + random.randint(0, 500), self._starter(member))

    def stop_all(self, _: DLedgerMember) -> None:
        """Crash all members, in 30 % of the calls."""
        if self.world.random.random() < 0.3:
            for one in self.members.values():
                self.stop(one)

    def reconnect_links(self, _: DLedgerMember) -> None:
        """Reconnect all links."""
        self.network.disconnected.clear()

    @staticmethod
    def set_clock(member: DLedgerMember) -> None:
        """Let the clock of a member jump."""
        member.clock.jump()
        member.tick(member.life)

    @staticmethod
    def break_write(member: DLedgerMember) -> None:
        """Make the next write of a member fail halfway."""
        member.log.breaks = True

    def isolate_leader(self, _: DLedgerMember | None = None) -> None:
        """Isolate the newest leader with less than half of the group; often its successor soon after."""
        leaders = [one for one in self.members.values() if one.leads and one.node is not None]
        if self.world.healed or not leaders:
            return
        newest = max(leaders, key=lambda one: one.node.state.term if one.node else 0)
        random = self.world.random
        others = [name for name in self.names if name != newest.name]
        company = random.sample(others, random.randint(0, max((len(others) - 2) // 2, 0)))
        self.world.note(f"isolate {newest.name}")
        self.network.disconnected.clear()
        self.disconnect([newest.name, *company], 2)
        if random.random() < 0.7:
            self.world.after(random.randint(700, 1800), self.isolate_leader)

    def disconnect_links(self, _: DLedgerMember) -> None:
        """Disconnect up to half of the members, in one or both directions."""
        self.network.disconnected.clear()
        random = self.world.random
        self.disconnect(
            random.sample(self.names, random.randint(1, max(len(self.names) // 2, 1))), random.randrange(3)
        )

    def disconnect(self, side: list[str], directions: int) -> None:
        """Disconnect links between `side` and the others; directions: 0 outward, 1 inward, 2 both."""
        random, disconnected = self.world.random, self.network.disconnected
        others = [name for name in self.names if name not in side]
        if not others:
            return
        for a in side:
            for b in others if random.random() < 0.7 else [random.choice(others)]:
                if directions != 1:
                    disconnected.add((a, b))
                if directions != 0:
                    disconnected.add((b, a))

    def damage(self, member: DLedgerMember) -> None:
        """Damage a stored entry, as long as a majority of the members has none damaged."""
        damaged = sum(one.log.durable_lost_tail or bool(one.log.corrupt) for one in self.members.values())
        if self.real:
            return  # the tests of the store damage real files
        if damaged < (len(self.names) - 1) // 2 and member.log.log and not member.log.lost_tail:
            member.log.corrupt.add(self.world.random.randrange(len(member.log.log)))

    def fill_disk(self, member: DLedgerMember) -> None:
        """Fill the disk of a member for a while."""
        member.log.disk_full = True
        self.world.after(self.world.random.randint(50, 2000), partial(self.free_disk, member))

    @staticmethod
    def free_disk(member: DLedgerMember) -> None:
        """End a full disk."""
        member.log.disk_full = False

    def lose_term(self, member: DLedgerMember) -> None:
        """Restart a member without its term file; one at a time, as its repair needs those of the others."""
        if any(one.log.term_lost for one in self.members.values()):
            return
        self.stop(member)
        member.log.term_lost = True

    def hand_over(self, member: DLedgerMember) -> None:
        """Request a leadership transfer to a member."""
        for leader in self.members.values():
            if leader.leads and leader.node is not None:
                request = LeadershipTransferRequest(
                    group="g",
                    remote_id=leader.name,
                    transfer_id=leader.name,
                    transferee_id=member.name,
                    term=leader.node.state.term,
                )
                leader.receive(leader.life, lambda _: None, request)

    @property
    def leaders(self) -> list[str]:
        """Members in the leader role."""
        return [one.name for one in self.members.values() if one.leads]

    def run(self, ticks: int) -> Report:
        """Run `ticks` of 10 ms with faults, then a healed world."""
        world = self.world
        world.run(ticks * TICK_MS)
        world.healed = True
        self.network.disconnected.clear()
        world.note("healed")
        for member in self.members.values():
            member.log.disk_full = member.log.breaks = False
            if member.node is not None and member.log.corrupt:
                self.stop(member)  # a restart detects the damage
        healed_ms = world.now_ms
        world.run(HEAL_MS)
        if len(self.leaders) != 1 or self.appended_ms <= healed_ms:
            world.run(HEAL_MS)  # members started late, or a transfer was in progress
        require(len(self.leaders) == 1, "a healed group has a leader", self.leaders)
        require(self.appended_ms > healed_ms, "a healed group takes appends", self.appended_ms)
        world.calm = True
        world.run(CALM_MS)
        for member in self.members.values():
            require(not member.log.lost_tail, "a healed member is whole", member.name)
            self.checks.whole(member.name, member.log.log)
        return Report(
            world.seed,
            world.digest.hexdigest(),
            max(self.checks.leaders),
            len(self.checks.committed),
            len(self.checks.acknowledged),
            self.reads,
            self.crashes,
        )
