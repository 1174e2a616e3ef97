"""Majorities: the highest index that one holds, what a vote came to, and both as text.

Invariant: two majorities of the same voters share a voter, so what one holds no other can undo.
Source: DLedger DLedgerEntryPusher.java (QuorumAckChecker); etcd raft quorum/majority.go.
"""

from collections.abc import Mapping
from enum import Enum

from pyledger._core import quorum_index

__all__ = ["NO_INDEX", "VoteResult", "describe", "quorum_index", "vote_result"]

NO_INDEX = -1
"""Water mark of a voter that holds nothing, or has not been heard of. The first index is 0, as in DLedger."""


class VoteResult(Enum):
    """What a vote came to."""

    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def vote_result(votes: Mapping[str, bool | None]) -> VoteResult:
    """Count a vote.

    Args:
        votes: Every voter with its answer: granted, refused, or None while it is silent.

    Returns:
        WON once a majority granted; LOST once a majority can no longer be reached; PENDING until then.
    """
    majority = len(votes) // 2 + 1
    granted = sum(vote is True for vote in votes.values())
    refused = sum(vote is False for vote in votes.values())
    if granted >= majority:
        return VoteResult.WON
    return VoteResult.LOST if len(votes) - refused < majority else VoteResult.PENDING


def describe(water_marks: Mapping[str, int | None]) -> str:
    """Draw the water marks of a group, one voter a line, for people and text tests.

    Args:
        water_marks: Every voter with its index, or None where nothing is known (drawn as `?`).

    Returns:
        A bar as long as the number of voters that hold less, then the index, the voter, and a mark at those
        who hold the quorum index; the quorum index itself in the last line.
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
