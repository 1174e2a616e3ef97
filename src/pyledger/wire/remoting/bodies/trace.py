r"""What clients write of the way of a message: who sent it, who consumed it, when, how it went.

A record is its fields, separated by `\x01` and closed by `\x02`; a message to the trace topic holds several.
A field that has no value reads `null`.

Source: RocketMQ client/.../trace/TraceDataEncoder.java, TraceConstants.java, TraceType.java;
common/.../message/MessageType.java.
"""

from collections.abc import Iterator
from enum import IntEnum

from pyledger.model.lazy_dataclass import lazy_dataclass

FIELD_END = "\x01"
RECORD_END = "\x02"
NOTHING = "null"
SENT, BEGUN, ENDED = "Pub", "SubBefore", "SubAfter"


class TracedKind(IntEnum):
    """What kind of message was sent."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeEnd(IntEnum):
    """How a listener ended."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    NULL = 3
    FAILED = 4


@lazy_dataclass(kw_only=True)
class SendTrace:
    """A message was sent."""

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    """The id that its producer gave it."""
    tags: str | None = None
    keys: str | None = None
    store_host: str
    """`host:port` of the broker."""
    body_bytes: int
    took_ms: int
    kind: int = TracedKind.NORMAL
    offset_msg_id: str = ""
    succeeded: bool = True

    def encode(self) -> str:
        """The record."""
        return record(
            SENT,
            self.time_ms,
            self.region,
            self.group,
            self.topic,
            self.msg_id,
            self.tags,
            self.keys,
            self.store_host,
            self.body_bytes,
            self.took_ms,
            int(self.kind),
            self.offset_msg_id,
            self.succeeded,
        )


@lazy_dataclass(kw_only=True)
class BeginTrace:
    """A listener begins with a message."""

    time_ms: int
    region: str | None
    group: str
    request_id: str
    """Joins it to its `EndTrace`."""
    msg_id: str
    reconsume_times: int
    keys: str | None = None

    def encode(self) -> str:
        """The record."""
        return record(
            BEGUN,
            self.time_ms,
            self.region,
            self.group,
            self.request_id,
            self.msg_id,
            self.reconsume_times,
            self.keys,
        )


@lazy_dataclass(kw_only=True)
class EndTrace:
    """A listener is done with a message."""

    request_id: str
    msg_id: str
    took_ms: int
    succeeded: bool
    keys: str | None = None
    end: int = ConsumeEnd.SUCCESS
    time_ms: int = 0
    """0 and an empty group: sent by older clients."""
    group: str = ""

    def encode(self) -> str:
        """The record."""
        return record(
            ENDED,
            self.request_id,
            self.msg_id,
            self.took_ms,
            self.succeeded,
            self.keys,
            int(self.end),
            self.time_ms,
            self.group,
        )


Trace = SendTrace | BeginTrace | EndTrace


def record(*fields: object) -> str:
    """Fields as Java writes them."""
    texts = (
        NOTHING if one is None else str(one).lower() if isinstance(one, bool) else str(one) for one in fields
    )
    return FIELD_END.join(texts) + RECORD_END


def decode_traces(text: str) -> Iterator[Trace]:
    """The records of a trace message; those of other kinds, and broken ones, are left out."""
    for one in text.split(RECORD_END):
        kind, *fields = one.split(FIELD_END)
        try:
            if kind == SENT:
                yield sent_of(fields)
            elif kind == BEGUN:
                time_ms, region, group, request_id, msg_id, times, keys = fields[:7]
                yield BeginTrace(
                    time_ms=int(time_ms),
                    region=text_of(region),
                    group=group,
                    request_id=request_id,
                    msg_id=msg_id,
                    reconsume_times=int(times),
                    keys=text_of(keys),
                )
            elif kind == ENDED:
                yield ended_of(fields)
        except ValueError:
            continue


def sent_of(fields: list[str]) -> SendTrace:
    """Parse a send; older clients leave out the offset id, and newer ones append fields."""
    time_ms, region, group, topic, msg_id, tags, keys, host, size, took_ms, kind, *rest = fields
    if not rest:
        raise ValueError
    return SendTrace(
        time_ms=int(time_ms),
        region=region,
        group=group,
        topic=topic,
        msg_id=msg_id,
        tags=text_of(tags),
        keys=text_of(keys),
        store_host=host,
        body_bytes=int(size),
        took_ms=int(took_ms),
        kind=int(kind),
        offset_msg_id=rest[0] if len(rest) > 1 else "",
        succeeded=rest[min(1, len(rest) - 1)].lower() == "true",
    )


def ended_of(fields: list[str]) -> EndTrace:
    """Parse the end of a listener; older clients send fewer fields."""
    request_id, msg_id, took_ms, succeeded, keys, *rest = fields
    return EndTrace(
        request_id=request_id,
        msg_id=msg_id,
        took_ms=int(took_ms),
        succeeded=succeeded.lower() == "true",
        keys=text_of(keys),
        end=int(rest[0]) if rest and rest[0] else 0,
        time_ms=int(rest[1]) if len(rest) > 2 else 0,
        group=rest[2] if len(rest) > 2 else "",
    )


def text_of(field: str) -> str | None:
    """A field that may have no value."""
    return None if field == NOTHING else field
