"""Where a commit log ends: the rule that recovery and read-only readers share.

Every record carries its place and its digests, so the end is found from the log alone, from a file near the
end on: the last whose first record is sound, and after an unclean exit the last whose first record the
checkpoint knows to be on disk (the first file, when it knows nothing). From there records are walked until
one is not sound.

What stands there decides what that means:

- nothing sound behind it: the end. Zeroes, or a record torn by a crash.
- sound records behind it that were stored *earlier* than the one before it: left over from a log that was
  longer once and was cut without being zeroed (upstream truncates so). The end.
- sound records behind it, after an unclean exit, that nothing proves to have been flushed: pages reach the
  disk in any order, so this is a torn tail as well. The end, as upstream's recovery finds it.
- sound records behind it otherwise: damage in the middle of the log. Not the end; a reader that comes to it
  raises or skips, and nothing cuts the log there unasked.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyledger._core import LogView, MappedFile, find_next_record, read_message, scan, scan_entries

FIRST_RECORD_BYTES = 49
"""A range this long holds the start of the record that begins it, behind the head of its entry, if it has one
(48 bytes), and of no other (at least 91 bytes)."""
SEARCH_BYTES = 16 << 20
"""How far behind a fault a sound record is looked for; more than any record of a default store."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes in the middle of a log that are no sound record."""

    physical_offset: int
    """Bytes from the start of the commit log."""
    size_bytes: int
    problem: str


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends, and why there."""

    start_offset: int
    """Physical offset (bytes) that the walk began at."""
    end_offset: int
    """Physical offset (bytes) behind the last sound record."""
    status: str
    """`end`, `zeroes`, or what is wrong with the record that should start there."""
    problem: str
    """The fault in words; empty at an ordinary end."""
    last_record_offset: int
    """Physical offset (bytes) of the last sound record; -1 when the walk met none."""
    last_store_timestamp: int
    """Its store time (ms)."""
    damages: tuple[Damage, ...]
    """Damage in the middle that the walk met."""


def whole_view(files: list[MappedFile]) -> LogView:
    """All bytes of the files, before the end is known."""
    end = files[-1].start_offset + files[-1].mapped_bytes if files else 0
    return LogView(files, end)


def entries_view(files: list[MappedFile]) -> LogView:
    """The files up to the end of the last entry of a DLedger log.

    Index and term tell it: what a truncation left behind it may be as sound as the log itself.
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
        clean: The last writer shut down in good order.
        durable_ms: Records stored before this time (ms) are known to be on disk; 0 knows nothing.
        start_offset: Physical offset (bytes) of a record known to be sound, or an end found earlier; None
            chooses a file.
        last_store_timestamp: Store time (ms) of the record before `start_offset`, when that is given.
        check_bodies: Check every digest. Without, only lengths and places are looked at.
        progress: Called with the physical offset (bytes) reached.

    Cost: one pass over the bytes from the start file on; without digests over the heads of the records.
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
        behind = None
        if stop.status != "end" and (clean or last_ms < durable_ms):
            behind = _sound_behind(view, stop.next_offset)
        if behind is not None:
            stored_ms = read_message(view, behind).store_timestamp
            if stored_ms < last_ms or (not clean and stored_ms >= durable_ms):
                behind = None
        if behind is None:
            end, status, problem = stop.next_offset, stop.status, stop.problem
            return LogEnd(start, end, status, problem, last_record, last_ms, tuple(damages))
        damages.append(Damage(stop.next_offset, behind - stop.next_offset, stop.problem or "zeroes"))
        offset = behind


def start_file_offset(view: LogView, *, clean: bool, durable_ms: int) -> int:
    """Start offset (bytes) of the file that the search for the end begins in."""
    for file in reversed(view.files):
        first = scan(view, file.start_offset, file.start_offset + FIRST_RECORD_BYTES)
        if first.record_count and (clean or first.last_store_timestamp < durable_ms):
            return int(file.start_offset)
    return int(view.start_offset)


def _sound_behind(view: LogView, fault: int) -> int | None:
    """Physical offset (bytes) of the next sound record behind a fault: near it, or first in a later file."""
    near = find_next_record(view, fault + 1, fault + SEARCH_BYTES)
    if near is not None:
        return near
    for file in view.files:
        start = file.start_offset
        if start > fault and find_next_record(view, start, start + FIRST_RECORD_BYTES) is not None:
            return start
    return None
