"""Delay levels, as far as storing goes: a message with one is stored in the schedule topic.

Delivery at the due time is the broker's, by the rules of `protocol/broker/delay_levels.py`. The queue unit
of such a message holds the delivery time in place of the tags code (dispatch computes it).

Source: RocketMQ broker/.../HookUtils.java (handleScheduleMessage).
"""

from dataclasses import replace

from pyledger.model.message import Message
from pyledger.model.names import DELAY, SCHEDULE_TOPIC
from pyledger.model.sys_flag import TRANSACTION_MASK, TransactionType
from pyledger.protocol.broker.delay_levels import DELAY_LEVELS_MS, redirect_properties


def is_delayed(message: Message) -> bool:
    """Tell whether the message goes to the schedule topic: prepared and rolled-back ones never do."""
    return message.delay_level > 0 and message.sys_flag & TRANSACTION_MASK in (
        TransactionType.NONE,
        TransactionType.COMMIT,
    )


def redirect_delayed(message: Message) -> Message:
    """The message as it is stored: in the schedule topic, queue = level - 1; levels above 18 become 18."""
    level = min(message.delay_level, len(DELAY_LEVELS_MS))
    properties = redirect_properties(message.properties, message.topic, message.queue_id, level)
    del properties[DELAY]
    return replace(
        message, topic=SCHEDULE_TOPIC, queue_id=level - 1, delay_level=level, properties=properties
    )
