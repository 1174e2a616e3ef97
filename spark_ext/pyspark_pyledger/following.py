"""What a stream follows, and a read of brokers plans: folders or brokers, behind one face."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyledger.errors import ConfigError, PyLedgerError
from pyledger.model.message import QueueRange
from pyspark_pyledger.bounds import end_of, start_of
from pyspark_pyledger.folder_tail import FolderTail
from pyspark_pyledger.options import EARLIEST, ReadOptions
from pyspark_pyledger.partitions import AnyPartition
from pyspark_pyledger.positions import Offsets, QueueKey


class Tail(Protocol):
    """What a stream follows."""

    replaced: set[str]
    unavailable: dict[str, PyLedgerError]
    """Folders and brokers that could not be asked at the last refresh, and why."""

    def refresh(self) -> Mapping[QueueKey, QueueRange]:
        """Queue offsets that each wanted queue holds now, of the sources that are there."""

    def is_authoritative(self, key: QueueKey) -> bool:
        """Whether the last refresh proves what it shows of a queue, and that it is gone when it lacks it."""

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""

    def cut(self, starts: Offsets, ends: Offsets, rows: int | None, size_bytes: int | None) -> Offsets:
        """Where a trigger ends that takes so many rows or bytes at most."""

    def plan(self, starts: Offsets, ends: Offsets) -> Sequence[AnyPartition]:
        """Partitions of what stands between."""

    def close(self) -> None:
        """Let go of what is open."""


def open_tail(options: ReadOptions) -> Tail:
    """Open what options name."""
    return FolderTail(options) if options.name_servers is None else _broker_tail(options)


def _broker_tail(options: ReadOptions) -> Tail:
    """Who reads folders only does not wait for the client to be imported."""
    from pyspark_pyledger.broker_tail import BrokerTail

    return BrokerTail(options)


def plan_brokers(options: ReadOptions) -> list[AnyPartition]:
    """Pin the ends of all queues and cut what is wanted into partitions, for a batch read.

    Raises:
        ConfigError: a topic is not there, or offsets name what is not and data loss matters.
        RemotingError: no name server, or a broker and its slaves, cannot be reached.
    """
    tail = _broker_tail(options)
    try:
        held = tail.refresh()
        for error in tail.unavailable.values():
            raise error
        known = {topic for topic, _broker_name, _queue_id in held}
        for topic in options.topics or ():
            if topic not in known:
                raise ConfigError("topics", f"there is no topic {topic!r}", f"at {options.name_servers}")
        starts = {key: start_of(tail, key, queue, options, EARLIEST) for key, queue in held.items()}
        ends = {key: end_of(tail, key, queue, options) for key, queue in held.items()}
        return list(tail.plan(starts, ends))
    finally:
        tail.close()
