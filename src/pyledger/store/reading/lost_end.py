"""Whether a log lacks its end, although its last writer exited cleanly.

Then everything that was dispatched was in the log, on disk. So a queue or the index that names a record where
the log has no byte, or zeroes, proves that records are gone. Units that name other bytes prove nothing:
upstream cuts log and queues without zeroing, and a torn record at the end is found by the walk that finds it.

Of a log that a DLedger group keeps the member's own files tell more: see `store.dledger.durable_end`.
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
from pyledger.store.reading.recovered_queues import collect_runs

_HEAD_BYTES = 8
_INDEX_HEAD = struct.Struct(">24xq4xi")
_INDEX_ENTRY_BYTES = 20


@dataclass(frozen=True, slots=True)
class LostEnd:
    """The end of a log that is gone."""

    path: str
    """The file or folder that lacks it."""
    end_offset: int
    """Physical offset (bytes) where the log ends now."""
    reach_offset: int
    """It reached at least up to this physical offset (bytes)."""
    problem: str

    @property
    def damage(self) -> Damage:
        """What readers report."""
        return Damage(self.end_offset, max(0, self.reach_offset - self.end_offset), self.problem)

    def error(self) -> CorruptRecordError:
        """What refuses the folder."""
        return CorruptRecordError(self.path, self.end_offset, self.problem)


def prove_lost_end(
    folder: StoreFolder, view: LogView, end: LogEnd, checkpoint: StoreCheckpoint | None
) -> LostEnd | None:
    """Hold what queues, index and checkpoint name against the end of the log. Changes nothing.

    Args:
        folder: What lies in the store's folder; its last writer exited cleanly.
        view: All bytes of the log.
        end: Where it ends.
        checkpoint: The checkpoint, where there is one.

    Cost: a few reads for each queue. The log is walked only where a queue names what is not there.
    """
    suspects = [one for one in queue_ends(folder) if _names_nothing(view, end.end_offset, one.place)]
    proved, count = _really_lost(folder, view, end, suspects)
    if proved:
        last = max(proved, key=lambda one: one.place)
        reach, names = last.place + last.size_bytes, f"{last.path} names a record at {last.place}"
    else:
        reach, names = _promised(folder, view, end, checkpoint)
    if not names:
        return None
    lost = f"; {count} messages of {len(proved)} queues are gone" if proved else ""
    problem = f"the log ends here, after an exit in good order, but {names}{lost}"
    return LostEnd(_place_of(folder, end.end_offset), end.end_offset, reach, problem)


def find_lost_end(path: str) -> LostEnd | None:
    """Look at a folder that may be written meanwhile: whether its log lacks its end.

    Queues and index are read before the log. What a writer adds later makes the log longer than they say.
    """

    def look(folder: StoreFolder) -> LostEnd | None:
        if not folder.clean or folder.entry_files:
            return None
        named = max((one.place for one in queue_ends(folder)), default=-1)
        entry = last_entry(folder)
        known = checkpoint_file.read(os.path.join(folder.path, CHECKPOINT_FILE))
        return read_with_retries(
            path, lambda later: _hold(later, max(named, entry), known) if later.clean else None
        )

    return read_with_retries(path, look)


def _hold(folder: StoreFolder, named: int, known: StoreCheckpoint | None) -> LostEnd | None:
    with _mapped(folder) as view:
        durable_ms = known.log_timestamp_ms if known else 0
        end = find_log_end(view, clean=True, durable_ms=durable_ms)
        if named < end.end_offset and not _time_promised(folder, end, known):
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


def looks_cut(
    folder: StoreFolder, end: LogEnd, checkpoint: StoreCheckpoint | None, ends: Iterable[QueueEnd]
) -> bool:
    """Whether `find_lost_end` should look, by the first queues, the newest index entry and the checkpoint."""
    if not folder.clean or folder.entry_files:
        return False
    return (
        any(one.place >= end.end_offset for one in ends)
        or last_entry(folder) >= end.end_offset
        or _time_promised(folder, end, checkpoint)
    )


def last_entry(folder: StoreFolder) -> int:
    """Physical offset (bytes) that the newest index entry names, when the file's head agrees; else -1."""
    if not folder.index_files:
        return -1
    path = folder.index_files[-1]
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            head = os.pread(file.fileno(), _INDEX_HEAD.size, 0)
            if len(head) < _INDEX_HEAD.size:
                return -1
            end_place, count = _INDEX_HEAD.unpack(head)
            at = _INDEX_HEAD.size + 4 * folder.index_geometry()[0] + _INDEX_ENTRY_BYTES * (count - 1)
            raw = os.pread(file.fileno(), 8, at + 4) if count > 1 else b""
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise StoreIOError(path, "read", error.strerror or str(error)) from error
    return end_place if raw == end_place.to_bytes(8, "big", signed=True) else -1


