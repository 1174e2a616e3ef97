"""MessageStore: one folder of Apache RocketMQ's store, open for writing and reading.

Threads may share a store; their appends have one order, that of the log. Only one process writes to a folder
at a time. docs/design/crash_safety.md states what survives a crash.
"""

import asyncio
import ipaddress
import os
import sys
import warnings
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack, cast

from pyledger._core import DurableAppender, MessageScan, QueueAppender, StoredMessage
from pyledger.clock import Clock, SystemClock
from pyledger.config.keywords import StoreSettings
from pyledger.config.store import StoreConfig
from pyledger.errors import FlushTimeoutError, StoreClosedError
from pyledger.model.message import WRONG_TYPES, Message, PutResult, QueueRange, check_all_types, check_types
from pyledger.model.names import WAIT
from pyledger.model.times import Time, stored_between, time_ms
from pyledger.protocol.broker.delay_levels import redirect_delayed
from pyledger.store.messages.opening import StoreComponents, open_parts
from pyledger.store.messages.recovery import RecoveryReport
from pyledger.store.messages.services import StoreServices, StoreStatistics
from pyledger.store.queues.get_result import GetResult
from pyledger.store.queues.queue_reader import QueueReader

MAX_COUNT = 32
MAX_BYTES = 128 << 20
FlushFuture = asyncio.Future[bool]
"""True after the flush, False after the timeout; fails with StoreFailedError."""


