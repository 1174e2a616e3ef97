"""Majorities: the highest index that a majority holds, the result of a vote, and both as text.

Invariant: two majorities of the same voters share a voter, so no majority can undo what another one holds.
Source: DLedger DLedgerEntryPusher.java (QuorumAckChecker); etcd raft quorum/majority.go.
"""

from collections.abc import Mapping
from enum import Enum

from pyledger._core import quorum_index

__all__ = ["NO_INDEX", "VoteResult", "describe", "quorum_index", "vote_result"]

NO_INDEX = -1
"""Watermark of a voter that holds nothing or has not reported. The first index is 0, as in DLedger."""


class VoteResult(Enum):
    """Result of a vote."""

    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def vote_result(votes: Mapping[str, bool | None]) -> VoteResult:
    """Count a vote.

    Args:
        votes: Every voter with its response: True granted, False rejected, None no response yet.

    Returns:
        WON once a majority granted; LOST once a majority can no longer be reached; PENDING until then.
    """
    majority = len(votes) // 2 + 1
    granted = sum(vote is True for vote in votes.values())
    rejected = sum(vote is False for vote in votes.values())
    if granted >= majority:
        return VoteResult.WON
    return VoteResult.LOST if len(votes) - rejected < majority else VoteResult.PENDING


def describe(water_marks: Mapping[str, int | None]) -> str:
    """Draw the watermarks of a group, one voter per line, for people and text tests.

    Args:
        water_marks: Every voter with its index, or None if it is not known (drawn as `?`).

    Returns:
        One line per voter: a bar as long as the number of voters that hold less, the index, the voter,
        and `*` if it holds the quorum index. The last line is the quorum index.
    """
    known = {voter: NO_INDEX if mark is None else mark for voter, mark in water_marks.items()}
    marks = sorted(known.values())
    committed = quorum_index(marks, len(known))
    lines = []
    for voter, mark in known.items():
        bar = "?" if water_marks[voter] is None else "x" * marks.index(mark) + ">"
        index = "_" if water_marks[voter] is None else str(mark)
        holds = " *" if mark >= committed > NO_INDEX else ""
        lines.append(f"{bar:<{len(known)}} {index:>6} {voter}{holds}")
    return "\n".join([*lines, f"quorum index {committed}"])
