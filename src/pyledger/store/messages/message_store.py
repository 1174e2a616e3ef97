"""MessageStore: one folder of Apache RocketMQ's store, open for writing and reading.

Threads may share a store; appends have one order, which is the log's. Only one process writes to a folder at
a time. See docs/design/crash_safety.md for what survives what.
"""

import os
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack, cast

from pyledger._core import (
    DurableAppender,
    LogView,
    MessageScan,
    PullBatch,
    QueueAppender,
    SendBatchAppender,
    StoredMessage,
)
from pyledger.clock import Clock, SystemClock
from pyledger.config.keywords import StoreSettings
from pyledger.config.store import StoreConfig
from pyledger.errors import FlushTimeoutError, StoreClosedError
from pyledger.model.message import Message, PutResult, QueueRange
from pyledger.store.files.retention import DiskUsage, disk_usage
from pyledger.store.messages.async_put import Future, durable
from pyledger.store.messages.message_writer import Buffer, MessageWriter, waits
from pyledger.store.messages.opening import StoreComponents, open_parts
from pyledger.store.messages.recovery import RecoveryReport
from pyledger.store.messages.replica import StoreReplica
from pyledger.store.messages.services import StoreServices, StoreStatistics
from pyledger.store.queues.get_result import GetRanges, GetResult
from pyledger.store.queues.queue_reader import END_OF_TIME_MS, QueueReader