class MessageStore:
    """A store folder that is open for writing. Make one with `open`; use it as a context manager."""

    def __init__(self, services: StoreServices) -> None:
        components = services.components
        self.path = components.path
        """The folder."""
        self.config = components.config
        """The settings in force."""
        self.recovery: RecoveryReport = components.report
        """What opening found and did."""
        self._services = services
        self._components = components
        self._reader = components.reader
        address = ipaddress.ip_address(self.config.store_host).packed
        self._id_prefix = (address + self.config.store_port.to_bytes(4, "big")).hex().upper()
        self._finalizer = weakref.finalize(self, abandon, services)
        _open_stores.add(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: StoreConfig | None = None,
        *,
        create: bool = True,
        truncate_at_corruption: bool = False,
        clock: Clock | None = None,
        **settings: Unpack[StoreSettings],
    ) -> Self:
        """Open a folder for writing: lock it, recover it, start the services.

        Args:
            path: The store's folder, with `commitlog` in it.
            config: All settings. None: upstream's defaults, with the file sizes that the folder has.
            create: Make the folder when it is not there.
            truncate_at_corruption: Truncate the log at damage in its middle, as upstream does; False: raise.
            clock: Clock of the services.
            settings: Single settings of `StoreConfig`, instead of `config`.

        Raises:
            StoreLockedError: another process, or another object of this one, has the folder open for writing.
            StoreNotFoundError: there is no store, and `create` is false.
            StoreFormatError: files of wrong size, foreign files, or queues without a log.
            CorruptRecordError: records that were durable once are damaged, with valid records after them.
            ConfigError: an unknown setting, or a value out of range.

        Cost: reads what the last checkpoint does not cover of the log; after a clean shutdown its last file.
        """
        components = open_parts(
            os.fspath(path), config, settings, create=create, truncate_at_corruption=truncate_at_corruption
        )
        try:
            return cls(StoreServices(components, clock or SystemClock()))
        except BaseException:
            components.lock.release()
            raise

    # -- writing

    def put(self, message: Message) -> PutResult:
        """Store a message.

        Returns:
            Its offsets. A delayed message is stored in `SCHEDULE_TOPIC_XXXX`.

        Raises:
            IllegalMessageError: a name, property or host that no reader could read back.
            RecordTooLargeError: body or properties exceed the limit.
            StoreFullError: no space; nothing was written, and a later put may succeed.
            StoreFailedError: an earlier flush failed.
            FlushTimeoutError: stored, but not on disk in time.

        Durability: with sync flush the message is on disk; with async flush see docs/design/crash_safety.md.
        """
        result = self._append(message)
        if waits(message):
            self._wait_durable((result,))
        return result

    def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store messages in order, all of them or none, with one wait for all.

        Raises:
            IllegalMessageError: as `put`, for any of them; and so StoreFullError, StoreFailedError.
            RecordTooLargeError: as `put`, or the messages together do not fit into one file of the log.
            FlushTimeoutError: stored, but not on disk in time.
        """
        results = self._append_all(messages)
        self._wait_durable(results)
        return results

    async def aput(self, message: Message) -> PutResult:
        """As `put`, for coroutines. The callers of one event loop share a flush."""
        result = self._append(message)
        if waits(message):
            await self._durable((result,))
        return result

    async def aput_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """As `put_batch`, for coroutines."""
        results = self._append_all(messages)
        await self._durable(results)
        return results

    def _append(self, message: Message) -> PutResult:
        # This takes two thirds of the time of a batch of one.
        try:
            if message.delay_level > 0:
                message = redirect_delayed(message)
            offset, size_bytes, queue_offset, stored_ms = self._components.commit_log.append(
                message.topic,
                message.queue_id,
                message.body,
                message.tags,
                message.keys,
                message.properties or None,
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp_ms=message.born_timestamp_ms or 0,
                born_host=message.born_host,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
        except WRONG_TYPES:
            check_types(message)
            raise
        return PutResult(offset, size_bytes, queue_offset, stored_ms, f"{self._id_prefix}{offset:016X}")

    def _append_all(self, messages: Sequence[Message]) -> list[PutResult]:
        try:
            stored = [redirect_delayed(one) if one.delay_level > 0 else one for one in messages]
            return self._results(self._components.commit_log.append_messages(stored))
        except WRONG_TYPES:
            check_all_types(messages)
            raise

    def _results(self, records: Iterable[tuple[int, int, int, int]]) -> list[PutResult]:
        prefix = self._id_prefix
        return [PutResult(*record, f"{prefix}{record[0]:016X}") for record in records]

    def _wait_durable(self, results: Sequence[PutResult]) -> None:
        group, timeout_ms = self._components.put_group, self.config.sync_flush_timeout_ms
        if results and group is not None and not group.wait(end_offset(results), timeout_ms):
            raise FlushTimeoutError(results[0].physical_offset, timeout_ms)

    async def _durable(self, results: Sequence[PutResult]) -> None:
        flush = self._until_durable(end_offset(results)) if results else None
        if flush is not None and not await flush:
            raise FlushTimeoutError(results[0].physical_offset, self.config.sync_flush_timeout_ms)

    def _until_durable(self, offset: int) -> FlushFuture | None:
        """Return a future of the running loop: True once bytes below a physical offset are on disk."""
        group, timeout_ms = self._components.put_group, self.config.sync_flush_timeout_ms
        return None if group is None else group.register(offset, asyncio.get_running_loop(), timeout_ms)

    def appender(self, topic: str, queue_id: int) -> QueueAppender | DurableAppender:
        """Return an appender for many messages to one queue: `put(body, …)` and `put_many(bodies, …)`.

        Durability: as `put`. With async flush it is the native appender. With sync flush each call waits for
            a flush, which the messages of one `put_many` share.
        """
        components = self._components
        native, group = components.commit_log.appender(topic, queue_id), components.put_group
        if group is None:
            return native
        return DurableAppender(native, group, self.config.sync_flush_timeout_ms)

    # -- reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
        tags: str | None = None,
    ) -> GetResult:
        """Read a queue from an offset on.

        Args:
            topic: Topic of the queue.
            queue_id: Number of the queue.
            offset: First queue offset wanted (units).
            max_count: Maximum number of messages; never more than 32, or 8 if they must be read from disk.
            max_bytes: Maximum size of their records; at most 256 KiB are returned, or 64 KiB from disk.
            tags: Only messages with one of these tags: `a || b`; None or `*`: all.

        Returns:
            RocketMQ's status, the next offset, and the messages. The first message is returned even if it
            exceeds `max_bytes`.
        """
        return self._reader.get(topic, queue_id, offset, max_count, max_bytes, tags)

    def messages(self, start_offset: int | None = None) -> MessageScan:
        """Return the current messages in log order, from the record at a physical offset (bytes) on."""
        return self._reader.messages(start_offset)

    def message_at(self, physical_offset: int) -> StoredMessage:
        """Return the message whose record begins at a physical offset (bytes).

        Raises:
            OffsetOutOfRangeError: outside the log.
            CorruptRecordError: no record begins there.
        """
        return self._reader.message_at(physical_offset)

    def message_by_id(self, msg_id: str) -> StoredMessage:
        """Return the message with an offset message id, such as `PutResult.msg_id`."""
        return self._reader.message_by_id(msg_id)

    def query(
        self, topic: str, key: str, *, since: Time | None = None, until: Time | None = None, limit: int = 64
    ) -> list[StoredMessage]:
        """Return messages of a topic with a key (`KEYS` or `UNIQ_KEY`), oldest first.

        Args:
            topic: Their topic.
            key: One of their keys.
            since: Stored at or after this time: ms since 1970, or a datetime with a time zone.
            until: Stored before this time.
            limit: Most messages, the newest; at most 64, as upstream.
        """
        return self._reader.query(topic, key, *stored_between(since, until), limit)

    def offset_by_time(self, topic: str, queue_id: int, time: Time, *, upper: bool = False) -> int:
        """Return the queue offset of the first message stored at or after a time, or with `upper` the last.

        Args:
            topic: Topic of the queue.
            queue_id: Number of the queue.
            time: Ms since 1970, or a datetime with a time zone.
            upper: Search for the last message stored at or before the time.
        """
        return self._reader.offset_by_time(topic, queue_id, time_ms("time", time), upper=upper)

    def queue_range(self, topic: str, queue_id: int) -> QueueRange:
        """Return the range of offsets that a queue holds."""
        return self._reader.queue_range(topic, queue_id)

    def queues(self) -> dict[tuple[str, int], QueueRange]:
        """All queues that ever got a message, by topic and queue id."""
        return self._reader.ranges()

    def count_messages(
        self, topic: str, queue_id: int, start_offset: int, end_offset: int, tags: str | None = None
    ) -> int:
        """Messages in a range of queue offsets (units); with tags an estimate from the first 20,000."""
        return self._reader.count_messages(topic, queue_id, start_offset, end_offset, tags)

    @property
    def min_offset(self) -> int:
        """Physical offset (bytes) of the log's start; 0 for an empty one."""
        return max(0, self._components.log.min_offset)

    @property
    def max_offset(self) -> int:
        """Physical offset (bytes) of the log's end."""
        return self._components.log.max_offset

    @property
    def flushed_where(self) -> int:
        """Physical offset (bytes) up to which the log is on disk."""
        return self._components.log.flushed_where

    @property
    def confirmed_where(self) -> int:
        """Physical offset (bytes) up to which messages can be read: with sync flush what is on disk."""
        return self._components.confirmed_where()

    # -- maintenance

    def flush(self) -> int:
        """Flush log, queues and index, then write the checkpoint; return the flushed offset (bytes).

        Raises:
            StoreFailedError: a flush failed, now or earlier.
        """
        return self._services.flush()

    def dispatch(self) -> int:
        """Dispatch all confirmed messages; return the physical offset (bytes) up to which that is done."""
        self._reader.catch_up()
        return self._components.dispatcher.dispatched_where

    def delete_expired(self, *, immediate: bool = False) -> list[str]:
        """Run one round of cleaning now: at most `delete_files_max` commit-log files past their retention.

        Args:
            immediate: Delete the oldest files whatever their age. The last file always stays.

        Returns:
            Paths of the deleted files, those of queues and index that name nothing else included. Empty when
            none may be deleted: repeat until then to delete all.
        """
        return self._services.delete_expired(immediate=immediate)

    def statistics(self) -> StoreStatistics:
        """Return current counts and offsets."""
        return self._services.statistics()

    def close(self) -> None:
        """Flush everything, bring queues up to date, write the checkpoint, and release the folder.

        A failed store is closed without an error: the abort file stays, and the next opening recovers.
        """
        if self._finalizer.detach() is None:
            return
        services = self._services
        self._become_closed()
        services.close()

    def _become_closed(self) -> None:
        closed = ClosedParts(self.path)
        self._services = cast("StoreServices", closed)
        self._components = cast("StoreComponents", closed)
        self._reader = cast("QueueReader", closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def waits(message: Message) -> bool:
    """Whether a put waits for its flush; a producer may waive that by the property WAIT=false."""
    return message.properties.get(WAIT) != "false"


def end_offset(results: Sequence[PutResult]) -> int:
    """Physical offset (bytes) of the end of what was stored."""
    return results[-1].physical_offset + results[-1].size_bytes


class ClosedParts:
    """Replaces the parts of a closed store: any use raises StoreClosedError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> NoReturn:
        raise StoreClosedError(self._path)


_open_stores: weakref.WeakSet[MessageStore] = weakref.WeakSet()


def abandon(services: StoreServices) -> None:
    """Release an unclosed store: its object is gone, or the interpreter ends. The abort file stays."""
    services.abandon()
    if not sys.is_finalizing():
        warnings.warn(f"{services.components.path}: the store was not closed", ResourceWarning, stacklevel=2)


def _close_in_child() -> None:
    """Close all stores in a forked child, which has neither the threads of its parent nor its lock."""
    for store in list(_open_stores):
        store._finalizer.detach()
        store._become_closed()


os.register_at_fork(after_in_child=_close_in_child)
