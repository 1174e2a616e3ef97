"""Missing replicas of a ledger and their re-replication: stories, and replicas that never get fewer."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.audit import AuditRules
from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.fragments import (
    Fragment,
    LedgerCheck,
    MissingReplicas,
    ends_at,
    fragments_of,
    held_by,
    keeps_entries,
)
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from pyledger.protocol.bookkeeper.placement import Placement
from pyledger.protocol.bookkeeper.re_replication import next_step, repair_of
from pyledger.protocol.bookkeeper.result_codes import Result
from tests.support import datadriven

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
IN_ORDER = Placement(lambda names: names.sort())
READS_AT_ONCE = 3


class Story:
    """A ledger, and bookies with the entries that they have; wrong results of bookies."""

    def __init__(self) -> None:
        self.held: dict[str, set[int]] = {}
        self.answers: dict[tuple[str, int], Result] = {}
        self.lost: set[str] = set()
        self.lac = -1
        self.waited_ms: int | None = None
        self.rules = AuditRules()

    def run(self, step: datadriven.Step) -> str:
        return str(getattr(self, step.command)(step))

    def ledger(self, step: datadriven.Step) -> str:
        """`ledger E/Qw/Qa closed=9 0=(a,b,c) …` or `lac=9`: every bookie has what it should have."""
        sizes = [int(size) for size in step.words[0].split("/")]
        segments = tuple(Segment(int(n), tuple(step.items(n))) for n in step.named if n.isdigit())
        closed = step.integer("closed", -2)
        self.metadata = LedgerMetadata(
            ensemble_size=sizes[0],
            write_quorum=sizes[1],
            ack_quorum=sizes[2],
            segments=segments,
            state=LedgerState.OPEN if closed == -2 else LedgerState.CLOSED,
            last_entry_id=max(closed, -1),
        ).check()
        self.lac = step.integer("lac", closed)
        self.held = {bookie: set() for segment in segments for bookie in segment.ensemble}
        for fragment in fragments_of(self.metadata, self.lac):
            for index, bookie in enumerate(fragment.ensemble):
                self.held[bookie].update(held_by(self.metadata, fragment, index))
        return "\n".join(
            f"{one.first_entry_id}..{one.last_entry_id}{' sealed' if one.sealed else ''} "
            + " ".join(
                f"{bookie}:{','.join(map(str, ends_at(self.metadata, one, place))) or '-'}"
                for place, bookie in enumerate(one.ensemble)
            )
            for one in fragments_of(self.metadata, self.lac)
        )

    def spare(self, step: datadriven.Step) -> str:
        self.held |= {bookie: set() for bookie in step.words}
        return " ".join(self.there)

    def lose(self, step: datadriven.Step) -> str:
        self.lost.update(step.words)
        return " ".join(self.there)

    def back(self, step: datadriven.Step) -> str:
        self.lost -= set(step.words)
        return " ".join(self.there)

    def forget(self, step: datadriven.Step) -> str:
        """`forget b 3,4`: it reports no such entries, or another result."""
        for entry_id in map(int, step.words[1].split(",")):
            answer = step.named.get("answer", "NO_SUCH_ENTRY")
            self.answers[step.words[0], entry_id] = Result[answer]
        return "ok"

    @property
    def there(self) -> list[str]:
        return sorted(self.held.keys() - self.lost)

    def missing_replicas(self, *, every_entry: bool = False) -> tuple[tuple[MissingReplicas, ...], int]:
        check, sent = LedgerCheck(self.metadata, self.lac, self.there, every_entry=every_entry), 0
        while not check.done:
            for read in check.ready(READS_AT_ONCE):
                sent += 1
                result = self.answers.get((read.bookie, read.entry_id), Result.OK)
                has = read.entry_id in self.held[read.bookie]
                good = has and result is Result.OK
                entry = LedgerEntry(1, read.entry_id, -1, 0, b"") if good else None
                sent_back = result if has else Result.NO_SUCH_ENTRY
                # A wrong digest is a good result without an entry.
                sent_back = Result.OK if sent_back is Result.DIGEST_MATCH else sent_back
                check.answered(read.bookie, read.entry_id, sent_back, entry)
        return check.missing_replicas, sent

    def check(self, step: datadriven.Step) -> str:
        missing, sent = self.missing_replicas(every_entry="every" in step.words)
        lines = [
            f"{one.fragment.first_entry_id}: "
            + " ".join(f"{one.fragment.ensemble[at]} {why.name}" for at, why in one.indexes.items())
            for one in missing
        ]
        return "\n".join([*lines, f"{sent} reads"])

    def next(self, step: datadriven.Step) -> str:
        waited_for = step.items("waited") if "waited" in step.named else ()
        missing, _ = self.missing_replicas()
        return next_step(self.metadata, self.lac, missing, self.there, waited_for).name

    def repair(self, step: datadriven.Step) -> str:
        lines = []
        missing, _ = self.missing_replicas(every_entry="every" in step.words)
        for one in missing:
            writable = [name for name in self.there if name not in step.named.get("readonly", "")]
            repair = repair_of(one, IN_ORDER, writable) if one.fragment.sealed else None
            if repair is None:
                lines.append(f"{one.fragment.first_entry_id}: nothing can be done")
                continue
            copies: dict[str, list[int]] = {}
            for entry_id, targets in repair.copies(self.metadata):
                for bookie in targets:
                    copies.setdefault(bookie, []).append(entry_id)
                    self.held[bookie].add(entry_id)
                    self.answers.pop((bookie, entry_id), None)
            changed = repair.repaired(self.metadata)
            assert changed is not None
            self.metadata = changed
            entries = " ".join(f"{name} {','.join(map(str, ids))}" for name, ids in sorted(copies.items()))
            lines.append(f"{one.fragment.first_entry_id}: {entries or 'no entries'}")
        segments = (f"{one.first_entry_id}=({','.join(one.ensemble)})" for one in self.metadata.segments)
        return "\n".join([*lines, " ".join(segments)])

    def audit(self, step: datadriven.Step) -> str:
        """`audit at=5 delay=10 known=(a,b) there=(a)`, or with the bookies of before."""
        now = step.integer("at")
        if "known" in step.named:
            self.rules.update(step.items("known"), step.items("there"), now, step.integer("delay", 0))
        if "force" in step.words:
            self.rules.force(now)
        due, then = self.rules.due(now), self.rules.deadline_ms()
        when = "" if then is None else f", due at {then}"
        return f"marks {' '.join(sorted(due)) or 'nothing'}{when}"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, rewrite: bool) -> None:
    datadriven.run(path, Story().run, rewrite=rewrite)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    ensemble = draw(st.integers(1, 5))
    write = draw(st.integers(1, ensemble))
    ack = draw(st.integers(1, write))
    names = [f"b{at}" for at in range(8)]
    starts = sorted({0, *draw(st.lists(st.integers(1, 25), max_size=3))})
    segments = tuple(Segment(at, tuple(draw(st.permutations(names))[:ensemble])) for at in starts)
    last = draw(st.integers(-1, 30).filter(lambda last: last >= starts[-1] - 1))
    return LedgerMetadata(
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=ack,
        segments=segments,
        state=LedgerState.CLOSED,
        last_entry_id=last,
    ).check()


def copies(metadata: LedgerMetadata, held: dict[str, set[int]], entry_id: int) -> int:
    """Return how many bookies have an entry, of those that the metadata names for it."""
    ensemble = metadata.segment_of(entry_id).ensemble
    return sum(entry_id in held[ensemble[place]] for place in metadata.write_set(entry_id))


@settings(max_examples=60)
@given(metadata=ledgers(), draw=st.data())
def test_replicas_never_get_fewer_and_all_are_restored(metadata: LedgerMetadata, draw: st.DataObject) -> None:
    """Whatever is missing, and whichever copying fails: no entry ever has fewer replicas than before."""
    names = [f"b{at}" for at in range(8)]
    held: dict[str, set[int]] = {name: set() for name in names}
    for entry_id in range(metadata.last_entry_id + 1):
        ensemble = metadata.segment_of(entry_id).ensemble
        places = metadata.write_set(entry_id)
        for place in draw.draw(st.lists(st.sampled_from(places), min_size=1, unique=True)):
            held[ensemble[place]].add(entry_id)
    lost = draw.draw(st.sets(st.sampled_from(names), max_size=2))
    entries = [
        one
        for one in range(metadata.last_entry_id + 1)
        if any(one in held[bookie] for bookie in names if bookie not in lost)
    ]
    there = [name for name in names if name not in lost]
    story = Story()
    story.metadata, story.lac, story.held, story.lost = metadata, metadata.last_entry_id, held, lost
    for failing in (True, *[False] * 3):
        for missing in story.missing_replicas(every_entry=True)[0]:
            before = {one: copies(story.metadata, held, one) for one in entries}
            repair = repair_of(missing, IN_ORDER, there)
            if repair is None:
                continue
            assert all(index in missing.indexes for index in repair.successors)
            plan = list(repair.copies(story.metadata))
            stops = draw.draw(st.integers(0, len(plan))) if failing else len(plan)
            readable = [one for one in plan if one[0] in entries]
            for entry_id, targets in readable[:stops]:
                for target in targets:
                    held[target].add(entry_id)
            changed = repair.repaired(story.metadata)
            if stops >= len(plan) and len(readable) == len(plan) and changed is not None:
                story.metadata = changed
            for one in entries:
                assert copies(story.metadata, held, one) >= before[one]
    if len(entries) == metadata.last_entry_id + 1 and len(there) >= metadata.ensemble_size:
        for one in entries:
            assert copies(story.metadata, held, one) == metadata.write_quorum
        assert not story.missing_replicas(every_entry=True)[0]


@given(metadata=ledgers(), index=st.integers(0, 4))
def test_ends_are_the_first_and_last_that_are_held(metadata: LedgerMetadata, index: int) -> None:
    for fragment in fragments_of(metadata, -1):
        if index < metadata.ensemble_size:
            held = [one for one in fragment.entry_ids if index in metadata.write_set(one)]
            assert list(held_by(metadata, fragment, index)) == held
            assert ends_at(metadata, fragment, index) == tuple(dict.fromkeys([*held[:1], *held[-1:]]))


def test_metadata_that_changed_meanwhile_is_left_alone() -> None:
    metadata = LedgerMetadata(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        segments=(Segment(0, ("a", "b", "c")), Segment(10, ("a", "b", "d"))),
    )
    one = MissingReplicas(Fragment(0, 9, ("a", "b", "c"), sealed=True), {1: Result.NO_SUCH_ENTRY})
    repair = repair_of(one, IN_ORDER, ["a", "c", "e"])
    assert repair is not None
    assert repair.successors == {1: "e"}
    changed = repair.repaired(metadata)
    assert changed is not None
    assert changed.segments[0].ensemble == ("a", "e", "c")
    assert repair.repaired(changed) is None, "b was replaced"
    others = (Segment(0, ("e", "b", "c")), *metadata.segments[1:])
    taken = LedgerMetadata(ensemble_size=3, write_quorum=2, ack_quorum=2, segments=others)
    assert repair.repaired(taken) is None, "e is elsewhere in the ensemble"
    open_end = MissingReplicas(Fragment(10, 12, ("a", "b", "d"), sealed=False), {1: Result.NO_SUCH_ENTRY})
    at_end = repair_of(open_end, IN_ORDER, ["e"])
    assert at_end is not None
    assert at_end.repaired(metadata) is None, "its writer may be adding"


def test_a_bookie_without_entries_is_not_needed() -> None:
    segments = (Segment(0, ("a", "b")), Segment(5, ("a", "c")))
    closed = LedgerMetadata(
        ensemble_size=2,
        write_quorum=1,
        ack_quorum=1,
        segments=segments,
        state=LedgerState.CLOSED,
        last_entry_id=4,
    )
    assert [keeps_entries(closed, one) for one in "abcd"] == [True, True, False, False]
