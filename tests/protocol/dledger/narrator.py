"""Runs stories: groups of machines whose messages are delivered only by commands of the story."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyledger.config.dledger import UPSTREAM_TIMES, DLedgerConfig
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    Entry,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    PushEntryRequest,
    PushEntryResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TermState,
    VoteRequest,
    VoteResponse,
)
from pyledger.protocol.dledger.node import DLedgerNode
from pyledger.protocol.dledger.ready import Answered, CallFailed, Persist, Received
from pyledger.simulator.dledger.model_log import ModelLog
from tests.support.datadriven import Step

FIELDS = ("heart_beat_jitter_ms", "append_on_election")


class Chance:
    """Draws 0, unless the story gives other numbers."""

    def __init__(self) -> None:
        self.next: list[int] = []

    def randrange(self, stop: int) -> int:
        return min(self.next.pop(0), stop - 1) if self.next else 0


def at(entry: Entry) -> str:
    return f"{entry.index}@{entry.term}"


def span(entries: tuple[Entry, ...]) -> str:
    return at(entries[0]) if len(entries) == 1 else f"{at(entries[0])}..{at(entries[-1])}"


def describe_message(message: Any) -> str:
    match message:
        case VoteRequest():
            return f"VOTE term={message.term} end={message.ledger_end_index}@{message.ledger_end_term}"
        case VoteResponse():
            return f"{message.vote_result.value} term={message.term}"
        case HeartBeatRequest():
            return f"HEART_BEAT term={message.term}"
        case PushEntryRequest():
            entries = f" {span(message.entries)}" if message.entries else ""
            return f"{message.type.value}{entries} committed={message.commit_index}"
        case PushEntryResponse():
            ends = f"begin={message.begin_index} end={message.end_index}"
            return f"{int(message.code)} index={message.index} {ends}"
        case AppendEntryResponse() | ReadIndexResponse():
            return f"{int(message.code)} index={message.index}"
        case LeadershipTransferRequest():
            return f"TRANSFER {message.transfer_id} to {message.transferee_id}"
        case LeadershipTransferResponse():
            return f"{int(message.code)} term={message.term}"
    return f"{int(message.code)}" + (f" term={message.term}" if message.term >= 0 else "")


@dataclass(eq=False)
class Frame:
    """A request or response in flight."""

    source: str
    target: str
    message: Any
    call_id: int
    act: Callable[[], None]
    fail: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.source}>{self.target} {describe_message(self.message)}"


class Member:
    """A machine, its log, and the writes that its disk has not completed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.chance = Chance()
        self.log = ModelLog(None, lambda *_: None)  # type: ignore[arg-type]
        self.node: DLedgerNode | None = None
        self.slow = False
        self.lives = 0
        self.pending_persist: Persist | None = None


