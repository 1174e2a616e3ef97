"""Messages and their positions in a store: `Message`, `MessageQueue`, `PutResult`, `QueueRange`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


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
