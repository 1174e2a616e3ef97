"""Opening a DLedger log for writing: find its end, zero the bytes after it, repair its index.

The data files are authoritative. A log with a hole cannot be opened, as its node has acknowledged the missing
entries. See docs/formats/dledger.md for where a log ends.

Source: DLedger DLedgerMmapFileStore.java (recover). Differs: every file is read and every seal checked;
bytes after the end become zero; a hole is an error.
"""

import os
import struct
from bisect import bisect_left
from itertools import pairwise

from pyledger._core import DLedgerLog, EntryStop, LogView, MappedFileQueue, read_entry, scan_entries
from pyledger.errors import OffsetOutOfRangeError, StoreFormatError
from pyledger.store.dledger.folder import INDEX_UNIT_BYTES, DLedgerFolder
from pyledger.store.dledger.reader import check_no_hole
from pyledger.store.files.disk_error import disk_error


def drop_unfit_index(folder: DLedgerFolder) -> str | None:
    """Remove all index files if one has a wrong size or offset; `recover_log` rebuilds them.

    Returns:
        The problem; None when there is none.

    Raises:
        StoreIOError: they cannot be removed.
    """
    size_bytes, files = folder.index_file_size_bytes, folder.index_files
    unfit = next(
        (
            file
            for number, file in enumerate(files)
            if file.size_bytes != size_bytes
            or size_bytes % INDEX_UNIT_BYTES
            or file.start_offset != files[0].start_offset + number * size_bytes
            or file.start_offset % size_bytes
        ),
        None,
    )
    if unfit is None:
        return None
    for file in reversed(folder.index_files):
        try:
            os.unlink(file.path)
        except OSError as error:
            raise disk_error(file.path, "remove", error) from error
    return f"{unfit.path}: does not fit the index ({unfit.size_bytes} bytes); the index is rebuilt"


def recover_log(log: DLedgerLog) -> tuple[EntryStop, int]:
    """Recover a log whose files are loaded: its end, its index range and its index files.

    Returns:
        Where the entries ended, and the result of `indexed_beyond` before the index was repaired.

    Raises:
        StoreFormatError: a file is missing between others.
        CorruptRecordError: entries are missing, though later ones are there.

    Durability: on return no byte after the end can reappear.
    """
    _check_no_gaps(log.data)
    if not log.data.files:
        stop = scan_entries(log.data.view(), 0)
        beyond = indexed_beyond(log.data.view(), log.units.view(), stop)
        log.clear_units()
        return stop, beyond
    view, start = log.data.view(), log.data.min_offset
    stop = scan_entries(view, start, units=log.units.view())
    file = log.data.find_file(stop.next_offset)
    check_no_hole(view, stop, log.data.folder if file is None else file.path)
    beyond = indexed_beyond(view, log.units.view(), stop)
    if not stop.entry_count:
        del view
        log.clear_units()
        log.data.truncate(stop.next_offset)
        log.set_range(0, -1, -1)
        return stop, beyond
    # Remove a filler after the last entry: the entry it was written for is missing, and other members may
    # not have the filler.
    log.data.truncate(stop.last_offset + read_entry(view, stop.last_offset)[3])
    del view
    log.set_range(stop.first_index, stop.last_index, stop.last_term)
    _repair_index(log, stop)
    return stop, beyond


_UNIT = struct.Struct(">iqiq")


def indexed_beyond(data: LogView, units: LogView, stop: EntryStop) -> int:
    """Return the last entry that the index names after the end of the data files; -1 without one.

    It counts only if its bytes are zero or missing: upstream does not zero entries that it truncates.
    """
    first = max(stop.last_index + 1, units.start_offset // INDEX_UNIT_BYTES)
    if stop.entry_count and first != stop.last_index + 1:
        return -1

    def position(index: int) -> int:
        magic, offset, size_bytes, stated = _UNIT.unpack(units.read(index * INDEX_UNIT_BYTES, _UNIT.size))
        return offset if magic and size_bytes > 0 and stated == index else -1

    end = units.end_offset // INDEX_UNIT_BYTES
    offset = position(first) if first < end else -1
    if offset < stop.next_offset or _has_bytes(data, offset):
        return -1
    return bisect_left(range(first, end), True, key=lambda index: position(index) < 0) + first - 1


def _has_bytes(data: LogView, offset: int) -> bool:
    for file in data.files:
        if file.start_offset <= offset <= min(file.start_offset + file.mapped_bytes, data.end_offset) - 8:
            return any(data.read(offset, 8))
    return False


def _check_no_gaps(queue: MappedFileQueue) -> None:
    for before, after in pairwise(queue.files):
        if after.start_offset - before.start_offset != queue.file_size_bytes:
            problem = f"does not follow {before.start_offset}: a file is missing before it"
            raise StoreFormatError(
                after.path, problem, "restore it, or see `pyledger dledger repair --truncate`"
            )


def _repair_index(log: DLedgerLog, stop: EntryStop) -> None:
    units, fault = log.units, stop.unit_fault
    if fault < 0:
        units.truncate((stop.last_index + 1) * INDEX_UNIT_BYTES)
        return
    where = stop.first_offset
    if fault > stop.first_index:
        before = int.from_bytes(units.view().read((fault - 1) * INDEX_UNIT_BYTES + 4, 8), "big")
        where = before + read_entry(log.data.view(), before)[3]
    try:
        units.truncate(fault * INDEX_UNIT_BYTES)
    except OffsetOutOfRangeError:
        log.clear_units()
        where, fault = stop.first_offset, stop.first_index
        log.start_units(fault)
    log.put_units(where)
