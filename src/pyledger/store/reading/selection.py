"""Which messages are wanted: topics, queues, store times, tags and key."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from pyledger._core import StoredMessage
from pyledger.config.fields import checked_choice, checked_limit, checked_type, checked_values
from pyledger.model.tags import java_hash, parse_tags
from pyledger.model.times import Time, time_ms


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions on a message; None for no condition."""

    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    since_ms: int | None = None
    """Stored at or after, ms."""
    until_ms: int | None = None
    """Stored before, ms."""
    tags: tuple[str, ...] | None = None
    key: str | None = None
    tag_codes: frozenset[int] | None = field(init=False, default=None)
    """Hashes of the tags, as consume queues hold them."""

    def __post_init__(self) -> None:
        if self.tags is not None:
            object.__setattr__(self, "tag_codes", frozenset(map(java_hash, self.tags)))

    @classmethod
    def of(
        cls, topics: str | Iterable[str] | None, queues: Iterable[int] | None, since: Time | None,
        until: Time | None, tags: str | None, key: str | None,
    ) -> Self:  # fmt: skip
        """Return the selection of the arguments of `StoreReader.messages`.

        Raises:
            ConfigError: an argument has another type, or is out of range.
            SubscriptionSyntaxError: `tags` is not an expression.
        """
        checked_type("key", key, str | None)
        names, ids = checked_values("topics", topics, str), checked_values("queues", queues, int)
        return cls(
            topics=None if names is None else frozenset(names),
            queues=None if ids is None else frozenset(ids),
            since_ms=time_ms("since", since),
            until_ms=time_ms("until", until),
            tags=parse_tags(tags),
            key=key,
        )

    def pick(self, messages: Iterable[StoredMessage]) -> Iterable[StoredMessage]:
        """Return the messages that match; costs nothing without conditions."""
        conditions = (self.topics, self.queues, self.since_ms, self.until_ms, self.tags, self.key)
        return messages if all(one is None for one in conditions) else filter(self.matches, messages)

    def matches(self, message: StoredMessage) -> bool:
        """Whether a message is selected."""
        return (
            (self.topics is None or message.topic in self.topics)
            and (self.queues is None or message.queue_id in self.queues)
            and (self.since_ms is None or message.store_timestamp >= self.since_ms)
            and (self.until_ms is None or message.store_timestamp < self.until_ms)
            and (self.tags is None or message.tags in self.tags)
            and (self.key is None or carries_key(message, self.key))
        )


def carries_key(message: StoredMessage, key: str) -> bool:
    """Whether the index files a message under a key: its client id, or one of its keys."""
    return key == message.unique_key or key in (message.keys or "").split(" ")


def check_reading(
    order: str, start_offset: int | None, end_offset: int | None, limit: int | None, tail: int | None
) -> None:
    """Check the arguments of `StoreReader.messages` that select no message by itself.

    Raises:
        ConfigError: an unknown order, an offset that is no number, or a count below 0.
    """
    checked_type("start_offset", start_offset, int | None)
    checked_type("end_offset", end_offset, int | None)
    checked_choice("order", order, ("log", "queue"))
    checked_limit("limit", limit, 0)
    checked_limit("tail", tail, 0)
