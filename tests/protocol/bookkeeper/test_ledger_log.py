"""A cursor's state against a set of entries; the bytes of both nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import LedgerMetadataError
from pyledger.protocol.bookkeeper.managed_ledger import CursorState, LogIndex, ManagedLedgerSegment, Position
from pyledger.wire.bookkeeper.managed_ledger import decode_cursor, decode_index, encode_cursor, encode_index

# Ids need not ascend: the order of the index counts.
INDEX = LogIndex((ManagedLedgerSegment(7, 2, 30), ManagedLedgerSegment(3, 0, 1), ManagedLedgerSegment(9)))
ALL = [Position(7, at) for at in range(3)] + [Position(3, 0)] + [Position(9, at) for at in range(4)]


@given(st.lists(st.tuples(st.sampled_from(ALL), st.booleans()), max_size=20))
def test_acknowledging_is_as_a_set(steps: list[tuple[Position, bool]]) -> None:
    state, model = CursorState(), set[Position]()
    for position, through in steps:
        if through:
            state.acknowledge_through(INDEX, position)
            model |= set(ALL[: ALL.index(position) + 1])
        else:
            state.acknowledge(INDEX, [position])
            model.add(position)
        assert {one for one in ALL if state.has(INDEX, one)} == model
        done = next((at for at, one in enumerate(ALL) if one not in model), len(ALL))
        assert state.mark == (ALL[done - 1] if done else None), "the mark has no gap before it"
        assert decode_cursor(encode_cursor(state)) == state
        kept = [run for runs in state.acknowledged.values() for run in runs]
        assert sum(map(len, kept)) == len(model - set(ALL[:done])), "nothing is kept twice"


def test_what_follows() -> None:
    state = CursorState()
    places, at = [], None
    for _ in range(6):
        at = state.next_of(INDEX, at)
        places.append(at)
    assert places == ALL[:6]
    closed = LogIndex((ManagedLedgerSegment(7, 2, 30),))
    assert state.next_of(closed, Position(7, 2)) is None
    assert state.next_of(INDEX, Position(1, 5)) == Position(7, 0), "its ledger was trimmed"
    assert state.next_of(LogIndex(), None) is None


def test_a_log_of_ledgers() -> None:
    index = LogIndex().begun(5)
    assert index.growing == ManagedLedgerSegment(5)
    assert index.ended(-1, 0) == LogIndex(), "an empty ledger is left out"
    index = index.ended(9, 100).begun(6)
    assert index.ledgers == (ManagedLedgerSegment(5, 9, 100), ManagedLedgerSegment(6))
    assert decode_index(encode_index(index)) == index
    assert index.without_before([6]) == (LogIndex((ManagedLedgerSegment(6),)), (5,))
    assert index.without_before([6, 5]) == (index, ())
    assert index.without_before([]) == (index, ())
    with pytest.raises(LedgerMetadataError):
        index.begun(7)
    with pytest.raises(LedgerMetadataError):
        index.ended(1, 1).begun(5)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version":2}', b'{"version":1}', b'{"version":1,"ledgers":[1]}']
)
def test_malformed_nodes(data: bytes) -> None:
    for decode in (decode_index, decode_cursor):
        with pytest.raises(LedgerMetadataError):
            decode(data)
