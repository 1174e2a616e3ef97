"""The shell of one member in a simulated group: its disk, its clock, its starts and crashes."""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Protocol

from pyledger.config.dledger import DLedgerConfig
from pyledger.protocol.dledger.messages import NO_INDEX, Entry, Request, Response, TermState
from pyledger.protocol.dledger.node import DLedgerNode
from pyledger.protocol.dledger.ready import Answered, CallFailed, Event, Persist, Ready, Received, Role
from pyledger.simulator.dledger.checks import DLedgerChecks
from pyledger.simulator.dledger.model_log import ModelLog
from pyledger.simulator.world import Clock, Network, World

SLOW_FLUSHES = 0.02
SLOW_FLUSH_MS_MAX = 800
FLUSH_MS_MAX = 8


class Moment(Enum):
    """When `LeaderFaults` may isolate a leader."""

    ELECTED = "elected"
    APPENDED = "appended"
    COMMITTED = "committed"


class Fault(Protocol):
    """Builds a known bug into a member; used by tests only."""

    def __call__(self, member: "DLedgerMember") -> None:
        """Change the machine of a member that has just started."""


def watch_truncations(member: "DLedgerMember", log: ModelLog) -> None:
    """Check before each truncation that it removes nothing committed."""
    truncate = log.truncate

    def watched(entry: Entry) -> None:
        kept = entry.index <= log.end_index and log.log[entry.index].same_as(entry)
        last_kept = entry.index if kept else entry.index - 1
        member.checks.truncates(member.name, last_kept, log.committed_index)
        truncate(entry)

    log.truncate = watched  # type: ignore[method-assign]


