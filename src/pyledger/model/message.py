"""Messages and their positions in a store: `Message`, `MessageQueue`, `PutResult`, `QueueRange`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from reprlib import repr as shortened
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from pyledger.errors import IllegalMessageError

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
WRONG_TYPES = (TypeError, AttributeError, ValueError, OverflowError)
"""What the code that writes or sends a message raises for a value of a wrong type."""


@dataclass(slots=True)
class Message:
    """A message to be written.

    `body` is stored as given. `keys` are separated by single spaces, as upstream indexes them. `properties`
    are the user's own; `TAGS`, `KEYS` and `DELAY` come from their fields.

    Fields can be assigned, so a message is not hashable. Do not change one, or share it with a thread that
    does, from the moment it is put or sent until that call has returned.
    """

    topic: str
    body: bytes | bytearray | memoryview
    queue_id: int = 0
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int = 0
    """1 to 18; 0 delivers at once."""
    flag: int = 0
    """A number for the application; the store does not interpret it."""
    sys_flag: int = 0
    born_timestamp_ms: int | None = None
    """None: the time of the put."""
    born_host: tuple[str, int] | None = None
    """None: the store's own host. An IPv4 or IPv6 literal and a port."""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def check_types(message: object) -> None:
    """Check the types of a message, after one of `WRONG_TYPES` was raised for it.

    Raises:
        IllegalMessageError: it is not a message, or a field has a wrong type.
    """
    if not isinstance(message, Message):
        raise IllegalMessageError(f"{_described(message)}; give a Message")
    for name, hint in get_type_hints(Message).items():
        value = getattr(message, name)
        if not isinstance(value, _class_of(hint)):
            shown = hint.__name__ if isinstance(hint, type) else hint
            raise IllegalMessageError(f"message.{name}: {_described(value)}; give a value of type {shown}")
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            raise IllegalMessageError(f"message.{name}: {shortened(value)} is out of range")


def check_all_types(messages: object) -> None:
    """Check the types of several messages as `check_types` does.

    Raises:
        IllegalMessageError: they are not several messages, or a field of one has a wrong type.
    """
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise IllegalMessageError(f"{_described(messages)}; give a Message or several")
    for message in messages:
        check_types(message)


def _described(value: object) -> str:
    return f"{shortened(value)} is of type {type(value).__name__}"


def _class_of(hint: Any) -> Any:
    """Return what `isinstance` takes for an annotation: its classes without their parameters."""
    if get_origin(hint) is UnionType:
        return reduce(or_, map(_class_of, get_args(hint)))
    return get_origin(hint) or hint


class PutResult(NamedTuple):
    """Position of a stored message."""

    physical_offset: int
    """Bytes from the start of the commit log."""
    size_bytes: int
    queue_offset: int
    """Units in its consume queue."""
    store_timestamp_ms: int
    msg_id: str
    """RocketMQ's offset message id: store host and physical offset in upper-case hex."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Queue offsets that a consume queue holds: `min_offset <= offset < max_offset`, in units."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """A queue of a topic at one broker; sorts as upstream does, by topic, broker name and queue id."""

    topic: str
    broker_name: str
    queue_id: int
