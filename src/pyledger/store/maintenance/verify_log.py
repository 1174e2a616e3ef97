"""Check the commit log: every record, every blank record, the sizes of its files, and its end."""

from collections.abc import Callable, Iterator
from itertools import pairwise

from pyledger._core import LogView, MappedFile, ScanStop, find_next_record, read_message, scan
from pyledger.store.files.finding import Finding
from pyledger.store.files.folder import StoreFolder
from pyledger.store.reading.log_end import LogEnd, whole_view

BLANK_BYTES = 8
ENTRY_FILLER = -1
"""The filler of a DLedger log has this number where a blank record has its size, followed by the size."""


def check_log_file(
    view: LogView, file: MappedFile, file_end: int, progress: Callable[[int], None]
) -> Iterator[Finding]:
    """Check the records of one file; `file_end` (bytes) is its end or that of the log.

    Cost: one pass over the bytes, every digest checked.
    """
    where = file.start_offset
    while where < file_end:
        stop = scan(view, where, file_end, progress=progress)
        if stop.next_offset >= file_end:
            yield from _check_blank(view, file, stop)
            return
        where = find_next_record(view, stop.next_offset + 1, file_end) or file_end
        problem = stop.problem or "zeroes where a record should start"
        size = where - stop.next_offset
        yield Finding(
            "damaged-record", file.path, stop.next_offset, f"{problem}; {size} bytes cannot be read"
        )


def _check_blank(view: LogView, file: MappedFile, stop: ScanStop) -> Iterator[Finding]:
    if not stop.blank_count:
        return
    at = file.start_offset
    if stop.record_count:
        at = stop.last_record_offset + read_message(view, stop.last_record_offset, check=False).store_size
    left = file.start_offset + file.size_bytes - at
    if left < BLANK_BYTES or stop.next_offset != file.start_offset + file.size_bytes:
        return
    stated = int.from_bytes(view.read(at, 4), "big", signed=True)
    if stated == ENTRY_FILLER:
        stated = int.from_bytes(view.read(at + 4, 4), "big", signed=True)
    if stated != left:
        yield Finding("blank-record", file.path, at, f"states {stated} bytes, {left} are left in the file")


def check_file_sizes(folder: StoreFolder) -> Iterator[Finding]:
    """Report files that are missing or shorter than the others."""
    size = folder.log_file_size_bytes
    for file in folder.short_files:
        detail = f"has {file.size_bytes} of {size} bytes; `pyledger repair` extends it"
        yield Finding("short-file", file.path, file.start_offset + file.size_bytes, detail)
    for file, after in pairwise(folder.log_files):
        missing = after.start_offset - file.start_offset - size
        if missing > 0:
            where = file.start_offset + size
            detail = f"{missing} bytes of the log are missing, up to {after.start_offset}"
            yield Finding("missing-file", folder.path, where, detail)


def check_log_end(files: list[MappedFile], stop: LogEnd) -> Iterator[Finding]:
    """Report what follows the end: an incomplete record, or valid ones that recovery would drop."""
    if not files:
        return
    whole = whole_view(files)
    lone = files[0] if len(files) == 1 else None
    if lone and (stop.status == "short" or 0 < whole.end_offset - stop.end_offset < BLANK_BYTES):
        detail = f"ends within a record, after {lone.mapped_bytes} bytes, so it was truncated"
        yield Finding("short-file", lone.path, whole.end_offset, detail)
    if stop.status in ("end", "zeroes"):
        return
    path = next(f.path for f in reversed(files) if f.start_offset <= stop.end_offset)
    yield Finding("torn-record", path, stop.end_offset, stop.problem)
    following = find_next_record(whole, stop.end_offset + 1)
    if following is None:
        return
    stored_ms = read_message(whole, following).store_timestamp
    if stored_ms < stop.last_store_timestamp:
        detail = f"from {following} on, older than the last record: left by a log that was once longer"
        yield Finding("lost-records", path, following, detail, "note")
    else:
        detail = f"from {following} on; no proof that they were flushed, so recovery ends the log before them"
        yield Finding("lost-records", path, following, detail)