class GroupNarrator:
    """A group; frames stay in flight until `deliver`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.members: dict[str, Member] = {}
        self.frames: list[Frame] = []
        self.held: list[Frame] = []
        self.disconnected: list[str] = []
        self.output: list[str] = []
        self.config = DLedgerConfig(
            heart_beat_jitter_ms=0, append_on_election=False, batch_push_enabled=True, **PLAIN_TIMES
        )

    def run_step(self, step: Step) -> str:
        self.output = []
        getattr(self, step.command.replace("-", "_"))(step)
        return "\n".join(self.output) or "ok"

    def group(self, step: Step) -> None:
        changes = {
            name: value == "true" if value in {"true", "false"} else int(value.replace("_", ""))
            for name, value in step.named.items()
            if name != "preferred"
        }
        if "preferred" in step.named:
            changes["preferred_leader_ids"] = step.named["preferred"]
        self.config = replace(self.config, **changes)
        self.members = {name: Member(name) for name in step.words}

    def log(self, step: Step) -> None:
        """Terms of the entries; the bodies follow from index and term."""
        member = self.members[step.words[0]]
        for term in step.words[1].strip("()").split(","):
            member.log.append_bodies(int(term), (f"{term}".encode(),))
        member.log.flush()
        member.log.committed_index = step.integer("committed", -1)
        member.log.cleaned = step.integer("begin", 0)
        member.log.lost_tail = step.named.get("lost") == "yes"
        self.output.append(f"ends at {member.log.end_index}@{member.log.end_term}")

    def start(self, step: Step) -> None:
        for name in step.words or tuple(self.members):
            member = self.members[name]
            member.lives += 1
            saved = TermState(step.integer("term", max(member.log.end_term, 0)), step.named.get("vote"))
            member.node = DLedgerNode(
                group="g",
                self_id=name,
                peers={peer: f"{peer}:1" for peer in self.members},
                storage=member.log,
                random=member.chance,
                saved=saved,
                now_ms=self.now_ms,
                incarnation=member.lives,
                config=self.config,
            )
            self.pump(member)

    def chance(self, step: Step) -> None:
        self.members[step.words[0]].chance.next = [int(word) for word in step.words[1:]]

    def pump(self, member: Member) -> None:
        node = member.node
        while node is not None and (ready := node.ready()) is not None:
            for change in ready.role_changes:
                leader = f" of {change.leader_id}" if change.leader_id not in {None, member.name} else ""
                self.output.append(f"{member.name} is {change.role.value}{leader} in term {change.term}")
            if ready.committed_index is not None:
                self.output.append(f"{member.name} commits {ready.committed_index}")
            self.output += [f"{member.name} alarm: {alarm}" for alarm in ready.alarms]
            for call in ready.calls:
                self.call(member, *call)
            for token, response in ready.replies:
                token(response)
            for one in ready.appended:
                for token, response in node.append_responses(one):
                    token(response)
            if ready.persist is not None:
                member.pending_persist = ready.persist
                if not member.slow:
                    self.persist(member)

    def persist(self, member: Member) -> None:
        if member.pending_persist is not None and member.node is not None:
            persist, member.pending_persist = member.pending_persist, None
            if persist.flush:
                member.log.flush()
            member.node.persisted(persist, self.now_ms)
            self.pump(member)

    def call(self, source: Member, call_id: int, peer: str, request: Any) -> None:
        target = self.members[peer]

        def step(member: Member, event: Any) -> None:
            if member.node is not None:
                member.node.step(event, self.now_ms)
                self.pump(member)

        def fail() -> None:
            step(source, CallFailed(call_id))

        def reply(response: Any) -> None:
            def act() -> None:
                step(source, Answered(call_id, response))

            self.frames.append(Frame(peer, source.name, response, call_id, act, fail))

        def act() -> None:
            step(target, Received(reply, request))

        self.frames.append(Frame(source.name, peer, request, call_id, act, fail))

    def deliver(self, step: Step) -> None:
        """Deliver all frames, or those of one kind, until none is left; `quiet=yes` prints no frames."""
        kind, left = step.named.get("only"), step.integer("count", 10_000)
        while left:
            frame = next((one for one in self.frames if not kind or kind in str(one)), None)
            if frame is None:
                return
            left -= 1
            self.frames.remove(frame)
            lost = {frame.source, frame.target} & {*self.disconnected}
            if step.named.get("quiet") != "yes" and not lost:
                self.output.append(str(frame))
            (frame.fail if lost else frame.act)()

    def lose(self, step: Step) -> None:
        """Lose the frames in flight from or to a member."""
        name = step.words[0]
        lost = [one for one in self.frames if name in {one.source, one.target}]
        self.frames = [one for one in self.frames if one not in lost]
        self.output += [f"lost {one}" for one in lost]

    def hold(self, step: Step) -> None:
        """Keep frames whose text has all these words in flight until `release`."""
        held = [one for one in self.frames if all(word in str(one) for word in step.words)]
        self.frames = [one for one in self.frames if one not in held]
        self.held += held
        self.output += [f"holds {one}" for one in held]

    def release(self, step: Step) -> None:
        """Deliver the held frames that have all these words next."""
        freed = [one for one in self.held if all(word in str(one) for word in step.words)]
        self.held = [one for one in self.held if one not in freed]
        self.frames = [*freed, *self.frames]

    def disconnect(self, step: Step) -> None:
        self.disconnected = list(step.words)

    def reconnect(self, step: Step) -> None:
        self.disconnected = []

    def wait(self, step: Step) -> None:
        """Advance the time of the named members, or of all."""
        self.now_ms += step.integer("ms")
        for name in step.words or tuple(self.members):
            member = self.members[name]
            if member.node is not None:
                member.node.tick(self.now_ms)
                self.pump(member)

    def elect(self, step: Step) -> None:
        """Let a member campaign now, and win."""
        member = self.members[step.words[0]]
        assert member.node is not None
        member.node.state.change_to_candidate(member.node.state.term)
        member.node.elector.need_increase_term = True
        for _ in range(6):
            member.node.elector.next_vote_ms = min(self.now_ms, member.node.elector.next_vote_ms)
            member.node.tick(self.now_ms)
            self.pump(member)
            for kind in ("VOTE", "REJECT", "ACCEPT"):
                self.deliver(replace(step, named={"only": kind, "quiet": "yes"}))
            self.now_ms += 10
            if member.node.state.is_leader:
                break
        self.deliver(replace(step, named={"only": "HEART_BEAT", "quiet": "yes"}))
        for frame in [one for one in self.frames if isinstance(one.message, HeartBeatResponse)]:
            self.frames.remove(frame)
            frame.act()

    def append(self, step: Step) -> None:
        name, *bodies = step.words
        batch = tuple(body.encode() for body in bodies)
        request = AppendEntryRequest(
            group="g", remote_id=name, body=batch[0], batch_msgs=batch if len(batch) > 1 else None
        )
        self.send_request(name, request, "+".join(bodies))

    def read(self, step: Step) -> None:
        self.send_request(step.words[0], ReadIndexRequest(group="g", remote_id=step.words[0]), "read")

    def transfer(self, step: Step) -> None:
        name, node = step.words[0], self.members[step.words[0]].node
        assert node is not None
        request = LeadershipTransferRequest(
            group="g",
            remote_id=name,
            transfer_id=name,
            transferee_id=step.named["to"],
            term=step.integer("term", node.state.term),
        )
        self.send_request(name, request, "transfer")

    def send_request(self, name: str, request: Any, what: str) -> None:
        member = self.members[name]
        assert member.node is not None

        def answer(response: Any) -> None:
            self.output.append(f"client: {what} {describe_message(response)}")

        member.node.step(Received(answer, request), self.now_ms)
        self.pump(member)

    def slow(self, step: Step) -> None:
        self.members[step.words[0]].slow = True

    def flush(self, step: Step) -> None:
        self.persist(self.members[step.words[0]])

    def damage(self, step: Step) -> None:
        """Damage an entry; the next start drops it and all entries after it."""
        self.members[step.words[0]].log.corrupt.add(int(step.words[1]))

    def breaks(self, step: Step) -> None:
        """Make the next write of entries fail halfway."""
        self.members[step.words[0]].log.breaks = True

    def disk(self, step: Step) -> None:
        """`disk n0 full`, `disk n0 free`."""
        self.members[step.words[0]].log.disk_full = step.words[1] == "full"

    def status(self, step: Step) -> None:
        """Print the status that a member reports to operators."""
        node = self.members[step.words[0]].node
        assert node is not None
        one = node.status
        self.output.append(
            f"{one.role} term={one.term} vote={one.vote} "
            f"log={one.begin_index}..{one.end_index}@{one.end_term} "
            f"committed={one.committed_index} cannot-vote={one.cannot_vote} disk-full={one.disk_full}"
        )

    def restart(self, step: Step) -> None:
        self.members[step.words[0]].log.recover()
        self.start(step)

    def stop(self, step: Step) -> None:
        self.members[step.words[0]].node = None

    def show(self, step: Step) -> None:
        for name in step.words or tuple(self.members):
            member = self.members[name]
            terms = " ".join(str(entry.term) for entry in member.log.log)
            node = member.node
            role = (
                f"{node.state.role.value} term={node.state.term} vote={node.state.vote}" if node else "down"
            )
            if node is not None and node.failure is not None:
                role = f"silent ({node.failure})"
            self.output.append(f"{name} {role} log=[{terms}] committed={member.log.committed_index}")


PLAIN_TIMES = {name: value for name, value in UPSTREAM_TIMES.items() if name not in FIELDS}


class DispatcherNarrator(GroupNarrator):
    """A leader n0; the story gives the responses of the follower n1."""

    def leader(self, step: Step) -> None:
        self.config = replace(
            self.config,
            max_batch_push_entries=2,
            **{name: int(value) for name, value in step.named.items() if name not in {"begin", "end"}},
        )
        self.members = {"n0": Member("n0"), "n1": Member("n1")}
        self.waiting: list[Frame] = []
        log = self.members["n0"].log
        begin, end = step.integer("begin"), step.integer("end")
        for _ in range(end + 1):
            log.append_bodies(1, (b"1",))
        log.cleaned = begin
        self.start(replace(step, words=("n0",), named={"term": "2"}))
        node = self.members["n0"].node
        assert node is not None
        node.state.change_to_leader(2)
        node.tick(0)
        self.pump(self.members["n0"])
        self.push()

    def push(self) -> None:
        """Print the pushes to n1."""
        pushes = [frame for frame in self.frames if isinstance(frame.message, PushEntryRequest)]
        self.waiting += pushes
        self.frames = []
        self.output = [line for line in self.output if not line.startswith("n0 is")]
        self.output += [describe_message(frame.message) for frame in pushes]

    def answer(self, step: Step) -> None:
        """Answer the oldest pending push, or the one with the number `push`."""
        frame = self.waiting.pop(step.integer("push", 0))
        node, entries = self.members["n0"].node, frame.message.entries
        assert node is not None
        response = PushEntryResponse(
            group="g",
            code=int(step.words[0]),
            term=frame.message.term,
            index=step.integer("index", entries[0].index) if entries else None,
            count=step.integer("count", len(entries)),
            begin_index=step.integer("begin", 0),
            end_index=step.integer("end", -1),
        )
        node.step(Answered(frame.call_id, response), self.now_ms)
        self.pump(self.members["n0"])
        self.push()

    def wait(self, step: Step) -> None:
        super().wait(step)
        self.push()

    def marks(self, step: Step) -> None:
        node = self.members["n0"].node
        assert node is not None
        one = node.dispatchers["n1"]
        self.output.append(
            f"{one.type.value} write={one.write_index} water-mark={node.checker.water_mark('n1')} "
            f"pending={sorted(one.pending)}"
        )


class VoteNarrator:
    """A voter and a candidate."""

    def run_step(self, step: Step) -> str:
        member = Member("n0")
        for term in [int(term) for term in step.items("log")]:
            member.log.append_bodies(term, (b"",))
        member.log.lost_tail = "lost" in step.words
        node = DLedgerNode(
            group="g",
            self_id="n0",
            peers=dict.fromkeys(("n0", "n1", "n2"), ""),
            storage=member.log,
            random=member.chance,
            saved=TermState(step.integer("term"), step.named.get("voted")),
            now_ms=0,
            incarnation=1,
            config=DLedgerConfig(preferred_leader_ids="n0" if "taking" in step.words else ""),
        )
        if "leader" in step.named:
            node.state.change_to_follower(node.state.term, step.named["leader"])
        if "taking" in step.words:
            node.state.term_to_take_leadership = node.state.term
        asked_term, end = step.integer("asks-in"), step.named["end"].split("@")
        request = VoteRequest(
            group="g",
            remote_id="n0",
            leader_id=step.named.get("candidate", "n1"),
            term=asked_term,
            ledger_end_index=int(end[0]),
            ledger_end_term=int(end[1]),
        )
        output: list[str] = []
        node.step(Received(lambda response: output.append(describe_message(response)), request), 0)
        while (ready := node.ready()) is not None:
            for token, response in ready.replies:
                token(response)
            if ready.persist is not None:
                saved = ready.persist.term_state
                output.append(
                    f"saves term={saved.curr_term} vote={saved.vote_leader}" if saved else "flushes"
                )
                node.persisted(ready.persist, 0)
        return "\n".join(output)


NARRATORS = {"group": GroupNarrator, "dispatcher": DispatcherNarrator, "vote": VoteNarrator}
