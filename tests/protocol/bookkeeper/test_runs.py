"""A writer that takes many entries at once does what it does with one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import InvariantError
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
            for run in ready.runs:
                length = run.length
                for entry_id, payload in enumerate(run.payloads, run.first_entry_id):
                    length += len(payload)
                    for bookie in run.bookies:
                        self.sent.add((bookie, entry_id, run.last_add_confirmed, length, payload))
            for one in ready.sends:
                about = (one.bookie, one.entry_id, one.last_add_confirmed, one.length, one.payload)
                self.sent.add(about)
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


class Twins:
    """Two machines that meet the same: one takes runs where it can."""

    def __init__(self, data: st.DataObject, size: int) -> None:
        ack_quorum = data.draw(st.integers(1, size))
        self.data = data
        self.by_runs, self.one_by_one = self.shells = tuple(
            Shell(LedgerWriter(made(size, ack_quorum), Replacing(), add_quorum_timeout_ms=1000))
            for _ in range(2)
        )

    def sent(self) -> tuple[str, int] | None:
        """Some bookie and an entry that it was sent."""
        known = sorted({(bookie, entry_id) for bookie, entry_id, *_ in self.one_by_one.sent})
        return self.data.draw(st.sampled_from(known)) if known else None

    def run(self, now_ms: int) -> None:
        payloads = self.data.draw(st.lists(st.binary(max_size=3), min_size=1, max_size=4))
        runs, singles = self.by_runs.machine, self.one_by_one.machine
        assert runs.takes_runs == singles.takes_runs
        together = runs.takes_runs
        if together:
            runs.add_run(payloads.copy(), now_ms)
        for payload in payloads:
            singles.add(payload, now_ms)
            if not together:
                runs.add(payload, now_ms)

    def add(self, now_ms: int) -> None:
        for shell in self.shells:
            shell.machine.add(b"x", now_ms)

    def answer_in_order(self, _now_ms: int) -> None:
        if (one := self.sent()) is None:
            return
        (bookie, first), count = one, self.data.draw(st.integers(1, 5))
        ids = range(first, min(first + count, self.one_by_one.machine.last_add_pushed + 1))
        held = {entry_id for name, entry_id, *_ in self.one_by_one.sent if name == bookie}
        if held.issuperset(ids):
            self.by_runs.machine.answered_run(bookie, first, len(ids))
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
        runs, singles = (
            (
                *(one.machine.last_add_confirmed, one.machine.length, one.machine.failure),
                *(one.machine.metadata, one.machine.deadline_ms(), one.proposal, one.closed),
                *(one.failed, one.sent, one.confirmed[-1:]),
            )
            for one in self.shells
        )
        assert runs == singles
        assert set(self.by_runs.confirmed) <= set(self.one_by_one.confirmed)


STEPS = (*(Twins.run, Twins.answer_in_order) * 2, Twins.add, Twins.answer, Twins.store)


@given(st.data(), st.integers(1, 4))
def test_runs_are_nothing_but_many_adds(data: st.DataObject, size: int) -> None:
    twins = Twins(data, size)
    for now_ms, step in enumerate(data.draw(st.lists(st.sampled_from(STEPS), max_size=12))):
        step(twins, now_ms)
        twins.compare()
    for shell in twins.shells:
        shell.machine.close()
    twins.compare()
    assert twins.by_runs.machine.describe() == twins.one_by_one.machine.describe()


def test_entries_on_some_bookies_only_go_one_by_one() -> None:
    metadata = LedgerMetadata(
        ensemble_size=3, write_quorum=2, ack_quorum=2, segments=(Segment(0, ("a", "b", "c")),)
    )
    machine = LedgerWriter(metadata, Replacing())
    assert not machine.takes_runs
    with pytest.raises(InvariantError):
        machine.add_run([b"x"], 0)


def test_who_is_slow_is_not_waited_for() -> None:
    """Late answers to entries that are confirmed leave the runs behind them as they are."""
    shell = Shell(LedgerWriter(made(3, 2), Replacing()))
    for _ in range(3):
        shell.machine.add_run([b"x"] * 10, 0)
    for bookie in ("b0", "b1"):
        shell.machine.answered_run(bookie, 0, 15)
    assert shell.machine.last_add_confirmed == 14
    shell.machine.answered_run("b2", 0, 12)
    assert shell.machine.takes_runs
    shell.machine.answered_run("b2", 12, 18)
    shell.machine.answered_run("b0", 15, 15)
    assert shell.machine.last_add_confirmed == 29
    shell.follow()
    assert shell.confirmed == [9, 14, 19, 29]
