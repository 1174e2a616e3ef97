"""Detect that the end of a log is missing although the last shutdown was clean.

After a clean shutdown every dispatched record is on disk. So a queue or index that names a record where the
log has no bytes, or zeroes, proves that records are lost. Units that name other bytes prove nothing: upstream
truncates log and queues without zeroing, and a torn record at the end is found by the scan for the end.

A DLedger log has better evidence in the member's own files: see `store.dledger.durable_end`.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyledger._core import LogView, MappedFile, UnitCollector
from pyledger.errors import CorruptRecordError, StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.files import checkpoint as checkpoint_file
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import (
    BATCH_QUEUE_FOLDER,
    CHECKPOINT_FILE,
    LOG_FOLDER,
    StoreFolder,
    read_with_retries,
)
from pyledger.store.reading.log_end import Damage, LogEnd, find_log_end, whole_view
from pyledger.store.reading.queue_ends import QueueEnd, queue_ends
from pyledger.store.reading.recovered_queues import collect_units

_HEAD_BYTES = 8
_INDEX_HEAD = struct.Struct(">24xq4xi")
_INDEX_ENTRY_BYTES = 20


@dataclass(frozen=True, slots=True)
class LostEnd:
    """The missing end of a log."""

    path: str
    """File or folder of which it is missing."""
    end_offset: int
    """Physical offset (bytes) where the log ends now."""
    reach_offset: int
    """Physical offset (bytes) up to which the log reached at least."""
    problem: str

    @property
    def damage(self) -> Damage:
        """The loss as readers report it."""
        return Damage(self.end_offset, max(0, self.reach_offset - self.end_offset), self.problem)

    def error(self) -> CorruptRecordError:
        """The loss as an error."""
        return CorruptRecordError(self.path, self.end_offset, self.problem)


def prove_lost_end(
    folder: StoreFolder, view: LogView, end: LogEnd, checkpoint: StoreCheckpoint | None
) -> LostEnd | None:
    """Compare queues, index and checkpoint with the end of the log. Changes nothing.

    Args:
        folder: The store folder, after a clean shutdown.
        view: All bytes of the log.
        end: Where it ends.
        checkpoint: The checkpoint, if there is one.

    Cost: a few reads for each queue. The log is scanned only if a queue names a missing record.
    """
    suspects = [one for one in queue_ends(folder) if _is_missing(view, end.end_offset, one.physical_offset)]
    proved, count = _lost_messages(folder, view, end, suspects)
    if proved:
        last = max(proved, key=lambda one: one.physical_offset)
        reach = last.physical_offset + last.size_bytes
        evidence = f"{last.path} names a record at {last.physical_offset}"
    else:
        reach, evidence = _other_evidence(folder, view, end, checkpoint)
    if not evidence:
        return None
    lost = f"; {count} messages of {len(proved)} queues are lost" if proved else ""
    problem = f"the log ends here, after a clean shutdown, but {evidence}{lost}"
    return LostEnd(_path_of(folder, end.end_offset), end.end_offset, reach, problem)


def find_lost_end(path: str) -> LostEnd | None:
    """Check whether the end of the log is missing in a folder that may be written meanwhile.

    Queues and index are read before the log, so a concurrent writer can only make the log longer.
    """

    def check(folder: StoreFolder) -> LostEnd | None:
        if not folder.clean or folder.entry_files:
            return None
        named = max((one.physical_offset for one in queue_ends(folder)), default=-1)
        entry = last_entry(folder)
        known = checkpoint_file.read(os.path.join(folder.path, CHECKPOINT_FILE))
        return read_with_retries(
            path, lambda later: _compare(later, max(named, entry), known) if later.clean else None
        )

    return read_with_retries(path, check)


def _compare(folder: StoreFolder, named: int, known: StoreCheckpoint | None) -> LostEnd | None:
    with _mapped(folder) as view:
        durable_ms = known.log_timestamp_ms if known else 0
        end = find_log_end(view, clean=True, durable_ms=durable_ms)
        if named < end.end_offset and not _checkpoint_is_later(folder, end, known):
            return None
        return prove_lost_end(folder, view, end, known)


@contextmanager
def _mapped(folder: StoreFolder) -> Iterator[LogView]:
    files: list[MappedFile] = []
    try:
        size_bytes = folder.log_file_size_bytes
        files.extend(MappedFile.open(file.path, size_bytes=size_bytes) for file in folder.log_files)
        yield whole_view(files)
    finally:
        for opened in files:
            opened.close()


def may_miss_end(
    folder: StoreFolder, end: LogEnd, checkpoint: StoreCheckpoint | None, ends: Iterable[QueueEnd]
) -> bool:
    """Whether to call `find_lost_end`, by the first queues, the newest index entry and the checkpoint."""
    if not folder.clean or folder.entry_files:
        return False
    return (
        any(one.physical_offset >= end.end_offset for one in ends)
        or last_entry(folder) >= end.end_offset
        or _checkpoint_is_later(folder, end, checkpoint)
    )


def last_entry(folder: StoreFolder) -> int:
    """Physical offset (bytes) of the newest index entry, if the file's header agrees; else -1."""
    if not folder.index_files:
        return -1
    path = folder.index_files[-1]
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            head = os.pread(file.fileno(), _INDEX_HEAD.size, 0)
            if len(head) < _INDEX_HEAD.size:
                return -1
            end_offset, count = _INDEX_HEAD.unpack(head)
            at = _INDEX_HEAD.size + 4 * folder.index_geometry()[0] + _INDEX_ENTRY_BYTES * (count - 1)
            raw = os.pread(file.fileno(), 8, at + 4) if count > 1 else b""
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise StoreIOError(path, "read", error.strerror or str(error)) from error
    return end_offset if raw == end_offset.to_bytes(8, "big", signed=True) else -1


