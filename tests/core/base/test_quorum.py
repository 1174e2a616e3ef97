"""The quorum index: native, by definition, DLedger's formula and etcd's, all equal."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyledger import errors
from pyledger.model import quorum
from tests.models import quorum as model
from tests.support import datadriven

TESTDATA = Path(__file__).parent / "testdata"
INDEX = st.integers(-1, 12) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INDEX, min_size=1, max_size=15))
@example([-1])
@example([5] * 15)
@example(list(range(15)))
@example(list(range(14, -1, -1)))
def test_quorum_index_equals_both_formulas(water_marks: list[int]) -> None:
    before = list(water_marks)
    index = quorum.quorum_index(water_marks, len(water_marks))
    assert index == model.by_definition(water_marks)
    assert index == model.descending(water_marks) == model.ascending(water_marks)
    assert water_marks == before


@given(st.lists(INDEX, min_size=16, max_size=60))
def test_quorum_index_of_a_large_group_equals_definition(water_marks: list[int]) -> None:
    assert quorum.quorum_index(water_marks, len(water_marks)) == model.by_definition(water_marks)


@pytest.mark.parametrize(
    ("water_marks", "voters"), [([1, 2, 3], 2), ([1, 2], 3), ([], 0), ([], 1), ([1], -1)]
)
def test_quorum_index_of_other_than_all_voters_is_our_mistake(water_marks: list[int], voters: int) -> None:
    with pytest.raises(errors.InvariantError, match="water marks"):
        quorum.quorum_index(water_marks, voters)


@pytest.mark.parametrize(
    ("water_marks", "error"),
    [((1, 2), TypeError), ([None], TypeError), ([1.5], TypeError), ([2**63], OverflowError)],
)
def test_quorum_index_of_no_list_of_indexes_is_rejected(
    water_marks: list[int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        quorum.quorum_index(water_marks, len(water_marks))


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=9))
def test_vote_result_does_not_depend_on_missing_votes(votes: list[bool | None]) -> None:
    def outcome(silent: bool) -> bool:
        return sum(silent if vote is None else vote for vote in votes) * 2 > len(votes)

    result = quorum.vote_result({str(i): vote for i, vote in enumerate(votes)})
    if result is quorum.VoteResult.PENDING:
        assert outcome(True)
        assert not outcome(False)
    else:
        assert outcome(True) == outcome(False) == (result is quorum.VoteResult.WON)


def answer(step: datadriven.Step) -> str:
    voters = step.items("cfg")
    if step.command == "committed":
        marks = [None if mark == "_" else int(mark) for mark in step.items("idx")]
        return quorum.describe(dict(zip(voters, marks, strict=True)))
    assert step.command == "vote"
    answers = [{"y": True, "n": False, "_": None}[vote] for vote in step.items("votes")]
    return quorum.vote_result(dict(zip(voters, answers, strict=True))).value


def test_quorum_story(rewrite: bool) -> None:
    datadriven.run(TESTDATA / "quorum.txt", answer, rewrite=rewrite)
