"""Results of reading a queue, with RocketMQ's names."""

from enum import IntEnum
from typing import NamedTuple

from pyledger._core import RecordRanges, StoredMessage

__all__ = ["GONE", "STATUSES", "GetRanges", "GetResult", "GetStatus", "StoredMessage"]


class GetStatus(IntEnum):
    """Outcome of reading a queue from an offset on.

    Source: RocketMQ store/.../GetMessageStatus.java, in its order.
    """

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    """Messages were passed, none had a wanted tag; go on at the next offset."""
    MESSAGE_WAS_REMOVING = 2
    """The records were deleted meanwhile; go on at the next offset."""
    OFFSET_FOUND_NULL = 3
    """The queue file was deleted meanwhile; go on at the next offset."""
    OFFSET_OVERFLOW_BADLY = 4
    """Beyond the end; the next offset is the end."""
    OFFSET_OVERFLOW_ONE = 5
    """At the end: nothing yet."""
    OFFSET_TOO_SMALL = 6
    """Deleted; the next offset is the least one."""
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    """Nothing was ever put there."""


STATUSES = tuple(GetStatus)
GONE = frozenset((GetStatus.OFFSET_TOO_SMALL, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL))
"""The message is deleted; the next offset may be that of one that is not."""


class GetResult(NamedTuple):
    """Messages of one queue, in order."""

    status: GetStatus
    next_offset: int
    """Queue offset (units) of the next read."""
    min_offset: int
    """Least queue offset (units) that is kept."""
    max_offset: int
    """Queue offset (units) that the next message will get."""
    messages: list[StoredMessage]


class GetRanges(NamedTuple):
    """The same as ranges of the log's bytes, without a copy: what a broker sends."""

    status: GetStatus
    next_offset: int
    """Queue offset (units) of the next read."""
    min_offset: int
    """Least queue offset (units) that is kept."""
    max_offset: int
    """Queue offset (units) that the next message will get."""
    ranges: RecordRanges
    message_count: int
    """Messages in the ranges."""