def _is_missing(view: LogView, end: int, offset: int) -> bool:
    """Whether a record after the end is missing: the log has zeroes there, or no bytes."""
    if offset < end:
        return False
    if offset + _HEAD_BYTES > view.end_offset or not any(
        file.start_offset <= offset < file.start_offset + file.mapped_bytes for file in view.files
    ):
        return True
    return not any(view.read(offset, _HEAD_BYTES))


def _lost_messages(
    folder: StoreFolder, view: LogView, end: LogEnd, suspects: list[QueueEnd]
) -> tuple[list[QueueEnd], int]:
    """Return the queues whose last message is not in the log, and how many of their messages are missing.

    A damaged unit may name any offset while its record is still in the log, so records are counted.
    """
    if not suspects:
        return [], 0
    below = [one.units_below(end.end_offset) for one in suspects]
    start = min(offset for offset, _ in below)
    batch_topics = {topic for topic, _, _ in folder.queue_folders(BATCH_QUEUE_FOLDER)}
    log = LogView(view.files, end.end_offset)
    start = max(start, log.start_offset)
    collected = collect_units(UnitCollector(batch_topics), log, start, log.end_offset, [])
    proved, count = [], 0
    for one, (_, kept) in zip(suspects, below, strict=True):
        units = collected.get((one.topic, one.queue_id))
        reached = kept if units is None else units.next_queue_offset
        if reached < one.next_offset:
            proved.append(one)
            count += one.next_offset - reached
    return proved, count


def _other_evidence(
    folder: StoreFolder, view: LogView, end: LogEnd, checkpoint: StoreCheckpoint | None
) -> tuple[int, str]:
    """Return how far the log reached according to the index or the checkpoint, and the evidence."""
    entry = last_entry(folder)
    if _is_missing(view, end.end_offset, entry):
        return entry, f"{folder.index_files[-1]} names a record at {entry}"
    if _checkpoint_is_later(folder, end, checkpoint) and checkpoint is not None:
        covered_ms = min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)
        path = os.path.join(folder.path, CHECKPOINT_FILE)
        return end.end_offset, f"{path} covers records up to {covered_ms} ms"
    return -1, ""


def _checkpoint_is_later(folder: StoreFolder, end: LogEnd, checkpoint: StoreCheckpoint | None) -> bool:
    """Whether the checkpoint covers records later than the last one, in a log that ends with a file.

    The times alone are no proof: they need not ascend if the clock of a master was set back, and the
    checkpoint has no digest. But a log rarely ends at the end of a file unless the files after it are lost.
    """
    file_size_bytes = folder.log_file_size_bytes
    if checkpoint is None or end.last_record_offset < 0 or end.end_offset % file_size_bytes:
        return False
    return min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) > end.last_store_timestamp


def _path_of(folder: StoreFolder, offset: int) -> str:
    """The file of the log that should hold a physical offset (bytes), or the last one before it."""
    before = [file.path for file in folder.log_files if file.start_offset <= offset]
    return before[-1] if before else os.path.join(folder.path, LOG_FOLDER)
