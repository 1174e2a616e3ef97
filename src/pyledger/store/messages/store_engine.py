"""StoreEngine: a store as servers use it: appends without waiting, batches of clients, pulls, replicas."""

from collections.abc import Callable

from pyledger._core import LogView, PullBatch, SendBatchAppender, choose_queues
from pyledger.model.message import Message, PutResult
from pyledger.store.messages.message_store import MAX_BYTES, MAX_COUNT, FlushFuture, MessageStore
from pyledger.store.messages.replica import StoreReplica
from pyledger.store.queues.get_result import GetRanges

__all__ = ["StoreEngine", "choose_queues"]

Buffer = bytes | bytearray | memoryview


class StoreEngine(MessageStore):
    """A store with what a broker and its replication need besides the public methods."""

    # -- writing

    def append(self, message: Message) -> PutResult:
        """Store a message without waiting for its durability; see `until_durable`.

        Raises:
            IllegalMessageError: as `put`; and so RecordTooLargeError, StoreFullError, StoreFailedError.
        """
        return self._append(message)

    def append_encoded_batch(self, batch: Message) -> list[PutResult]:
        """Store the messages of a client's batch body as records of their own, all in one file.

        Raises:
            IllegalMessageError: the body is no valid batch; nothing was written.
            RecordTooLargeError: the batch exceeds the body limit, or does not fit into one file.
        """
        records = self._components.commit_log.append_encoded_batch(
            batch.topic,
            batch.queue_id,
            batch.body,
            sys_flag=batch.sys_flag,
            born_timestamp_ms=batch.born_timestamp_ms or 0,
            born_host=batch.born_host,
            reconsume_times=batch.reconsume_times,
        )
        return self._results(records)

    def append_inner_batch(self, batch: Message) -> PutResult:
        """Store a client's batch body as one record, in a queue of batches (`queue.type=BatchCQ`).

        Raises:
            IllegalMessageError: the body is no valid batch; nothing was written.
            RecordTooLargeError: a limit is exceeded.
        """
        record = self._components.commit_log.append_inner_batch(
            batch.topic,
            batch.queue_id,
            batch.body,
            batch.tags,
            batch.keys,
            batch.properties,
            sys_flag=batch.sys_flag,
            born_timestamp_ms=batch.born_timestamp_ms or 0,
            born_host=batch.born_host,
            reconsume_times=batch.reconsume_times,
        )
        return self._results((record[:4],))[0]

    def send_batches(
        self, added_properties: bytes, special: tuple[bytes, ...], region: str, *, trace_on: bool
    ) -> SendBatchAppender:
        """The prepared way for sends as a broker receives them; arguments as `SendBatchAppender`."""
        return SendBatchAppender(self._components.commit_log, added_properties, special, region, trace_on)

    def append_rows(
        self,
        topic: str,
        queue_ids: Buffer,
        bodies: tuple[Buffer, Buffer],
        properties: tuple[Buffer, Buffer],
        born_ms: Buffer,
    ) -> None:
        """Append one message for each row of a topic, in their order.

        Args:
            topic: Topic of all rows.
            queue_ids: The queue of each row (int32).
            bodies: Offsets (int32, one more than rows) and bytes.
            properties: The same, in the stored form, name 0x01 value 0x02 …, tags and keys included.
            born_ms: Born timestamp of each row (int64, ms); 0: the time of the append.

        Raises:
            IllegalMessageError: the columns do not fit together; nothing was written.
            RecordTooLargeError: a row exceeds a limit; those before it were written.
            StoreFullError: no space; the rows before were written.

        Durability: none until `flush`, in sync mode too.

        Cost: about 0.15 µs a row of 256 bytes.
        """
        self._services.append_by_file()
        ids = memoryview(queue_ids).cast("B").cast("i")
        self._components.commit_log.append_rows(topic, ids, *bodies, *properties, born_ms)

    def until_durable(self, end_offset: int) -> FlushFuture | None:
        """What becomes True in the running event loop when bytes below a physical offset are durable.

        Returns:
            None where nothing needs to be awaited: with async flush. The result is False when the flush is
            later than `sync_flush_timeout_ms`; StoreFailedError ends it when the flush failed.
        """
        return self._until_durable(end_offset)

    # -- reading

    def get_ranges(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
        tags: str | None = None,
    ) -> GetRanges:
        """As `get`, from a queue offset (units) on, but ranges of the log; tags match by hash alone."""
        return self._reader.get_ranges(topic, queue_id, offset, max_count, max_bytes, tags)

    @property
    def answer_pulls(self) -> Callable[..., PullBatch | None]:
        """The prepared way for pulls as a broker receives them: `QueueReader.answer_pulls`."""
        return self._reader.answer_pulls

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
            components.put_group,
            components.dispatch_from,
        )

    @property
    def index_end(self) -> tuple[int, int]:
        """Store time (ms) and physical offset (bytes) of the last message that the index has; 0, 0: none."""
        return self._reader.index_end()

    # -- keeping

    def flush_log(self) -> int:
        """Make the log alone durable; the flushed offset (bytes). Queues can be rebuilt from it."""
        return self._services.flush_log()

    def wait_flushed(self, offset: int, timeout_ms: int) -> bool:
        """Wait until the flush service has made bytes below a physical offset durable; False when late."""
        return self._services.wait_flushed(offset, timeout_ms)

    def clean(self) -> list[str]:
        """One round of cleaning, as the service does by hour and by a filling disk; the deleted files."""
        return self._services.clean()
