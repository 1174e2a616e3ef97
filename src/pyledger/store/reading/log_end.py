"""Where a commit log ends: the rule that recovery and read-only readers share.

Every record holds its offset and digests, so the end is found from the log alone. The scan starts at the last
file whose first record is valid; after an unclean shutdown, at the last file whose first record is covered by
the checkpoint, or at the first file. It ends at the first record that is not valid.

What follows that record decides:

- no valid record: this is the end. Zeroes, or a record torn by a crash.
- valid records that were stored *earlier* than the record before: left by a longer log that was truncated
  without being zeroed, as upstream does. This is the end.
- after an unclean shutdown, valid records not proved to be flushed: pages reach the disk in any order,
  so this is a torn tail, too. This is the end, as in upstream's recovery.
- other valid records: damage in the middle of the log, not its end. Readers raise or skip it, and the log is
  truncated there only on request.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyledger._core import LogView, MappedFile, find_next_record, read_message, scan, scan_entries

FIRST_RECORD_BYTES = 49
"""Length of a range that holds the start of its first record and of no other: the head of an entry has 48
bytes, a record at least 91."""
SEARCH_BYTES = 16 << 20
"""How far after a fault the next valid record is searched; more than any record of a default store."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes in the middle of a log that are not a valid record."""

    physical_offset: int
    """Bytes from the start of the commit log."""
    size_bytes: int
    problem: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends, and why."""

    start_offset: int
    """Physical offset (bytes) at which the scan began."""
    end_offset: int
    """Physical offset (bytes) after the last valid record."""
    status: str
    """`end`, `zeroes`, or the kind of fault in the record that should start there."""
    problem: str
    """Description of the fault; empty at an ordinary end."""
    last_record_offset: int
    """Physical offset (bytes) of the last valid record; -1 when the scan found none."""
    last_store_timestamp: int
    """Its store time (ms)."""
    damages: tuple[Damage, ...]
    """Damage in the middle that the scan skipped."""


def whole_view(files: list[MappedFile]) -> LogView:
    """All bytes of the files, before the end is known."""
    end = files[-1].start_offset + files[-1].mapped_bytes if files else 0
    return LogView(files, end)


def entries_view(files: list[MappedFile]) -> LogView:
    """The files up to the end of the last entry of a DLedger log.

    Index and term of the entries show it: entries left after a truncation may be valid, too.
    """
    whole = whole_view(files)
    return LogView(files, scan_entries(whole, files[-1].start_offset).next_offset) if files else whole


def find_log_end(
    view: LogView,
    *,
    clean: bool,
    durable_ms: int,
    start_offset: int | None = None,
    last_store_timestamp: int = 0,
    check_bodies: bool = True,
    progress: Callable[[int], None] | None = None,
) -> LogEnd:
    """Find where a log ends.

    Args:
        view: All bytes of the log.
        clean: Whether the last shutdown was clean.
        durable_ms: Records stored before this time (ms) are known to be on disk; 0 when not known.
        start_offset: Physical offset (bytes) of a valid record, or an end found earlier; None chooses a file.
        last_store_timestamp: Store time (ms) of the record before `start_offset`, if that is given.
        check_bodies: Check every digest, not only lengths and offsets.
        progress: Called with the physical offset (bytes) reached.

    Cost: one pass over the bytes from the first file scanned; without digests, over the record headers.
    """
    start = (
        start_file_offset(view, clean=clean, durable_ms=durable_ms) if start_offset is None else start_offset
    )
    offset, last_record, last_ms = start, -1, last_store_timestamp
    damages: list[Damage] = []
    while True:
        stop = scan(view, offset, check=check_bodies, check_tail=not clean, progress=progress)
        if stop.record_count:
            last_record, last_ms = stop.last_record_offset, stop.last_store_timestamp
        following = None
        if stop.status != "end" and (clean or last_ms < durable_ms):
            following = _next_valid(view, stop.next_offset)
        if following is not None:
            stored_ms = read_message(view, following).store_timestamp
            if stored_ms < last_ms or (not clean and stored_ms >= durable_ms):
                following = None
        if following is None:
            end, status, problem = stop.next_offset, stop.status, stop.problem
            return LogEnd(start, end, status, problem, last_record, last_ms, tuple(damages))
        damages.append(Damage(stop.next_offset, following - stop.next_offset, stop.problem or "zeroes"))
        offset = following


def start_file_offset(view: LogView, *, clean: bool, durable_ms: int) -> int:
    """Start offset (bytes) of the file in which the search for the end begins."""
    for file in reversed(view.files):
        first = scan(view, file.start_offset, file.start_offset + FIRST_RECORD_BYTES)
        if first.record_count and (clean or first.last_store_timestamp < durable_ms):
            return int(file.start_offset)
    return int(view.start_offset)


def _next_valid(view: LogView, fault: int) -> int | None:
    """Physical offset (bytes) of the next valid record after a fault: near it, or first in a later file."""
    near = find_next_record(view, fault + 1, fault + SEARCH_BYTES)
    if near is not None:
        return near
    for file in view.files:
        start = file.start_offset
        if start > fault and find_next_record(view, start, start + FIRST_RECORD_BYTES) is not None:
            return start
    return None