class DLedgerMember:
    """One member: its processes, one at a time, on one disk."""

    def __init__(
        self,
        world: World,
        network: Network,
        checks: DLedgerChecks,
        name: str,
        peers: Mapping[str, str],
        config: DLedgerConfig,
        fault: Fault | None,
        folder: Path | None,
    ) -> None:
        self.world, self.network, self.checks = world, network, checks
        self.name, self.peers, self.config, self.fault = name, peers, config, fault
        self.members: Mapping[str, DLedgerMember] = {}
        self.clock = Clock(world)
        if folder is None:
            self.log = ModelLog(world.random, self._wrote)
        else:
            from pyledger.simulator.dledger.folder_log import FolderLog  # noqa: PLC0415

            self.log = FolderLog(world.random, self._wrote, folder / name)
        watch_truncations(self, self.log)
        self.life = 0
        self.node: DLedgerNode | None = None
        self.checked_committed = NO_INDEX
        self.tick_at_ms = -1
        self.crash_at_write = world.random.choice((0.0, 0.002, 0.02))
        """Share of writes during which the member crashes."""
        self.leaving = False
        """It found damage and is about to restart."""
        self.stop: Callable[[], None] = self.crash
        self.on_moment: Callable[[DLedgerMember, Moment], None] = lambda *_: None
        """Called at each `Moment` of this member as the leader."""

    @property
    def leads(self) -> bool:
        """Whether it is in the leader role."""
        return self.node is not None and self.node.state.role is Role.LEADER

    def _wrote(self, entry: Entry, term_before: int) -> None:
        self.checks.wrote(entry, term_before)
        if self.leads:
            self.on_moment(self, Moment.APPENDED)

    def start(self) -> None:
        """Start a process from what is on the disk."""
        self.life += 1
        self.leaving = False
        self.world.note(f"{self.name} starts at {self.log.end_index}@{self.log.end_term}")
        if self.log.term_lost:
            self._repair_term()
        self.node = DLedgerNode(
            group="g",
            self_id=self.name,
            peers=self.peers,
            storage=self.log,
            random=self.world.random,
            saved=self.log.durable_term_state,
            now_ms=self.clock.now_ms,
            incarnation=self.life,
            config=self.config,
        )
        self.checked_committed = self.log.committed_index
        if self.fault is not None:
            self.fault(self)
        self.pump()

    def _repair_term(self) -> None:
        """Set a new term, as an operator would: above every term in which this member may have voted."""
        terms = [
            max(one.log.durable_term_state.curr_term, one.node.state.term if one.node else 0)
            for one in self.members.values()
            if one is not self
        ]
        self.log.save_term_state(TermState(1 + max([self.log.end_term, 0, *terms])))
        self.world.note(f"{self.name} gets term {self.log.durable_term_state.curr_term}")

    def crash(self) -> None:
        """End the process; the disk keeps a random part of what was not flushed."""
        self.node = None
        self.life += 1
        self.log.crash()
        self.world.note(f"{self.name} crashes, keeps {self.log.end_index}@{self.log.end_term}")

    def receive(self, life: int, token: Callable[[Response], None], request: Request) -> None:
        """Handle a request, if the process it was sent to still runs."""
        if self.node is not None and life == self.life:
            self.step(Received(token, request))

    def step(self, event: Event) -> None:
        """Pass an event to the machine."""
        if self.node is not None:
            self.node.step(event, self.clock.now_ms)
            self.pump()

    def tick(self, life: int) -> None:
        """Pass the time to the machine."""
        if self.node is not None and life == self.life:
            self.node.tick(self.clock.now_ms)
            self.pump()

    def pump(self) -> None:
        """Carry out what the machine has ready."""
        node = self.node
        assert node is not None
        while (ready := node.ready()) is not None:
            self._do(node, ready)
        if (node.damaged or node.failed) and not self.leaving:
            self.leaving = True
            self.world.after(100, self.stop)
        deadline_ms = node.deadline_ms()
        if deadline_ms is not None:
            delay_ms = max(deadline_ms - self.clock.now_ms, 1)
            at_ms = self.world.now_ms + delay_ms
            # A tick that is already planned before the deadline plans the next one.
            if not self.world.now_ms < self.tick_at_ms <= at_ms:
                self.tick_at_ms = at_ms
                life = self.life
                self.world.after(delay_ms, lambda: self.tick(life))

    def _do(self, node: DLedgerNode, ready: Ready) -> None:
        for change in ready.role_changes:
            self.world.note(f"{self.name} {change.role.value} of {change.leader_id} in {change.term}")
            if change.role is Role.LEADER:
                self.checks.leads(self.name, self.life, change.term, self.log.log)
                self.on_moment(self, Moment.ELECTED)
        if ready.committed_index is not None:
            old, new = self.checked_committed, ready.committed_index
            self.checks.commits(self.name, node.state.term, self.log.log, old, new, self._holders)
            self.checked_committed = new
            self.world.note(f"{self.name} committed {new}")
            if self.leads:
                self.on_moment(self, Moment.COMMITTED)
        if ready.persist is not None:
            self._persist(ready.persist)
        for call_id, peer, request in ready.calls:
            self._call(call_id, peer, request)
        for token, response in ready.replies:
            token(response)  # type: ignore[operator]
        for one in ready.appended:
            for token, answer in node.append_responses(one):
                token(answer)  # type: ignore[operator]
        for alarm in ready.alarms:
            self.world.note(f"{self.name} alarm {alarm}")

    def _holders(self, entry: Entry) -> int:
        return sum(member.log.holds(entry) for member in self.members.values())

    def _persist(self, persist: Persist) -> None:
        world, life = self.world, self.life
        slow = not world.healed and world.random.random() < SLOW_FLUSHES
        delay_ms = world.random.randint(1, SLOW_FLUSH_MS_MAX if slow else FLUSH_MS_MAX)
        if persist.flush:
            self.log.start_flush()

        def flushed() -> None:
            if life == self.life and persist.flush:
                self.log.flush()

        def saved() -> None:
            if life != self.life or self.node is None:
                return
            if persist.term_state is not None:
                self.log.save_term_state(persist.term_state)
            self.node.persisted(persist, self.clock.now_ms)
            self.pump()

        if not world.healed and world.random.random() < self.crash_at_write * (20 if slow else 1):
            world.after(
                world.random.randrange(delay_ms + 1), lambda: self.stop() if life == self.life else None
            )
        world.after(delay_ms, flushed)
        world.after(delay_ms + 1, saved)

    def _call(self, call_id: int, peer: str, request: Request) -> None:
        target, life, target_life = self.members[peer], self.life, self.members[peer].life

        def fail() -> None:
            if life == self.life:
                self.step(CallFailed(call_id))

        if target.node is None:
            self.world.after(self.world.random.randint(1, 20), fail)
            return

        def reply(response: Response) -> None:
            self.network.send(peer, self.name, lambda: self._answered(life, call_id, peer, response))

        def deliver() -> None:
            self.world.note(f"{self.name}>{peer} {type(request).__name__} {request.term}")
            target.receive(target_life, reply, request)

        self.network.send(self.name, peer, deliver)

    def _answered(self, life: int, call_id: int, peer: str, response: Response) -> None:
        if life == self.life:
            self.world.note(f"{peer}>{self.name} {type(response).__name__} {response.code}")
            self.step(Answered(call_id, response))
