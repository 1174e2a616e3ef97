"""`dledger verify`: check the folder of a DLedger node without changing a byte.

Checks the lengths, offset, predecessor and, if sealed, checksums of each entry; each index unit against its
entry; and the term file and checkpoint against the log.
"""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise

from pyledger._core import EntryStop
from pyledger.store.dledger.durable_end import DURABLE_END_FILE, UNREADABLE
from pyledger.store.dledger.folder import (
    CHECKPOINT_FILE,
    INDEX_UNIT_BYTES,
    LOST_TAIL_FILE,
    TERM_FILE,
    DLedgerFolder,
    promised_index,
)
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.recovery import indexed_beyond
from pyledger.store.files.finding import Finding, Severity

TAIL_SLICE_BYTES = 1 << 20


def verify_dledger(reader: DLedgerReader, progress: Callable[[int], None] | None = None) -> Iterator[Finding]:
    """Check the whole folder of a node.

    Args:
        reader: The opened folder.
        progress: Called with the offset (bytes) up to which entries were checked.

    Yields:
        Findings. One with `severity` "note" is no loss: recovery repairs it, or it is only unusual.

    Cost: the log is read once.
    """
    folder = reader.folder
    for stranger in folder.unusual:
        yield Finding("unusual", stranger.path, None, stranger.what, "note")
    yield from _check_files(folder)
    stop = reader.scan(progress)
    yield from _check_end(reader, stop)
    yield from _check_index(reader, stop)
    yield from _check_small_files(folder, stop)


def _check_files(folder: DLedgerFolder) -> Iterator[Finding]:
    for files, size_bytes in (
        (folder.data_files, folder.data_file_size_bytes),
        (folder.index_files, folder.index_file_size_bytes),
    ):
        for before, after in pairwise(files):
            gap = after.start_offset - before.start_offset - size_bytes
            if gap:
                detail = f"{gap} bytes are missing between it and the file before it"
                yield Finding("missing-file", after.path, after.start_offset, detail)
        for file in files:
            if file.size_bytes != size_bytes:
                detail = f"has {file.size_bytes} bytes instead of {size_bytes}: Java does not start with it"
                yield Finding("short-file", file.path, file.start_offset, detail)


def _check_end(reader: DLedgerReader, stop: EntryStop) -> Iterator[Finding]:
    path = reader.path_at(stop.next_offset)
    beyond = reader.entry_beyond(stop)
    if beyond is not None:
        why = stop.problem or "zeroes instead of an entry"
        detail = f"{why}; the log continues with entry {beyond.index} after entry {stop.last_index}"
        yield Finding("lost-entries", path, stop.next_offset, detail)
    elif stop.status == "bad crc":
        yield Finding("damaged-entry", path, stop.next_offset, stop.problem)
    elif _has_bytes_after(reader, stop.next_offset):
        detail = (
            "bytes after the last entry: a torn entry, or the remains of a truncation; recovery drops them"
        )
        yield Finding("stale-tail", path, stop.next_offset, detail, "note")


def _has_bytes_after(reader: DLedgerReader, offset: int) -> bool:
    """Return whether any byte from an offset (bytes) on is not zero."""
    for file in reader.view.files:
        start = max(offset, file.start_offset)
        end = min(file.start_offset + file.size_bytes, file.start_offset + file.mapped_bytes)
        for begin in range(start, end, TAIL_SLICE_BYTES):
            piece = reader.view.read(begin, min(TAIL_SLICE_BYTES, end - begin))
            if piece.count(0) != len(piece):
                return True
    return False


def _check_index(reader: DLedgerReader, stop: EntryStop) -> Iterator[Finding]:
    folder = reader.folder
    path = os.path.join(folder.path, "index")
    if stop.unit_fault >= 0:
        detail = "index units are missing or wrong from here on; recovery rebuilds them"
        yield Finding("index-unit", path, stop.unit_fault, detail, "note")
    beyond = (stop.last_index + 1) * INDEX_UNIT_BYTES
    # `durable-end` states whether such entries were durable. Without it they may have been.
    lost = folder.durable_end is None and indexed_beyond(reader.view, reader.units, stop) >= 0
    severity: Severity = "error" if lost else "note"
    for file in reader.units.files:
        position = beyond - file.start_offset
        if 0 <= position <= file.mapped_bytes - INDEX_UNIT_BYTES:
            unit = reader.units.read(beyond, INDEX_UNIT_BYTES)
            if any(unit):
                detail = "an index unit names an entry that the data files do not have"
                yield Finding("index-beyond", file.path, stop.last_index + 1, detail, severity)


def _check_small_files(folder: DLedgerFolder, stop: EntryStop) -> Iterator[Finding]:
    path = os.path.join(folder.path, TERM_FILE)
    if not folder.has_vote and stop.entry_count:
        detail = f"missing: a node would vote in term 0 again, though its log reaches term {stop.last_term}"
        yield Finding("term", path, None, detail)
    elif folder.vote.term < stop.last_term:
        detail = f"names term {folder.vote.term}, but the log reaches term {stop.last_term}"
        yield Finding("term", path, None, detail)
    if folder.durable_end == UNREADABLE:
        path = os.path.join(folder.path, DURABLE_END_FILE)
        yield Finding("lost-tail", path, None, "cannot be read: which entries were durable here is not known")
    elif folder.lost_tail is not None or (folder.durable_end or -1) > stop.last_index:
        path = os.path.join(folder.path, DURABLE_END_FILE if folder.lost_tail is None else LOST_TAIL_FILE)
        detail = f"entry {promised_index(folder)} was durable here, the log ends with entry {stop.last_index}"
        yield Finding("lost-tail", path, None, detail)
    if folder.checkpoint_problem is not None:
        yield Finding(
            "checkpoint", os.path.join(folder.path, CHECKPOINT_FILE), None, folder.checkpoint_problem
        )
    if folder.checkpoint is not None:
        path = os.path.join(folder.path, CHECKPOINT_FILE)
        committed = folder.checkpoint.get("committedIndex", -1)
        if committed > stop.last_index:
            detail = f"states that entry {committed} is committed; the log ends with entry {stop.last_index}"
            yield Finding("checkpoint", path, None, detail)
