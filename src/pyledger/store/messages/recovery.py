"""From the files of a folder to a store that can go on: a function of the log's bytes.

See docs/design/crash_safety.md for what a crash can leave and why each step decides as it does. The first
half only looks; nothing is changed before the log was found sound.

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
"""Queue files looked through from the end after a clean exit, as upstream does."""
ALL_FILES = 0


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a store found and did."""

    clean: bool
    """The last writer shut down in good order."""
    start_offset: int
    """Physical offset (bytes) that records were checked from."""
    end_offset: int
    """Physical offset (bytes) where the log ends."""
    truncated_at: int | None
    """Physical offset (bytes) at which a torn or damaged tail was cut; None when there was none."""
    problem: str
    """What was wrong with the record there."""
    dispatched: int
    """Records that were held against queues and index again."""
    units_dropped: int
    """Queue units that named nothing sound."""
    index_files_removed: int


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """Where the log ends and whether it must be cut there."""

    end: LogEnd
    cut_offset: int
    """Physical offset (bytes) of the end."""
    must_cut: bool
    """Bytes may stand behind the end."""


@dataclass(slots=True)
class RecoveredStore:
    """The parts of a store, agreeing with each other."""

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
    # A pool writes to the file when it commits: there all blocks must be there before.
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
        clean: The last writer shut down in good order.
        known: The checkpoint.
        check_bodies: Check the CRC of every body that is passed; else lengths and places alone.
        truncate_at_corruption: Cut the log at damage in its middle instead of refusing.

    Raises:
        CorruptRecordError: bytes that were durable once are damaged, with sound records behind them.
    """
    view = log.view()
    start = None if clean else start_file_offset(view, clean=False, durable_ms=known.min_timestamp_ms)
    _refuse_gap(log, known_below=log.files[-1].start_offset if start is None else start)
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
            must_cut=not ordinary or end.end_offset < view.end_offset - log.file_size_bytes,
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
    return LogVerdict(end, first.physical_offset, must_cut=True)


def _refuse_gap(log: MappedFileQueue, known_below: int) -> None:
    """A file that is missing where everything was durable: no crash does that."""
    for file, following in zip(log.files, log.files[1:], strict=False):
        expected = file.start_offset + log.file_size_bytes
        if following.start_offset != expected and following.start_offset <= known_below:
            raise StoreFormatError(
                os.path.join(log.folder, f"{expected:020d}"),
                "this file of the log is missing",
                "put it back, or let `pyledger repair` cut the log there",
            )


def path_at(log: MappedFileQueue, offset: int) -> str:
    """The file that holds a physical offset (bytes), for an error; the folder when none does."""
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
    """Cut the log at its end, durably, and bring queues and index in step with it.

    Args:
        folder: What lies in the store's folder.
        config: The store's settings.
        log: The loaded log.
        verdict: Where it ends; None for a log without files.
        clean: The last writer shut down in good order.
        known: The checkpoint.
        view: The part of a log that others keep, and that is not cut; None: the log is the store's own.

    Durability: on return log, queues and index are on disk as they are in memory, and so is the checkpoint.
    """
    queues = ConsumeQueueSet(
        folder.path, config.consume_queue_file_size_bytes, config.batch_consume_queue_file_size_bytes
    )
    queues.load(folder)
    owned = view is None
    if owned and verdict is not None and verdict.must_cut:
        log.truncate(verdict.cut_offset)
    elif owned and verdict is not None:
        log.set_end(verdict.cut_offset)
    view = log.view() if view is None else view
    dropped = queues.recover(view, FILES_CHECKED_CLEAN if clean else ALL_FILES)
    if dropped:
        facts = {"store": folder.path, "count": dropped, "log_end": view.end_offset, "clean": clean}
        event(events, logging.WARNING, "queue units dropped that name nothing sound", **facts)
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
        # A queue lacks units from before the start: what vouched for them was wrong.
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
        truncated_at=None if verdict is None or not verdict.end.problem else verdict.cut_offset,
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
    """The index files that can be trusted, and whether the others must be made again."""
    if not config.index_enabled:
        return None, False
    index_path = os.path.join(path, INDEX_FOLDER)
    missing = not is_folder(index_path)
    if missing:
        # Empty, it says at the next opening that no message has a key: the log need not be walked for them.
        # Where it cannot be made, dispatch tries again for the first key.
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
    """Physical offset (bytes) of the first record that a queue or the index may lack.

    The file that was looked through is dispatched again also after a clean exit: a queue that lost its end,
    or all of it, is noticed by the records that it lacks.
    """
    start = min(scan_start, max(queues.max_physical_offset, log_start)) if clean else scan_start
    if any(queue.max_offset == 0 for queue in queues.all()) and not clean:
        start = log_start
    lacking = [queues.incomplete_from, queues.doubtful_from]
    if clean and owned:
        # What a crash did not leave there was damaged. (A group may have committed more than it says.)
        lacking.append(queues.truncated_from)
    for place in lacking:
        start = start if place is None else min(start, max(place, log_start))
    if index is not None and rebuild_index:
        start = min(start, max(index.end_physical_offset, log_start))
    return start


def _make_durable(queues: ConsumeQueueSet, index: IndexFileSet | None, *, clean: bool, changed: bool) -> None:
    """Before the checkpoint vouches for it: what was dispatched, and what a killed process left unsynced."""
    if not clean:
        queues.sync()
    elif changed:
        queues.flush(0)
    if changed and index is not None:
        index.flush()


def _write_checkpoint(
    path: str, known: StoreCheckpoint, verdict: LogVerdict | None, queues_complete: bool
) -> StoreCheckpoint:
    """Say what is durable now. Nothing is written when nothing is new, or there is no room for it."""
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
    # Without room the old one stays, which vouches for less; the store writes this one when there is some.
    with contextlib.suppress(StoreFullError):
        checkpoint_file.write(os.path.join(path, CHECKPOINT_FILE), new)
    return new
