"""All consume queues of a store: found in its folders, made by dispatch, kept in step with the log."""

import os
from collections.abc import Callable, Iterable

from pyledger._core import BatchConsumeQueue, ConsumeQueue, LogView, mapped_file_count, sync_file_system
from pyledger.errors import StoreFormatError
from pyledger.model.message import QueueRange
from pyledger.store.files.disk_error import disk_error
from pyledger.store.files.folder import (
    BATCH_QUEUE_FOLDER,
    QUEUE_EXT_FOLDER,
    QUEUE_FOLDER,
    StoreFolder,
    is_folder,
)

AnyQueue = ConsumeQueue | BatchConsumeQueue
QueueKey = tuple[str, int]

EMPTY = QueueRange(0, 0)

MAPPED_AT_OPENING = 4_096
"""Files of queues that stay mapped after opening; the others are mapped when they are used."""
MAPPED_MAX = 32_000
"""Limit of mapped files, above which idle queues unmap theirs. The kernel's default allows 65,530."""
MAPPED_CHECK_QUEUES = 1_000
FLUSHED_ONE_BY_ONE = 64
"""More queues at once become durable by one call for the file system: each alone costs a write of its own."""


class ConsumeQueueSet:
    """The consume queues of one store, by topic and queue id.

    Dispatch adds queues, and none is removed while the store is open, so readers need no lock: they read one
    entry, or a copy of the table.
    """

    def __init__(self, store_path: str, file_size_bytes: int, batch_file_size_bytes: int) -> None:
        self.store_path = store_path
        self.file_size_bytes = file_size_bytes
        self.batch_file_size_bytes = batch_file_size_bytes
        self.queues: dict[QueueKey, AnyQueue] = {}
        self.opening = True
        """While the store is opened, each queue is checked once, and its files need not stay mapped."""
        self.park: Callable[[list[AnyQueue]], None] | None = None
        """Unmaps files of queues while no dispatch runs."""
        self.truncated_from: int | None = None
        """Least physical offset (bytes) from which `recover` dropped units of a queue."""
        self._parked_up_to = 0
        ext_folder = os.path.join(store_path, QUEUE_EXT_FOLDER)
        self._ext_folder = ext_folder if is_folder(ext_folder) else None

    def load(self, folder: StoreFolder) -> None:
        """Open every queue that has a folder.

        Raises:
            StoreFormatError: a queue is there in both kinds, or a file has another size.
        """
        for kind, batched in ((QUEUE_FOLDER, False), (BATCH_QUEUE_FOLDER, True)):
            for topic, queue_id, path in folder.queue_folders(kind):
                if (topic, queue_id) in self.queues:
                    raise StoreFormatError(
                        path, "the topic has queues of both kinds", "rebuild them with `pyledger rebuild`"
                    )
                self.open_queue(topic, queue_id, batched)

    def open_queue(self, topic: str, queue_id: int, batched: bool) -> AnyQueue:
        """Return the queue, created if it does not exist. Dispatch calls it for the first unit of a queue."""
        found = self.queues.get((topic, queue_id))
        if found is None:
            found = self._open(topic, queue_id, batched)
            self.queues[topic, queue_id] = found
            if len(self.queues) % MAPPED_CHECK_QUEUES == 0:
                self.bound_mappings()
        return found

    def bound_mappings(self) -> None:
        """Let files go while too many are mapped; those used since the last time stay for now."""
        if self.park is None or mapped_file_count() <= MAPPED_MAX:
            return
        queues = self.all()
        for _ in range(0, 2 * len(queues), MAPPED_CHECK_QUEUES):
            begin = self._parked_up_to if self._parked_up_to < len(queues) else 0
            self._parked_up_to = begin + MAPPED_CHECK_QUEUES
            self.park(queues[begin : self._parked_up_to])
            if mapped_file_count() <= MAPPED_MAX * 3 // 4:
                return

    def _park_opened(self, queue: AnyQueue) -> None:
        if self.opening and mapped_file_count() > MAPPED_AT_OPENING:
            queue.park(at_once=True)

    def _open(self, topic: str, queue_id: int, batched: bool) -> AnyQueue:
        if batched:
            folder = os.path.join(self.store_path, BATCH_QUEUE_FOLDER)
            return BatchConsumeQueue(folder, topic, queue_id, self.batch_file_size_bytes)
        folder = os.path.join(self.store_path, QUEUE_FOLDER)
        return ConsumeQueue(folder, topic, queue_id, self.file_size_bytes, ext_folder=self._ext_folder)

    def all(self) -> list[AnyQueue]:
        """The queues of this moment."""
        return list(self.queues.values())

    def ranges(self) -> dict[QueueKey, QueueRange]:
        """Offsets that each queue holds; queues that never got a message are left out."""
        found = {key: range_of(queue) for key, queue in sorted(self.queues.items())}
        return {key: span for key, span in found.items() if span.max_offset > 0}

    @property
    def max_physical_offset(self) -> int:
        """Greatest physical offset that a queue has dispatched up to (bytes); -1 without any unit."""
        return max((queue.max_physical_offset for queue in self.all()), default=-1)

    @property
    def filled_units(self) -> int:
        """Queue offsets passed over since opening: their messages were not met in the log."""
        return sum(queue.filled_units for queue in self.all())

    @property
    def incomplete_from(self) -> int | None:
        """Least physical offset (bytes) from which a queue lost units; None when none is known to have."""
        return min((queue.max_physical_offset for queue in self.all() if queue.incomplete), default=None)

    @property
    def doubtful_from(self) -> int | None:
        """Least physical offset (bytes) from which a queue may have lost files: it ends where a file does."""
        ends = (q.max_physical_offset for q in self.all() if not q.end_where % q.file_size_bytes)
        return min((end for end in ends if end >= 0), default=None)

    def recover(self, view: LogView, files: int) -> int:
        """Let each queue find its last good unit in its last `files` files (0: all); the units dropped."""
        dropped = 0
        for queue in self.all():
            of_queue = queue.recover(view, files=files)
            if of_queue:
                end = queue.max_physical_offset
                self.truncated_from = end if self.truncated_from is None else min(self.truncated_from, end)
            dropped += of_queue
            if queue.files and queue.files[0].start_offset > view.start_offset == 0:
                # Nothing of the log was ever deleted, so the queue began with offset 0.
                queue.remove_files()
            queue.truncate_to_physical(view.end_offset)
            queue.correct_min_offset(view.start_offset)
            self._park_opened(queue)
        return dropped

    def clear(self, log_start: int) -> None:
        """Drop all units of the log, to dispatch again from its start (bytes).

        Units of deleted records stay: only they have the queue offsets of an emptied queue.
        """
        for queue in self.all():
            queue.truncate_to_physical(log_start)
            if queue.filled_units and queue.max_physical_offset < 0:
                queue.remove_files()

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Move each queue's least offset to its first message that the log still has."""
        for queue in self.all():
            # One that `recover` has parked has not changed since.
            if not (self.opening and queue.parked):
                queue.correct_min_offset(min_physical_offset)
                self._park_opened(queue)

    def delete_heads(self, min_physical_offset: int) -> list[str]:
        """Remove queue files that name only records below an offset (bytes); give their paths."""
        gone: list[str] = []
        for number, queue in enumerate(self.all()):
            gone += queue.delete_head(min_physical_offset)
            if number % MAPPED_CHECK_QUEUES == 0:
                self.bound_mappings()
        return gone

    def flush(self, least_pages: int, flushed: Callable[[], None] | None = None) -> None:
        """Flush each queue by the page rule; 0 pages: whatever is dirty.

        Raises:
            StoreFailedError: a flush failed.
        """
        self.bound_mappings()
        due = [queue for queue in self.all() if queue.flush_is_due(least_pages)]
        if len(due) > FLUSHED_ONE_BY_ONE:
            self._flush_together(due)
            due = []
        for queue in due:
            if queue.flush(least_pages) and flushed is not None:
                flushed()

    def _flush_together(self, queues: list[AnyQueue]) -> None:
        ends = [queue.begin_flush() for queue in queues]
        homes = (QUEUE_FOLDER, BATCH_QUEUE_FOLDER, QUEUE_EXT_FOLDER)
        for path in one_of_each_file_system(os.path.join(self.store_path, home) for home in homes):
            sync_file_system(path)
        for queue, end in zip(queues, ends, strict=True):
            queue.end_flush(end)

    def sync(self) -> None:
        """Make all units durable, those that a killed process left in the page cache too.

        Raises:
            StoreFailedError: the flush failed.
        """
        queues = self.all()
        if len(queues) > FLUSHED_ONE_BY_ONE:
            self._flush_together(queues)
            return
        for queue in queues:
            queue.sync()

    def close(self) -> None:
        """Unmap all. What readers still view stays mapped until they let go."""
        for queue in self.all():
            queue.close()


def range_of(queue: AnyQueue) -> QueueRange:
    """Offsets that a queue holds."""
    return QueueRange(queue.min_offset, queue.max_offset)


def one_of_each_file_system(paths: Iterable[str]) -> list[str]:
    """Of paths that are there, one on each file system: a folder of a store may be mounted, or a link."""
    found: dict[int, str] = {}
    for path in paths:
        try:
            found.setdefault(os.stat(path).st_dev, path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise disk_error(path, "stat", error) from error
    return list(found.values())
