"""Putting messages: the append, and the wait for the configured durability.

Nothing here returns success before that durability is met: with sync flush the record is on disk, shared with
all who wait at that moment; otherwise it is in the page cache (or in the pool, where that is configured).
"""

import ipaddress
from collections.abc import Mapping, Sequence

from pyledger._core import CommitLog, DurableAppender, GroupCommit, LogView, MessageScan, QueueAppender
from pyledger.errors import FlushTimeoutError
from pyledger.model.message import Message, PutResult
from pyledger.store.messages.delay import is_delayed, redirect_delayed

Buffer = bytes | bytearray | memoryview

WAIT_PROPERTY = "WAIT"


def waits(message: Message) -> bool:
    """Whether a put waits for its flush; a producer may waive that by the property WAIT=false."""
    return message.properties.get(WAIT_PROPERTY) != "false"


class MessageWriter:
    """The put half of a store."""

    def __init__(
        self,
        commit_log: CommitLog,
        group: GroupCommit | None,
        timeout_ms: int,
        store_host: tuple[str, int],
    ) -> None:
        self.commit_log = commit_log
        self._log = commit_log.queue
        self.group = group
        self._timeout_ms = timeout_ms
        address = ipaddress.ip_address(store_host[0]).packed
        self._id_prefix = (address + store_host[1].to_bytes(4, "big")).hex().upper()

    def append(self, message: Message) -> PutResult:
        """Append without waiting for any flush."""
        physical_offset, size_bytes, queue_offset, store_timestamp_ms = self._append(message)
        msg_id = f"{self._id_prefix}{physical_offset:016X}"
        return PutResult(physical_offset, size_bytes, queue_offset, store_timestamp_ms, msg_id)

    def _append(self, message: Message, *, check_only: bool = False) -> tuple[int, int, int, int]:
        """Append a message, or only raise what is wrong with it."""
        properties = message.properties
        if message.delay_level > 0 and is_delayed(message):
            message = redirect_delayed(message)
            properties = {**message.properties, "DELAY": str(message.delay_level)}
        return self.commit_log.append(
            message.topic,
            message.queue_id,
            message.body,
            message.tags,
            message.keys,
            properties or None,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp_ms=message.born_timestamp_ms or 0,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            check_only=check_only,
        )

    def append_all(self, messages: Sequence[Message]) -> list[PutResult]:
        """Append one after another; a message that would be refused is found before the first is written."""
        for message in messages:
            self._append(message, check_only=True)
        return [self.append(message) for message in messages]

    def put(self, message: Message) -> PutResult:
        """Append and wait for the configured durability."""
        result = self.append(message)
        if self.group is not None and waits(message):
            self.wait_durable(result.physical_offset, result.physical_offset + result.size_bytes)
        return result

    def put_all(self, messages: Sequence[Message]) -> list[PutResult]:
        """Append all, then wait once."""
        results = self.append_all(messages)
        if results and self.group is not None:
            self.wait_durable(
                results[0].physical_offset, results[-1].physical_offset + results[-1].size_bytes
            )
        return results

    def wait_durable(self, physical_offset: int, end_offset: int) -> None:
        """Wait until bytes below `end_offset` are on disk.

        Raises:
            FlushTimeoutError: they were not, in time.
            StoreFailedError: they never will be.
        """
        if self.group is not None and not self.group.wait(end_offset, self._timeout_ms):
            raise FlushTimeoutError(physical_offset, self._timeout_ms)

    def appender(self, topic: str, queue_id: int) -> QueueAppender | DurableAppender:
        """The prepared way to one queue."""
        native = self.commit_log.appender(topic, queue_id)
        if self.group is None:
            return native
        return DurableAppender(native, self.group, self._timeout_ms)

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
        """Append the messages of a RocketMQ client's batch body, each as a record; times in ms."""
        first, total, queue_offset, time_ms, _ = self.commit_log.append_encoded_batch(
            topic,
            queue_id,
            batch,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            reconsume_times=reconsume_times,
        )
        view, prefix = LogView(self._log.files, first + total), self._id_prefix
        return [
            PutResult(at := m.physical_offset, m.store_size, number, time_ms, f"{prefix}{at:016X}")
            for number, m in enumerate(MessageScan(view, first, check=False), queue_offset)
        ]

    def put_encoded_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        *,
        born_timestamp_ms: int,
        born_host: tuple[str, int] | None,
    ) -> list[PutResult]:
        """The same, and wait for the configured durability."""
        results = self.append_encoded_batch(
            topic, queue_id, batch, born_timestamp_ms=born_timestamp_ms, born_host=born_host
        )
        if results:
            last = results[-1]
            self.wait_durable(results[0].physical_offset, last.physical_offset + last.size_bytes)
        return results

    def append_inner_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        properties: Mapping[str, str] | None,
        tags: str | None = None,
        keys: str | None = None,
        *,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
    ) -> PutResult:
        """Append a batch body as one record, for a queue of batches; times in ms."""
        offset, size_bytes, queue_offset, store_timestamp_ms, _ = self.commit_log.append_inner_batch(
            topic,
            queue_id,
            batch,
            tags,
            keys,
            properties,
            sys_flag=sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            reconsume_times=reconsume_times,
        )
        return PutResult(
            offset, size_bytes, queue_offset, store_timestamp_ms, f"{self._id_prefix}{offset:016X}"
        )

    def put_inner_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        tags: str | None,
        keys: str | None,
        properties: Mapping[str, str] | None,
        *,
        born_timestamp_ms: int,
        born_host: tuple[str, int] | None,
    ) -> PutResult:
        """The same, and wait for the configured durability."""
        result = self.append_inner_batch(
            topic,
            queue_id,
            batch,
            properties,
            tags,
            keys,
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
        )
        self.wait_durable(result.physical_offset, result.physical_offset + result.size_bytes)
        return result
