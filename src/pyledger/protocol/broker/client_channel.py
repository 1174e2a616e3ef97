"""One client at one broker: what both tables, consumers and producers, know of it."""

from collections.abc import Hashable
from dataclasses import dataclass

from pyledger.model.lazy_dataclass import lazy_dataclass

Channel = Hashable
"""A connection, as the shell names it."""


@dataclass(slots=True)
class Client:
    """A member of a group. Upstream keys members by connection, so two connections are two members."""

    channel: Channel
    client_id: str
    language: int | None
    version: int
    seen_ms: int
    """Last heartbeat."""

    def expired(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether it has been silent for too long."""
        return now_ms - self.seen_ms > timeout_ms


@lazy_dataclass()
class Notice:
    """Connections to notify that the members of a group have changed."""

    group: str
    channels: tuple[Channel, ...]
