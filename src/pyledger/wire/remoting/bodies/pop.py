"""Texts and bodies of popping: handles of messages, acknowledgements, and what a broker notes of them.

Source: RocketMQ remoting/.../protocol/body/BatchAckMessageRequestBody.java, BatchAck.java,
header/ExtraInfoUtil.java; store/.../pop/PopCheckPoint.java, AckMsg.java, BatchAckMsg.java.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Self

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.headers.codec import Int, Long

BIT_SET_SIZE_MAX_BYTES = 4096
ORDER_REVIVE_QUEUE = 999
"""In place of a queue of the revive topic: the message was popped in order."""


@lazy_dataclass(kw_only=True)
class BatchAck(Body):
    """Messages of one pop from one queue."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "consumer_group": "c",
        "topic": "t",
        "retry": "r",
        "start_offset": "so",
        "queue_id": "q",
        "revive_queue_id": "rq",
        "pop_time": "pt",
        "invisible_time": "it",
        "bit_set": "b",
    }

    consumer_group: str | None = None
    topic: str | None = None
    retry: str | None = None
    """`0` for the topic itself, `1` or `2` for its retry topics."""
    start_offset: Long = 0
    queue_id: Int = 0
    revive_queue_id: Int = 0
    pop_time: Long = 0
    invisible_time: Long = 0
    bit_set: str | None = None
    """Base64; see `acked_offsets`."""

    @property
    def acked_offsets(self) -> tuple[int, ...]:
        """Queue offsets that are acknowledged: those whose bits are set, counted from `start_offset`."""
        try:
            bits = base64.b64decode(self.bit_set or "", validate=False)[:BIT_SET_SIZE_MAX_BYTES]
        except binascii.Error:
            return ()
        return tuple(
            self.start_offset + 8 * at + bit
            for at, byte in enumerate(bits)
            for bit in range(8)
            if byte >> bit & 1
        )


def encode_bit_set(positions: Iterable[int]) -> str:
    """Write positions, from 0, as the base64 of Java's `BitSet`."""
    number = 0
    for position in positions:
        number |= 1 << position
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


@lazy_dataclass(kw_only=True)
class BatchAckRequest(Body):
    """200151; upstream's `BatchAckMessageRequestBody`."""

    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()


@lazy_dataclass()
class PopHandle:
    """What a client acknowledges a popped message with: property `POP_CK`, field `extraInfo`."""

    start_offset: int
    """First queue offset of what was popped with it from its queue, units."""
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry: str
    """`0` for the topic itself, `1` or `2` for its retry topics."""
    broker_name: str
    queue_id: int
    queue_offset: int

    def encode(self) -> str:
        """The text of it."""
        return (
            f"{self.start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue_id} {self.retry} "
            f"{self.broker_name} {self.queue_id} {self.queue_offset}"
        )

    @classmethod
    def decode(cls, text: str) -> Self | None:
        """Read the text; None: it is no such thing."""
        parts = text.split(" ")
        numbers = [parts[at] for at in (0, 1, 2, 3, 6, 7)] if len(parts) == 8 else [""]
        if not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in numbers):
            return None
        start, pop_ms, invisible_ms, revive, queue_id, offset = map(int, numbers)
        return cls(start, pop_ms, invisible_ms, revive, parts[4], parts[5], queue_id, offset)


class PoppedQueue(NamedTuple):
    """One queue in the response to a pop."""

    retry: str
    queue_id: int
    start_offset: int
    offsets: Sequence[int]
    """Queue offsets of its messages."""


def start_offset_info(queues: Iterable[PoppedQueue]) -> str:
    """Field `startOffsetInfo`."""
    return ";".join(f"{one.retry} {one.queue_id} {one.start_offset}" for one in queues)


def message_offset_info(queues: Iterable[PoppedQueue]) -> str:
    """Field `msgOffsetInfo`."""
    return ";".join(f"{one.retry} {one.queue_id} {','.join(map(str, one.offsets))}" for one in queues)


def order_count_info(retry: str, queue_id: int, offsets: Sequence[int], times: Mapping[int, int]) -> str:
    """Encode a queue's part of the field `orderCountInfo`: how often its messages were popped before.

    Args:
        retry: `0` for the topic itself.
        queue_id: Of the queue.
        offsets: Queue offsets of all messages that are popped from it.
        times: By queue offset, where it is not 0.
    """
    items = [f"{retry} qo{queue_id}%{offset} {count}" for offset, count in sorted(times.items())]
    # Older clients know a number for the queue alone.
    least = min((times.get(offset, 0) for offset in offsets), default=0)
    return ";".join([*items, f"{retry} {queue_id} {least}"])


CHECKPOINT_TAG = "ck"
ACK_TAG = "bAck"
SINGLE_ACK_TAG = "ack"


@lazy_dataclass(kw_only=True)
class PopCheckpoint(Body):
    """Body of a message that notes what was popped from one queue; upstream's `PopCheckPoint`."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "start_offset": "so",
        "pop_time": "pt",
        "invisible_time": "it",
        "bit_map": "bm",
        "count": "n",
        "queue_id": "q",
        "topic": "t",
        "group": "c",
        "revive_offset": "ro",
        "differences": "d",
        "broker_name": "bn",
        "put_again_times": "rp",
    }

    start_offset: Long
    pop_time: Long
    invisible_time: Long
    bit_map: Int = 0
    count: Int = 0
    queue_id: Int
    topic: str
    group: str
    revive_offset: Long = 0
    differences: tuple[Int, ...] = ()
    """Offsets of the messages, from `start_offset`."""
    broker_name: str | None = None
    put_again_times: str = "0"

    @property
    def open_offsets(self) -> tuple[int, ...]:
        """Queue offsets of the messages that were not acknowledged when it was written."""
        differences = self.differences or range(self.count)
        return tuple(
            self.start_offset + difference
            for at, difference in enumerate(differences)
            if not self.bit_map >> at & 1
        )


@lazy_dataclass(kw_only=True)
class PopAcks(Body):
    """Body of a message that notes what is acknowledged; upstream's `BatchAckMsg`."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "ack_offset": "ao",
        "start_offset": "so",
        "group": "c",
        "topic": "t",
        "queue_id": "q",
        "pop_time": "pt",
        "broker_name": "bn",
        "ack_offsets": "aol",
    }

    ack_offset: Long = 0
    start_offset: Long
    group: str
    topic: str
    queue_id: Int
    pop_time: Long
    broker_name: str | None = None
    ack_offsets: tuple[Long, ...] = ()
    """Queue offsets; empty: `ack_offset` alone."""
