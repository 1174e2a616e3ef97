"""Acknowledging many popped messages at once.

Source: RocketMQ remoting/.../protocol/body/BatchAckMessageRequestBody.java, BatchAck.java.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyledger.wire.body import Body
from pyledger.wire.headers.codec import Int, Long

BIT_SET_SIZE_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckRequest(Body):
    """200151; upstream's `BatchAckMessageRequestBody`."""

    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()
