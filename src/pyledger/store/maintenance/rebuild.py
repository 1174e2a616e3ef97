"""`rebuild`: recreate consume queues and index from the commit log alone.

They are built in a folder of their own, flushed, and then replace the old ones. A crash leaves the old or the
new files of each kind; the next writer that opens the store completes or undoes the replacement.
"""

import os
import shutil
from collections.abc import Callable, Container
from dataclasses import dataclass

from pyledger._core import (
    BatchConsumeQueue,
    ConsumeQueue,
    Dispatcher,
    IndexFileSet,
    LogView,
    find_next_record,
)
from pyledger.errors import CorruptRecordError
from pyledger.store.files.disk_error import disk_errors
from pyledger.store.files.folder import (
    BATCH_QUEUE_FOLDER,
    DERIVED_FOLDERS,
    INDEX_FOLDER,
    QUEUE_FOLDER,
    REBUILD_FOLDER,
    StoreFolder,
    read_folder,
)
from pyledger.store.files.lock import lock_store
from pyledger.store.files.rebuild_commit import commit_rebuild, undo_rebuild
from pyledger.store.queues.queue_units import open_stored
from pyledger.store.reading.lost_end import find_lost_end
from pyledger.store.reading.reader import StoreReader

_SLICE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """Counts of a rebuild."""

    records: int
    queues: int
    index_files: int


def rebuild(path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None) -> RebuildReport:
    """Recreate consume queues and index files.

    Queues keep their offsets, even those without messages. Damage in the middle of the log is skipped.

    Args:
        path: The store folder.
        progress: Called with the physical offset (bytes) up to which records were dispatched.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreFullError: the disk is full. The old files are unchanged.
        StoreIOError: a system call failed. The old files are unchanged, or the new ones are in place.
        CorruptRecordError: the end of the log is missing, and only the queues show it.

    Durability: on return the new files are in place and survive a power failure.
    """
    root = os.fspath(path)
    with lock_store(root), disk_errors(root, "rebuild"):
        return rebuild_locked(root, progress)


def rebuild_locked(
    root: str, progress: Callable[[int], None] | None = None, *, accept_loss: bool = False
) -> RebuildReport:
    """As `rebuild`, under the caller's lock; with `accept_loss` also if the end of the log is missing."""
    read_folder(root)  # raises for a DLedger log: only its group knows which entries are committed
    target = os.path.join(root, REBUILD_FOLDER)
    undo_rebuild(root)
    lost = None if accept_loss else find_lost_end(root)
    if lost is not None:
        raise lost.error()
    os.mkdir(target)
    try:
        with StoreReader.open(root, on_corrupt="skip") as reader:
            report = _build(reader, target, progress)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    commit_rebuild(root)
    return report


def _build(reader: StoreReader, target: str, progress: Callable[[int], None] | None) -> RebuildReport:
    folder = reader.layout
    index = IndexFileSet(os.path.join(target, INDEX_FOLDER), *folder.index_geometry())
    dispatcher = Dispatcher(_queue_opener(folder, target), index, start_offset=reader.min_offset)
    _dispatch(dispatcher, reader.view, progress)
    for queue in dispatcher.queues.values():
        queue.close()
    report = RebuildReport(dispatcher.message_count, len(dispatcher.queues), len(index.files))
    index.close()
    _copy_emptied(folder, target, reader.view, dispatcher.queues.keys())
    for name in DERIVED_FOLDERS:
        os.makedirs(os.path.join(target, name), exist_ok=True)
    return report


def _queue_opener(
    folder: StoreFolder, target: str
) -> Callable[[str, int, bool], ConsumeQueue | BatchConsumeQueue]:
    sizes = {kind: folder.queue_file_size_bytes(kind) for kind in (QUEUE_FOLDER, BATCH_QUEUE_FOLDER)}
    batch_topics = {topic for topic, _, _ in folder.queue_folders(BATCH_QUEUE_FOLDER)}

    def open_queue(topic: str, queue_id: int, inner_batch: bool) -> ConsumeQueue | BatchConsumeQueue:
        batch = inner_batch or topic in batch_topics
        kind = BATCH_QUEUE_FOLDER if batch else QUEUE_FOLDER
        queue_type = BatchConsumeQueue if batch else ConsumeQueue
        queue = queue_type(os.path.join(target, kind), topic, queue_id, sizes[kind])
        queue.recover()
        return queue

    return open_queue


def _dispatch(dispatcher: Dispatcher, view: LogView, progress: Callable[[int], None] | None) -> None:
    while dispatcher.dispatched_where < view.end_offset:
        where = dispatcher.dispatched_where
        try:
            # A record that crosses the end of the slice is dispatched with the next one.
            dispatcher.dispatch(view, min(where + _SLICE_BYTES, view.end_offset))
        except CorruptRecordError as error:
            dispatcher.start_at(find_next_record(view, error.physical_offset + 1) or view.end_offset)
        for _, _, _, _, stalled_by in dispatcher.stalled:
            raise stalled_by
        if progress is not None:
            progress(dispatcher.dispatched_where)


def _copy_emptied(
    folder: StoreFolder, target: str, view: LogView, filled: Container[tuple[str, int]]
) -> None:
    """Copy the files of queues whose messages were all deleted: only they have the queue's offsets."""
    for kind in (QUEUE_FOLDER, BATCH_QUEUE_FOLDER):
        for topic, queue_id, old in folder.queue_folders(kind):
            if (topic, queue_id) in filled:
                continue
            stored = open_stored(folder.path, topic, queue_id, batch=kind == BATCH_QUEUE_FOLDER)
            stored.recover(view)
            stored.correct_min_offset(view.start_offset)
            if stored.min_offset == stored.max_offset > 0:
                shutil.copytree(old, os.path.join(target, kind, topic, str(queue_id)))
            stored.close()
