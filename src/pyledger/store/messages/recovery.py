"""Recovery: from the files of a folder to a store that can be appended to.

docs/design/crash_safety.md states what a crash can leave, and the reason for each step. The first half only
reads; nothing is changed before the log is known to be valid.

Source: RocketMQ store/.../CommitLog.java (recoverNormally, recoverAbnormally), DefaultMessageStore.java
(recover).
"""

import contextlib
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from pyledger._core import Dispatcher, IndexFileSet, LogView, MappedFileQueue, scan
from pyledger.atomic_file import flush_folder
from pyledger.config.store import StoreConfig
from pyledger.errors import CorruptRecordError, StoreFormatError, StoreFullError
from pyledger.log_events import event, logger
from pyledger.store.files import checkpoint as checkpoint_file
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import CHECKPOINT_FILE, INDEX_FOLDER, LOG_FOLDER, StoreFolder, is_folder
from pyledger.store.queues.queue_set import ConsumeQueueSet
from pyledger.store.reading.log_end import LogEnd, find_log_end, start_file_offset

events = logger("store")

FILES_CHECKED_CLEAN = 3
"""Queue files checked from the end after a clean shutdown, as upstream."""
ALL_FILES = 0


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Result of a recovery."""

    clean: bool
    """Whether the last shutdown was clean."""
    start_offset: int
    """Physical offset (bytes) from which records were checked."""
    end_offset: int
    """Physical offset (bytes) where the log ends."""
    truncated_at: int | None
    """Physical offset (bytes) at which a torn or damaged tail was removed; None without one."""
    problem: str
    """Fault of the record there."""
    dispatched: int
    """Records that were dispatched again."""
    units_dropped: int
    """Queue units that named no valid record."""
    index_files_removed: int


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """Where the log ends, and whether it must be truncated there."""

    end: LogEnd
    end_offset: int
    """Physical offset (bytes) of the end."""
    must_truncate: bool
    """Whether there may be bytes after the end."""


@dataclass(slots=True)
class RecoveredStore:
    """The parts of a store, consistent with each other."""

    log: MappedFileQueue
    queues: ConsumeQueueSet
    index: IndexFileSet | None
    dispatcher: Dispatcher
    checkpoint: StoreCheckpoint
    last_store_timestamp_ms: int
    report: RecoveryReport


def load_log(path: str, config: StoreConfig) -> MappedFileQueue:
    """Map the files of the commit log.

    Raises:
        StoreFormatError: a file has a wrong size or does not belong there.
    """
    folder = os.path.join(path, LOG_FOLDER)
    pooled = config.transient_store_pool
    # A pool writes to the file when it commits, so all blocks must be allocated before.
    chunk_bytes = 0 if pooled else min(config.first_chunk_bytes, config.mapped_file_size_bytes)
    log = MappedFileQueue(
        folder, config.mapped_file_size_bytes, allocate_chunk_bytes=chunk_bytes, pooled=pooled
    )
    log.load()
    return log


def judge_log(
    log: MappedFileQueue,
    *,
    clean: bool,
    known: StoreCheckpoint,
    check_bodies: bool,
    truncate_at_corruption: bool,
) -> LogVerdict:
    """Find the end of the log without changing a byte.

    Args:
        log: The loaded log.
        clean: Whether the last shutdown was clean.
        known: The checkpoint.
        check_bodies: Check the CRC of every body, not only lengths and offsets.
        truncate_at_corruption: Truncate the log at damage in its middle instead of raising.

    Raises:
        CorruptRecordError: durable bytes are damaged, and valid records follow them.
    """
    view = log.view()
    start = None if clean else start_file_offset(view, clean=False, durable_ms=known.min_timestamp_ms)
    _raise_for_gap(log, known_below=log.files[-1].start_offset if start is None else start)
    end = find_log_end(
        view,
        clean=clean,
        durable_ms=known.log_timestamp_ms,
        start_offset=start,
        check_bodies=check_bodies,
    )
    if not end.damages:
        ordinary = end.status == "end" or (clean and end.status == "zeroes")
        return LogVerdict(
            end,
            end.end_offset,
            must_truncate=not ordinary or end.end_offset < view.end_offset - log.file_size_bytes,
        )
    first = end.damages[0]
    if not truncate_at_corruption:
        raise CorruptRecordError(path_at(log, first.physical_offset), first.physical_offset, first.problem)
    before = scan(view, end.start_offset, first.physical_offset)
    end = replace(
        end,
        last_record_offset=before.last_record_offset,
        last_store_timestamp=before.last_store_timestamp,
        problem=first.problem,
        status="damage",
    )
    return LogVerdict(end, first.physical_offset, must_truncate=True)


def _raise_for_gap(log: MappedFileQueue, known_below: int) -> None:
    """Raise if a file is missing in the durable part of the log, which no crash explains."""
    for file, following in zip(log.files, log.files[1:], strict=False):
        expected = file.start_offset + log.file_size_bytes
        if following.start_offset != expected and following.start_offset <= known_below:
            raise StoreFormatError(
                os.path.join(log.folder, f"{expected:020d}"),
                "this file of the log is missing",
                "restore it, or let `pyledger repair` truncate the log there",
            )


def path_at(log: MappedFileQueue, offset: int) -> str:
    """The file that holds a physical offset (bytes), or else the folder; for error texts."""
    file = log.find_file(offset)
    return log.folder if file is None else file.path


def recover(
    folder: StoreFolder,
    config: StoreConfig,
    log: MappedFileQueue,
    verdict: LogVerdict | None,
    *,
    clean: bool,
    known: StoreCheckpoint,
    view: LogView | None = None,
) -> RecoveredStore:
    """Truncate the log at its end, durably, and update queues and index.

    Args:
        folder: The store folder.
        config: The store's settings.
        log: The loaded log.
        verdict: Where it ends; None for a log without files.
        clean: Whether the last shutdown was clean.
        known: The checkpoint.
        view: The part to use of a log with another owner, which is not truncated; None for the store's own.

    Durability: on return log, queues, index and checkpoint are on disk.
    """
    queues = ConsumeQueueSet(
        folder.path, config.consume_queue_file_size_bytes, config.batch_consume_queue_file_size_bytes
    )
    queues.load(folder)
    owned = view is None
    if owned and verdict is not None and verdict.must_truncate:
        log.truncate(verdict.end_offset)
    elif owned and verdict is not None:
        log.set_end(verdict.end_offset)
    view = log.view() if view is None else view
    dropped = queues.recover(view, FILES_CHECKED_CLEAN if clean else ALL_FILES)
    if dropped:
        facts = {"store": folder.path, "count": dropped, "log_end": view.end_offset, "clean": clean}
        event(events, logging.WARNING, "queue units dropped that name no valid record", **facts)
    index, rebuild_index = _open_index(folder.path, config, clean=clean, known=known)
    if index is not None:
        index.truncate_to_physical(view.end_offset, view)
    start = view.start_offset
    if verdict is not None:
        start = _dispatch_start(
            verdict.end.start_offset, view.start_offset, queues, index, rebuild_index, clean=clean,
            owned=owned,
        )  # fmt: skip
    dispatcher = Dispatcher(queues.open_queue, index, start_offset=start)
    queues.park = dispatcher.park
    dispatcher.dispatch(view)
    if queues.filled_units and start > view.start_offset:
        # A queue misses units from before the start: the checkpoint that covered them was wrong.
        queues.clear(view.start_offset)
        dispatcher.start_at(view.start_offset)
        dispatcher.dispatch(view)
    queues.correct_min_offsets(view.start_offset)
    queues.opening = False
    _make_durable(queues, index, clean=clean, changed=dispatcher.unit_count + dispatcher.entry_count > 0)
    known = _write_checkpoint(folder.path, known, verdict, dispatcher.dispatched_where >= view.end_offset)
    report = RecoveryReport(
        clean=clean,
        start_offset=view.start_offset if verdict is None else verdict.end.start_offset,
        end_offset=view.end_offset,
        truncated_at=None if verdict is None or not verdict.end.problem else verdict.end_offset,
        problem="" if verdict is None else verdict.end.problem,
        dispatched=dispatcher.message_count,
        units_dropped=dropped,
        index_files_removed=0 if index is None else len(index.removed),
    )
    last_ms = 0 if verdict is None else verdict.end.last_store_timestamp
    return RecoveredStore(log, queues, index, dispatcher, known, last_ms, report)


def _open_index(
    path: str, config: StoreConfig, *, clean: bool, known: StoreCheckpoint
) -> tuple[IndexFileSet | None, bool]:
    """Open the index files that can be trusted; also return whether the others must be rebuilt."""
    if not config.index_enabled:
        return None, False
    index_path = os.path.join(path, INDEX_FOLDER)
    missing = not is_folder(index_path)
    if missing:
        # An empty folder means at the next opening that no message has a key, which saves scanning the log.
        # If it cannot be created, dispatch tries again for the first key.
        with contextlib.suppress(OSError):
            os.mkdir(index_path)
            flush_folder(Path(path))
    index = IndexFileSet(
        index_path,
        config.index_slots,
        config.index_entries,
        safe_timestamp_ms=None if clean else known.index_msg_timestamp,
    )
    return index, missing or bool(index.removed) or not (clean or index.files)


def _dispatch_start(
    scan_start: int,
    log_start: int,
    queues: ConsumeQueueSet,
    index: IndexFileSet | None,
    rebuild_index: bool,
    *,
    clean: bool,
    owned: bool,
) -> int:
    """Physical offset (bytes) of the first record that a queue or the index may miss.

    The file in which the end was searched is dispatched again after a clean shutdown, too, so that a queue
    with a missing end, or without files, is noticed.
    """
    start = min(scan_start, max(queues.max_physical_offset, log_start)) if clean else scan_start
    if any(queue.max_offset == 0 for queue in queues.all()) and not clean:
        start = log_start
    gaps = [queues.incomplete_from, queues.doubtful_from]
    if clean and owned:
        # Without a crash the dropped units were damaged. (The log of a group may end after `view`.)
        gaps.append(queues.truncated_from)
    for offset in gaps:
        start = start if offset is None else min(start, max(offset, log_start))
    if index is not None and rebuild_index:
        start = min(start, max(index.end_physical_offset, log_start))
    return start


def _make_durable(queues: ConsumeQueueSet, index: IndexFileSet | None, *, clean: bool, changed: bool) -> None:
    """Flush what the checkpoint will cover: dispatched units, and those a killed process left unsynced."""
    if not clean:
        queues.sync()
    elif changed:
        queues.flush(0)
    if changed and index is not None:
        index.flush()


def _write_checkpoint(
    path: str, known: StoreCheckpoint, verdict: LogVerdict | None, queues_complete: bool
) -> StoreCheckpoint:
    """Update the checkpoint. Nothing is written if nothing changed or the disk is full."""
    if verdict is None or verdict.end.last_record_offset < 0:
        return known
    last_ms = verdict.end.last_store_timestamp
    new = replace(
        known,
        physic_msg_timestamp=last_ms,
        logics_msg_timestamp=last_ms if queues_complete else known.logics_msg_timestamp,
        confirm_phy_offset=verdict.end.last_record_offset,
    )
    if new == known:
        return known
    # On a full disk the old one stays, which covers less; the store writes this one when space is free.
    with contextlib.suppress(StoreFullError):
        checkpoint_file.write(os.path.join(path, CHECKPOINT_FILE), new)
    return new
