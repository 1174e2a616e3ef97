"""A slave's log: the bytes of its master are appended to it. Queues and index are built from it as usual.

The log of an empty slave begins at the offset of the first frame, the start of one of the master's files; so
do its queues and its index, whose numbers are those of the master's records.

Source: RocketMQ store/.../DefaultMessageStore.java (start: reputFromOffset).
"""

from collections.abc import Callable

from pyledger._core import (
    CommitLog,
    EventNotifier,
    GroupCommit,
    LogSender,
    LogView,
    MappedFileQueue,
    MessageScan,
    ReplicaLog,
    ReplicaReceiver,
    scan,
)

__all__ = ["LogSender", "ReplicaReceiver", "StoreReplica", "part_of_view"]


class StoreReplica:
    """Appends the bytes of a master to a slave's store. Only one thread may append."""

    def __init__(
        self,
        log: MappedFileQueue,
        commit_log: CommitLog,
        dispatch_notifier: EventNotifier,
        group: GroupCommit | None,
        dispatch_from: Callable[[int], None],
    ) -> None:
        self._log = log
        self._dispatch_from = dispatch_from
        self._commit_log = commit_log
        self._group = group
        self._end = ReplicaLog(log)
        self._dispatch_notifier = dispatch_notifier

    @property
    def end_offset(self) -> int:
        """Physical offset (bytes) of the log's end; 0 for an empty one."""
        return self._log.wrote_where

    @property
    def whole_offset(self) -> int:
        """Physical offset (bytes) where the last whole record ends."""
        return self._end.whole_where

    @property
    def file_size_bytes(self) -> int:
        """Size of the log's files."""
        return self._log.file_size_bytes

    def append(self, offset: int, data: memoryview) -> int:
        """Append a master's bytes at the end of the log; return the new end (bytes).

        Raises:
            OffsetOutOfRangeError: `offset` is not the end.
            CorruptRecordError: the bytes are no record of this offset; nothing was written.
            StoreFormatError: the master's files have another size.
            StoreFullError: no space; nothing was written.
            StoreFailedError: an earlier flush failed.

        Durability: none yet; see `StoreEngine.until_durable`. Queues and index follow after `announce`.
        """
        if offset and not self._log.files:
            # Before the append: dispatch must begin where the log begins.
            self._dispatch_from(offset)
        end = self._end.append(offset, data)
        self._commit_log.note_store_timestamp(self._end.last_store_timestamp_ms)
        return end

    def take_frames(self, data: memoryview) -> int:
        """Append the whole frames in order at the start of `data`; return their size (bytes).

        Raises:
            CorruptRecordError, StoreFullError, StoreFailedError: as `append`.
        """
        used = self._end.take_frames(data)
        self._commit_log.note_store_timestamp(self._end.last_store_timestamp_ms)
        return used

    @property
    def flushes_first(self) -> bool:
        """Whether bytes are reported only once they are on disk."""
        return self._group is not None

    def until_durable(self, end_offset: int, timeout_ms: int) -> bool:
        """Wait until all bytes below a physical offset are as durable as configured; False after the timeout.

        Raises:
            StoreFailedError: the flush failed.
        """
        return self._group is None or self._group.wait(end_offset, timeout_ms)

    def receiver(self, socket: int) -> ReplicaReceiver:
        """Return what receives a master's frames from the descriptor of a non-blocking socket.

        Call `fed` after each call.
        """
        reports = not self.flushes_first
        return ReplicaReceiver(self._end, socket, self._dispatch_notifier, reports=reports)

    def fed(self) -> None:
        """Note the store time of what a receiver appended."""
        self._commit_log.note_store_timestamp(self._end.last_store_timestamp_ms)

    def announce(self) -> None:
        """Start the dispatch of what was appended: not in `append`, as the master waits for the report."""
        self._dispatch_notifier.notify()

    def truncate_partial(self) -> int:
        """Truncate the bytes after the last whole record, durably; return how many.

        Raises:
            StoreFailedError: an earlier flush failed, also when there is nothing to truncate.
        """
        return self._end.truncate_partial()

    def last_record_offset(self) -> int:
        """Physical offset (bytes) of the last whole record; -1 where there is none.

        Cost: a walk through the last file, without the interpreter lock.
        """
        view = self._log.view(self.whole_offset)
        for file in reversed(view.files):
            found = scan(view, file.start_offset, check=False).last_record_offset
            if found >= 0:
                return found
        return -1

    def record_offsets(self) -> list[int]:
        """Physical offsets (bytes) of all whole records in the last two files."""
        view = self._log.view(self.whole_offset)
        start = view.files[max(0, len(view.files) - 2)].start_offset if view.files else 0
        return [message.physical_offset for message in MessageScan(view, start)]


def part_of_view(view: LogView, start: int, stop: int) -> LogView:
    """Return a view of only the files with a range of physical offsets (bytes), so it pins no others."""
    size = view.file_size_bytes
    files = tuple(one for one in view.files if one.start_offset + size > start and one.start_offset < stop)
    return LogView(files, min(view.end_offset, files[-1].start_offset + size))