def _names_nothing(view: LogView, end: int, place: int) -> bool:
    """Whether a record should stand behind the end where there are zeroes, or no byte."""
    if place < end:
        return False
    if place + _HEAD_BYTES > view.end_offset or not any(
        file.start_offset <= place < file.start_offset + file.mapped_bytes for file in view.files
    ):
        return True
    return not any(view.read(place, _HEAD_BYTES))


def _really_lost(
    folder: StoreFolder, view: LogView, end: LogEnd, suspects: list[QueueEnd]
) -> tuple[list[QueueEnd], int]:
    """Queues whose last message is not in the log, and how many of their messages are not.

    A unit that was damaged names any place; its record is in the log, where it always was.
    """
    if not suspects:
        return [], 0
    below = [one.units_below(end.end_offset) for one in suspects]
    start = min(place for place, _ in below)
    batch_topics = {topic for topic, _, _ in folder.queue_folders(BATCH_QUEUE_FOLDER)}
    log = LogView(view.files, end.end_offset)
    start = max(start, log.start_offset)
    runs = collect_runs(UnitCollector(batch_topics), log, start, log.end_offset, [])
    proved, count = [], 0
    for one, (_, kept) in zip(suspects, below, strict=True):
        run = runs.get((one.topic, one.queue_id))
        reached = kept if run is None else run.next_queue_offset
        if reached < one.next_offset:
            proved.append(one)
            count += one.next_offset - reached
    return proved, count


def _promised(
    folder: StoreFolder, view: LogView, end: LogEnd, checkpoint: StoreCheckpoint | None
) -> tuple[int, str]:
    """How far the log reached by the index, or by times that the checkpoint holds, and what says so."""
    entry = last_entry(folder)
    if _names_nothing(view, end.end_offset, entry):
        return entry, f"{folder.index_files[-1]} names a record at {entry}"
    if _time_promised(folder, end, checkpoint) and checkpoint is not None:
        promised_ms = min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)
        path = os.path.join(folder.path, CHECKPOINT_FILE)
        return end.end_offset, f"{path} says that records up to {promised_ms} ms are on disk"
    return -1, ""


def _time_promised(folder: StoreFolder, end: LogEnd, checkpoint: StoreCheckpoint | None) -> bool:
    """Whether log and queues were on disk up to a later time than that of the last record.

    Times alone do not tell: those of a master whose clock was set back need not ascend, and the checkpoint
    has no digest. But a log hardly ever ends where a file does, as one does that lost the files behind.
    """
    file_size_bytes = folder.log_file_size_bytes
    if checkpoint is None or end.last_record_offset < 0 or end.end_offset % file_size_bytes:
        return False
    return min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) > end.last_store_timestamp


def _place_of(folder: StoreFolder, offset: int) -> str:
    """The file of the log that should hold a physical offset (bytes), or the last one before it."""
    before = [file.path for file in folder.log_files if file.start_offset <= offset]
    return before[-1] if before else os.path.join(folder.path, LOG_FOLDER)
