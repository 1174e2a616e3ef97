"""Delay levels: a message with one is stored in a topic of its own, with its real destination in properties.

Only the storing is done here; delivery at the due time is the broker's. The queue unit of such a message
holds the delivery time in place of the tags code (dispatch computes it).

Source: RocketMQ broker/.../HookUtils.java (handleScheduleMessage); store/.../MessageStoreConfig.java.
"""

from dataclasses import replace

from pyledger.message import Message
from pyledger.names import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SECONDS,
    TIMER_DELIVER_MS,
)

DELAY_LEVELS_MS = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""Delay of levels 1 to 18."""

TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_COMMIT = 0x8
TIMER_PROPERTIES = frozenset({TIMER_DELAY_SECONDS, TIMER_DELIVER_MS, TIMER_DELAY_MS})


def is_delayed(message: Message) -> bool:
    """Tell whether the message goes to the schedule topic: prepared and rolled-back ones never do."""
    return message.delay_level > 0 and message.sys_flag & TRANSACTION_MASK in (
        TRANSACTION_NONE,
        TRANSACTION_COMMIT,
    )


def redirect_delayed(message: Message) -> Message:
    """The message as it is stored: in the schedule topic, queue = level - 1; levels above 18 become 18."""
    level = min(message.delay_level, len(DELAY_LEVELS_MS))
    properties = {name: value for name, value in message.properties.items() if name not in TIMER_PROPERTIES}
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QUEUE_ID] = str(message.queue_id)
    return replace(
        message, topic=SCHEDULE_TOPIC, queue_id=level - 1, delay_level=level, properties=properties
    )
