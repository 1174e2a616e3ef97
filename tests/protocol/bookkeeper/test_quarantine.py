"""Bookies that failed are not changed for each other without end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.protocol.bookkeeper.ledger_writer import LedgerWriter, Replacements
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment
from pyledger.protocol.bookkeeper.placement import Placement
from pyledger.protocol.bookkeeper.quarantine import REST_MS, Quarantine, replacements
from pyledger.protocol.bookkeeper.result_codes import Result

HISTORY_MS = 60_000


def test_a_rest_doubles_with_each_failure_after_it() -> None:
    quarantine = Quarantine(HISTORY_MS)
    now_ms, rest_ms = 5_000, REST_MS
    for _ in range(12):
        quarantine.failed("b", now_ms)
        quarantine.failed("b", now_ms + rest_ms - 1)  # an older request
        assert quarantine.resting(now_ms + rest_ms - 1) == ["b"]
        assert quarantine.rested_ms(["b"]) == now_ms + rest_ms
        assert quarantine.resting(now_ms + rest_ms) == []
        assert quarantine.avoided(now_ms + rest_ms) == ["b"]
        now_ms, rest_ms = now_ms + rest_ms, min(2 * rest_ms, HISTORY_MS)
    assert quarantine.avoided(now_ms + HISTORY_MS) == []
    quarantine.failed("b", now_ms + HISTORY_MS + 1)
    assert quarantine.rested_ms(["b"]) == now_ms + HISTORY_MS + 1 + REST_MS


@dataclass
class World:
    """A writer whose bookies answer at once, its clock, and what it stored."""

    alive: set[str]
    writable: list[str]
    metadata: LedgerMetadata
    now_ms: int = 0
    changes: int = 0
    confirmed: list[int] = field(default_factory=list)
    failed: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.quarantine = Quarantine(HISTORY_MS)
        self.machine = LedgerWriter(self.metadata, self.replace)

    def replace(self, ensemble: tuple[str, ...], failed: Mapping[int, str], needed: bool) -> Replacements:
        placement = Placement(lambda _list: None)
        return replacements(
            placement, self.quarantine, self.writable, ensemble, failed, self.now_ms, needed=needed
        )

    def add(self) -> None:
        self.machine.add([b"x"], self.now_ms)
        self.follow()

    def follow(self) -> None:
        while (ready := self.machine.ready()) is not None:
            for bookie, send in [(bookie, one) for one in ready.sends for bookie in one.bookies]:
                result = Result.OK if bookie in self.alive else Result.BOOKIE_NOT_AVAILABLE
                if result is not Result.OK:
                    self.quarantine.failed(bookie, self.now_ms)
                self.machine.answered(bookie, send.first_entry_id, result)
            if ready.proposal is not None:
                self.changes += 1
                self.machine.stored(ready.proposal.wanted)
            self.confirmed += [one.entry_id for one in ready.added if one.result is Result.OK]
            self.failed += [one.result for one in ready.added if one.result is not Result.OK]

    def pass_time(self, duration_ms: int, act: Callable[[], None] = lambda: None) -> None:
        """Ten times a second."""
        for _ in range(duration_ms // 100):
            self.now_ms += 100
            deadline_ms = self.machine.deadline_ms()
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                self.machine.tick(self.now_ms)
                self.follow()
            act()


def world(alive: str, writable: str, *, ensemble: str, ack_quorum: int) -> World:
    size = len(ensemble)
    metadata = LedgerMetadata(
        ensemble_size=size, write_quorum=size, ack_quorum=ack_quorum, segments=(Segment(0, tuple(ensemble)),)
    )
    return World(set(alive), list(writable), metadata)


def test_dead_spares_are_not_changed_for_each_other() -> None:
    one = world("ab", "abcd", ensemble="abc", ack_quorum=2)
    one.pass_time(HISTORY_MS // 2, one.add)
    assert one.confirmed == list(range(HISTORY_MS // 200))
    assert one.changes == 1, "from c to d, which nobody had tried"
    one.pass_time(HISTORY_MS * 10, one.add)
    assert one.changes <= 12, "one try in the time that failures count"
    one.writable.append("e")
    one.alive.add("e")
    one.add()
    assert one.machine.metadata.segments[-1].ensemble == ("a", "b", "e")
    assert not one.failed


def test_a_writer_that_needs_another_bookie_waits_for_one() -> None:
    one = world("a", "abcd", ensemble="abc", ack_quorum=2)
    one.add()
    changes = one.changes
    one.pass_time(HISTORY_MS * 2)
    assert not one.confirmed
    assert not one.failed
    assert one.changes <= changes + 20, "each rest is twice as long"
    one.alive.add("d")
    one.pass_time(HISTORY_MS)
    assert one.confirmed == [0]


def test_a_writer_without_any_other_bookie_fails_once_it_needs_one() -> None:
    one = world("ab", "abc", ensemble="abc", ack_quorum=2)
    one.add()
    one.add()
    assert one.confirmed == [0, 1]
    one.alive.remove("b")
    one.add()
    assert one.failed == [Result.NOT_ENOUGH_BOOKIES]


def test_a_bookie_that_is_back_is_written_to() -> None:
    one = world("ab", "abc", ensemble="abc", ack_quorum=2)
    one.add()
    assert not one.machine.in_order
    one.alive.add("c")
    one.add()
    assert one.machine.in_order
    assert (one.changes, one.confirmed) == (0, [0, 1])


@pytest.mark.parametrize("ack_quorum", [1, 2, 3])
@given(data=st.data())
def test_whatever_dies_and_returns(ack_quorum: int, data: st.DataObject) -> None:
    """Entries are confirmed as long as enough bookies live, with a bounded number of changes."""
    one = world("abc", "abcdef", ensemble="abc", ack_quorum=ack_quorum)
    for _ in range(data.draw(st.integers(1, 8))):
        one.alive = data.draw(st.sets(st.sampled_from("abcdef"), max_size=6))
        one.pass_time(data.draw(st.sampled_from([0, 1_000, 20_000])))
        if one.machine.failure is None:
            one.add()
    changes, begun_ms = one.changes, one.now_ms
    one.alive = set("abcdef")
    one.pass_time(2 * HISTORY_MS)
    if one.machine.failure is None:
        assert one.confirmed == list(range(one.machine.last_add_pushed + 1))
    assert one.changes <= changes + 6 * (one.now_ms - begun_ms) // HISTORY_MS + 6
    assert one.changes <= 6 * (6 + 8)
