"""A writer that tracks entries in batches does what it does when it tracks each on its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.ledger_writer import LedgerWriter, Proposal, Replacements
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment
from pyledger.protocol.bookkeeper.result_codes import Result

SPARE = 5


def made(size: int, ack_quorum: int) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=size,
        write_quorum=size,
        ack_quorum=ack_quorum,
        segments=(Segment(0, tuple(f"b{at}" for at in range(size))),),
    )


@dataclass
class Shell:
    """A machine, and what it had its bookies sent."""

    machine: LedgerWriter
    sent: set[tuple[str, int, int, int, bytes]] = field(default_factory=set)
    confirmed: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    proposal: Proposal | None = None
    closed: Result | None = None

    def follow(self) -> None:
        while (ready := self.machine.ready()) is not None:
            for send in ready.sends:
                length = send.length
                for entry_id, payload in enumerate(send.payloads, send.first_entry_id):
                    length += len(payload)
                    for bookie in send.bookies:
                        self.sent.add((bookie, entry_id, send.last_add_confirmed, length, payload))
            self.proposal = ready.proposal or self.proposal
            for added in ready.added:
                (self.confirmed if added.result is Result.OK else self.failed).append(added.entry_id)
            self.closed = self.closed if ready.closed is None else ready.closed


class Replacing:
    """Names of bookies that nobody had before."""

    def __init__(self) -> None:
        self.left = SPARE

    def __call__(self, _ensemble: tuple[str, ...], failed: Mapping[int, str], _needed: bool) -> Replacements:
        found = {}
        for place in failed:
            if self.left:
                self.left -= 1
                found[place] = f"spare{self.left}"
        return Replacements(found)


class EachAlone(LedgerWriter):
    """Tracks each entry on its own."""

    @property
    def in_order(self) -> bool:
        return False


class Twins:
    """Two machines that meet the same: one tracks batches where it can."""

    def __init__(self, data: st.DataObject, size: int) -> None:
        ack_quorum = data.draw(st.integers(1, size))
        self.data = data
        self.in_batches, self.one_by_one = self.shells = tuple(
            Shell(kind(made(size, ack_quorum), Replacing(), add_quorum_timeout_ms=1000))
            for kind in (LedgerWriter, EachAlone)
        )

    def sent(self) -> tuple[str, int] | None:
        """Some bookie and an entry that it was sent."""
        known = sorted({(bookie, entry_id) for bookie, entry_id, *_ in self.one_by_one.sent})
        return self.data.draw(st.sampled_from(known)) if known else None

    def add(self, now_ms: int) -> None:
        payloads = self.data.draw(st.lists(st.binary(max_size=3), min_size=1, max_size=4))
        for shell in self.shells:
            shell.machine.add(payloads.copy(), now_ms)

    def add_one(self, now_ms: int) -> None:
        for shell in self.shells:
            shell.machine.add([b"x"], now_ms)

    def answer_in_order(self, _now_ms: int) -> None:
        if (one := self.sent()) is None:
            return
        (bookie, first), count = one, self.data.draw(st.integers(1, 5))
        ids = range(first, min(first + count, self.one_by_one.machine.last_add_pushed + 1))
        held = {entry_id for name, entry_id, *_ in self.one_by_one.sent if name == bookie}
        if held.issuperset(ids):
            self.in_batches.machine.answered(bookie, first, Result.OK, len(ids))
            for entry_id in ids:
                self.one_by_one.machine.answered(bookie, entry_id, Result.OK)

    def answer(self, _now_ms: int) -> None:
        result = self.data.draw(st.sampled_from([Result.OK, Result.OK, Result.WRITE, Result.LEDGER_FENCED]))
        if (one := self.sent()) is not None:
            for shell in self.shells:
                shell.machine.answered(*one, result)

    def store(self, _now_ms: int) -> None:
        for shell in self.shells:
            if shell.proposal is not None:
                wanted, shell.proposal = shell.proposal.wanted, None
                shell.machine.stored(wanted)

    def compare(self) -> None:
        for shell in self.shells:
            shell.follow()
        batches, singles = (
            (
                *(one.machine.last_add_confirmed, one.machine.length, one.machine.failure),
                *(one.machine.metadata, one.machine.deadline_ms(), one.proposal, one.closed),
                *(one.failed, one.sent, one.confirmed[-1:]),
            )
            for one in self.shells
        )
        assert batches == singles
        assert set(self.in_batches.confirmed) <= set(self.one_by_one.confirmed)


STEPS = (*(Twins.add, Twins.answer_in_order) * 2, Twins.add_one, Twins.answer, Twins.store)


@given(st.data(), st.integers(1, 4))
def test_a_batch_is_nothing_but_many_adds(data: st.DataObject, size: int) -> None:
    twins = Twins(data, size)
    for now_ms, step in enumerate(data.draw(st.lists(st.sampled_from(STEPS), max_size=12))):
        step(twins, now_ms)
        twins.compare()
    for shell in twins.shells:
        shell.machine.close()
    twins.compare()
    assert twins.in_batches.machine.describe() == twins.one_by_one.machine.describe()


def test_entries_on_some_bookies_only_go_one_by_one() -> None:
    metadata = LedgerMetadata(
        ensemble_size=3, write_quorum=2, ack_quorum=2, segments=(Segment(0, ("a", "b", "c")),)
    )
    shell = Shell(LedgerWriter(metadata, Replacing()))
    assert not shell.machine.in_order
    assert shell.machine.add([b"x", b"y"], 0) == 1
    shell.follow()
    assert {(bookie, entry_id) for bookie, entry_id, *_ in shell.sent} == {
        ("a", 0), ("b", 0), ("b", 1), ("c", 1)
    }  # fmt: skip


def test_a_slow_bookie_is_not_waited_for() -> None:
    """Late answers to entries that are confirmed leave the batches after them as they are."""
    shell = Shell(LedgerWriter(made(3, 2), Replacing()))
    for _ in range(3):
        shell.machine.add([b"x"] * 10, 0)
    for bookie in ("b0", "b1"):
        shell.machine.answered(bookie, 0, Result.OK, 15)
    assert shell.machine.last_add_confirmed == 14
    shell.machine.answered("b2", 0, Result.OK, 12)
    assert shell.machine._batches
    shell.machine.answered("b2", 12, Result.OK, 18)
    shell.machine.answered("b0", 15, Result.OK, 15)
    assert shell.machine.last_add_confirmed == 29
    shell.follow()
    assert shell.confirmed == [9, 14, 19, 29]
