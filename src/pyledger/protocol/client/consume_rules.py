"""What becomes of a message that its listener could not process, and where a group starts.

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
"""Of a message that fails for the first time: 10 s; each further time a level more."""


class StartPoint(Enum):
    """Where in a queue a group starts that was never there."""

    BEGIN = "begin"
    """Offset 0; the broker corrects it when that is gone."""
    END = "end"
    TIME = "time"


def start_point(consume_from: str, topic: str) -> StartPoint:
    """Where to start.

    Args:
        consume_from: `last_offset`, `first_offset` or `timestamp`.
        topic: The topic; retries of a group are never skipped, except with a time.
    """
    is_retry = topic.startswith(RETRY_PREFIX)
    if consume_from == "timestamp":
        return StartPoint.END if is_retry else StartPoint.TIME
    return StartPoint.BEGIN if is_retry or consume_from == "first_offset" else StartPoint.END


def times_max(configured: int, *, orderly: bool) -> int:
    """Failures until a message is given up; -1 is upstream's default."""
    if configured >= 0:
        return configured
    return ORDERLY_TIMES_MAX if orderly else RECONSUME_TIMES_MAX


def suspend_ms(asked_ms: int | None, configured_ms: int) -> int:
    """How long a queue pauses whose orderly listener failed."""
    wanted = configured_ms if asked_ms is None else asked_ms
    return min(max(wanted, SUSPEND_MIN_MS), SUSPEND_MAX_MS)
