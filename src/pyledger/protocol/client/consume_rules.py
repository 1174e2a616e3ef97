"""Retries of messages that a listener could not process, and the start offset of a group.

Source: RocketMQ client/.../impl/consumer/ConsumeMessageConcurrentlyService.java (processConsumeResult),
ConsumeMessageOrderlyService.java, RebalancePushImpl.java (computePullFromWhereWithException).
"""

from enum import Enum

from pyledger.model.names import RETRY_PREFIX

RECONSUME_TIMES_MAX = 16
ORDERLY_TIMES_MAX = (1 << 31) - 1
SUSPEND_MIN_MS = 10
SUSPEND_MAX_MS = 30_000
FIRST_DELAY_LEVEL = 3
"""Delay level of a message that fails for the first time: 10 s; one level more for each further failure."""


class StartPoint(Enum):
    """Where a group without an offset starts to consume a queue."""

    BEGIN = "begin"
    """Offset 0; the broker corrects it if that message was deleted."""
    END = "end"
    TIME = "time"


def start_point(consume_from: str, topic: str) -> StartPoint:
    """Return where to start.

    Args:
        consume_from: `last_offset`, `first_offset` or `timestamp`.
        topic: The topic; for a retry topic `last_offset` starts at the beginning, `timestamp` at the end.
    """
    is_retry = topic.startswith(RETRY_PREFIX)
    if consume_from == "timestamp":
        return StartPoint.END if is_retry else StartPoint.TIME
    return StartPoint.BEGIN if is_retry or consume_from == "first_offset" else StartPoint.END


def times_max(configured: int, *, orderly: bool) -> int:
    """Return the number of failures after which a message is given up; -1 selects upstream's default."""
    if configured >= 0:
        return configured
    return ORDERLY_TIMES_MAX if orderly else RECONSUME_TIMES_MAX


def suspend_ms(requested_ms: int | None, configured_ms: int) -> int:
    """Return the pause (ms) of a queue whose orderly listener failed."""
    wanted = configured_ms if requested_ms is None else requested_ms
    return min(max(wanted, SUSPEND_MIN_MS), SUSPEND_MAX_MS)