MAX_COUNT = 32
MAX_BYTES = 128 << 20


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
        self._writer = components.writer
        self._reader = components.reader
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
        usage: DiskUsage = disk_usage,
        bulk: bool = False,
        **settings: Unpack[StoreSettings],
    ) -> Self:
        """Open a folder for writing: lock it, recover it, start the services.

        Args:
            path: The store's folder, with `commitlog` in it.
            config: All settings. None: upstream's defaults, with the file sizes that the folder has.
            create: Make the folder when it is not there.
            truncate_at_corruption: Truncate the log at damage in its middle, as upstream does; False: raise.
            clock: Where the services get the time from.
            usage: How full (percent) the file system of a path is.
            bulk: Nothing is made ready ahead of appends: `append_rows` goes past the mapping.
            settings: Single settings of `StoreConfig`, instead of `config`.

        Raises:
            StoreLockedError: another process, or another object of this one, has the folder open for writing.
            StoreNotFoundError: there is no store, and `create` is false.
            StoreFormatError: files of wrong size, foreign files, or queues without a log.
            CorruptRecordError: records that were durable once are damaged, with sound records behind them.
            ConfigError: an unknown setting, or a value out of range.

        Cost: reads the log from where the last checkpoint vouches for it; after a clean exit its last file.
        """
        components = open_parts(
            os.fspath(path), config, settings, create=create, truncate_at_corruption=truncate_at_corruption
        )
        try:
            return cls(StoreServices(components, clock or SystemClock(), usage, bulk=bulk))
        except BaseException:
            components.lock.release()
            raise

    # -- writing

    def put(self, message: Message) -> PutResult:
        """Store a message.

        Returns:
            Where it stands. A delayed message stands in `SCHEDULE_TOPIC_XXXX`.

        Raises:
            IllegalMessageError: a name, property or host that no reader could read back.
            RecordTooLargeError: body or properties exceed the limit.
            StoreFullError: no space; nothing was written, and a later put may succeed.
            StoreFailedError: an earlier flush failed.
            FlushTimeoutError: stored, but not on disk in time.

        Durability: with sync flush the message is on disk; with async flush see docs/design/crash_safety.md.
        """
        return self._writer.put(message)

    def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store messages in order, with one wait for all.

        Each is checked by the rules of `put` before the first is written: a refusal leaves nothing.

        Raises:
            StoreFullError: no space. Messages before it may be stored: that cannot be foreseen.
        """
        return self._writer.put_all(messages)

    async def aput(self, message: Message) -> PutResult:
        """As `put`, from a coroutine: all that wait in a loop share a flush, without a thread for each."""
        result = self._writer.append(message)
        group = self._writer.group
        if group is not None and waits(message):
            end = result.physical_offset + result.size_bytes
            if not await durable(group, end, self.config.sync_flush_timeout_ms):
                raise FlushTimeoutError(result.physical_offset, self.config.sync_flush_timeout_ms)
        return result

    async def aput_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """As `put_batch`, from a coroutine."""
        results = self._writer.append_all(messages)
        group = self._writer.group
        if results and group is not None:
            end = results[-1].physical_offset + results[-1].size_bytes
            if not await durable(group, end, self.config.sync_flush_timeout_ms):
                raise FlushTimeoutError(results[0].physical_offset, self.config.sync_flush_timeout_ms)
        return results

    def append(self, message: Message) -> PutResult:
        """Store a message without waiting for its durability: `until_durable` tells when it is there.

        Raises:
            IllegalMessageError: as `put`; and so RecordTooLargeError, StoreFullError, StoreFailedError.
        """
        return self._writer.append(message)

    def send_batches(
        self, added_properties: bytes, special: tuple[bytes, ...], region: str, *, trace_on: bool
    ) -> SendBatchAppender:
        """The prepared way for sends as a broker receives them; arguments as `SendBatchAppender`."""
        return SendBatchAppender(self._writer.commit_log, added_properties, special, region, trace_on)

    def append_encoded_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        *,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
    ) -> list[PutResult]:
        """As `put_encoded_batch`, without waiting for durability; `born_timestamp_ms` in ms since 1970."""
        return self._writer.append_encoded_batch(
            topic,
            queue_id,
            batch,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            reconsume_times=reconsume_times,
        )

    def append_inner_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        properties: Mapping[str, str] | None = None,
        *,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
    ) -> PutResult:
        """As `put_inner_batch`, without waiting for durability; `born_timestamp_ms` in ms since 1970."""
        return self._writer.append_inner_batch(
            topic,
            queue_id,
            batch,
            properties,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            reconsume_times=reconsume_times,
        )

    def until_durable(self, end_offset: int) -> "Future[bool] | None":
        """What becomes true in the running event loop when bytes below a physical offset are durable.

        Returns:
            None where nothing needs to be awaited: with async flush. The result is False when the flush is
            later than `sync_flush_timeout_ms`; StoreFailedError ends it when the flush failed.
        """
        group = self._writer.group
        return None if group is None else durable(group, end_offset, self.config.sync_flush_timeout_ms)

    def put_encoded_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        *,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
    ) -> list[PutResult]:
        """Store the messages of a RocketMQ client's batch body as records of their own, all in one file."""
        return self._writer.put_encoded_batch(
            topic, queue_id, batch, born_timestamp_ms=born_timestamp_ms, born_host=born_host
        )

    def put_inner_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
    ) -> PutResult:
        """Store a client's batch body as one record, in a queue of batches (`queue.type=BatchCQ`)."""
        return self._writer.put_inner_batch(
            topic,
            queue_id,
            batch,
            tags,
            keys,
            properties,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
        )

    def appender(self, topic: str, queue_id: int) -> QueueAppender | DurableAppender:
        """A prepared way to one queue, for many messages: `put(body, …)` and `put_many(bodies, …)`.

        Durability: as `put`. With async flush it is the native appender; with sync flush each call waits for
            the flush, so `put_many` is the way to share it.
        """
        return self._writer.appender(topic, queue_id)

    # -- reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
        tags: str | None = None,
    ) -> GetResult:
        """Read a queue from an offset on.

        Args:
            topic: Topic of the queue.
            queue_id: Number of the queue.
            offset: First queue offset wanted (units).
            max_count: Most messages; a call gives at most 32, or 8 of old ones that lie on disk, as upstream.
            max_bytes: Most bytes of records; a call gives at most 256 KiB, or 64 KiB from disk.
            tags: Only messages with one of these tags: `a || b`; None or `*`: all.

        Returns:
            RocketMQ's status, the offset to go on from, and the messages. The first message is given whatever
            its size.
        """
        return self._reader.get(topic, queue_id, offset, max_count, max_bytes, tags)

    def get_ranges(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
        tags: str | None = None,
    ) -> GetRanges:
        """As `get`, from a queue offset (units) on, but as ranges of the log; tags are told by hash alone."""
        return self._reader.get_ranges(topic, queue_id, offset, max_count, max_bytes, tags)

    @property
    def answer_pulls(self) -> Callable[..., PullBatch | None]:
        """The prepared way for pulls as a broker receives them: `QueueReader.answer_pulls`."""
        return self._reader.answer_pulls

    def messages(self, start_offset: int | None = None) -> MessageScan:
        """All messages of this moment in log order, from a physical offset (bytes) of a record on."""
        return self._reader.messages(start_offset)

    def log_view(self) -> LogView:
        """The bytes of the log that are as durable as they should be, at this moment."""
        return self._components.log.view(self._components.confirmed_where())

    def replica(self) -> StoreReplica:
        """The log's end for bytes that a master sends; nothing else may be put while it is in use."""
        self._services.append_by_file()
        components = self._components
        return StoreReplica(
            components.log,
            components.commit_log,
            components.dispatch_notifier,
            self._writer.group,
            components.dispatch_from,
        )

    def message_at(self, physical_offset: int) -> StoredMessage:
        """The message whose record stands at a physical offset (bytes).

        Raises:
            OffsetOutOfRangeError: outside the log.
            CorruptRecordError: no record stands there.
        """
        return self._reader.message_at(physical_offset)

    def message_by_id(self, msg_id: str) -> StoredMessage:
        """The message with an offset message id, such as `PutResult.msg_id`."""
        return self._reader.message_by_id(msg_id)

    def query(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = END_OF_TIME_MS, limit: int = 64
    ) -> list[StoredMessage]:
        """Messages of a topic with a key (`KEYS` or `UNIQ_KEY`), stored between two times (ms), oldest first.

        Args:
            topic: Their topic.
            key: One of their keys.
            begin_ms: Earliest store time.
            end_ms: Latest store time.
            limit: Most messages, the newest; at most 64, as upstream.
        """
        return self._reader.query(topic, key, begin_ms, end_ms, limit)

    @property
    def index_end(self) -> tuple[int, int]:
        """Store time (ms) and physical offset (bytes) of the last message that the index has; 0, 0: none."""
        return self._reader.index_end()

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """Queue offset of the first message stored at or after a time (ms); upper: the last until it."""
        return self._reader.offset_by_time(topic, queue_id, timestamp_ms, upper=upper)

    def queue_range(self, topic: str, queue_id: int) -> QueueRange:
        """Offsets that a queue holds."""
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

    # -- keeping

    def flush(self) -> int:
        """Make all that was put durable: log, queues, index, then the checkpoint; the flushed offset (bytes).

        Raises:
            StoreFailedError: a flush failed, now or earlier.
        """
        return self._services.flush()

    def flush_log(self) -> int:
        """Make the log alone durable; the flushed offset (bytes). Queues can be rebuilt from it."""
        return self._services.flush_log()

    def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        """Wait until the flush service has made bytes below a physical offset durable; False when late."""
        return self._services.wait_flushed(offset, timeout_ms)

    def dispatch(self) -> int:
        """Bring queues and index up to what is confirmed; the physical offset (bytes) they have reached."""
        self._reader.catch_up()
        return self._components.dispatcher.dispatched_where

    def delete_expired(self, *, immediate: bool = False) -> list[str]:
        """Run one round of cleaning now: at most `delete_files_max` commit-log files past their retention.

        Args:
            immediate: The oldest files go whatever their age. The last file always stays.

        Returns:
            Paths of the deleted files, those of queues and index that name nothing else included. Empty when
            nothing may go: repeat until then to delete all.
        """
        return self._services.delete_expired(immediate=immediate)

    def clean(self) -> list[str]:
        """One round of cleaning, as the service does by hour and by a filling disk; the deleted files."""
        return self._services.clean()

    def statistics(self) -> StoreStatistics:
        """Counts and positions of this moment."""
        return self._services.statistics()

    def close(self) -> None:
        """Flush everything, bring queues up to date, write the checkpoint, and let the folder go.

        A store that had failed is closed without an error: the abort file stays, and its next open recovers.
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
        self._writer = cast("MessageWriter", closed)
        self._reader = cast("QueueReader", closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ClosedParts:
    """Stands in for the parts of a closed store: whatever is asked of it, the store is closed."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> NoReturn:
        raise StoreClosedError(self._path)


_open_stores: weakref.WeakSet[MessageStore] = weakref.WeakSet()


def abandon(services: StoreServices) -> None:
    """Let an unclosed store go: its object is gone, or the interpreter ends. The abort file stays."""
    services.abandon()
    if not sys.is_finalizing():
        warnings.warn(f"{services.components.path}: the store was not closed", ResourceWarning, stacklevel=2)


def _close_in_child() -> None:
    """A forked child has the objects of its parent but none of its threads, and not its lock."""
    for store in list(_open_stores):
        store._finalizer.detach()
        store._become_closed()


os.register_at_fork(after_in_child=_close_in_child)
