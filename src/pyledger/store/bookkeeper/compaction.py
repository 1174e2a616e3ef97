"""Compaction of a bookie's entry logs: entries that are needed move to another log, then the log is removed.

An entry's new copy is on disk before its index names it, and all slots are on disk before the old log is
removed. So after a crash at any moment every slot names a complete entry; at worst an entry is stored twice.

Source: BookKeeper bookie/GarbageCollectorThread.java, EntryLogCompactor.java.
"""

from collections.abc import Container, Iterable, Iterator

from pyledger.store.bookkeeper.entry_log import EntryLocation, EntryLogs
from pyledger.store.bookkeeper.index import IndexFiles

SLICE_BYTES = 4 << 20
"""Bytes moved at a time; between two slices others may use the disk."""


def logs_worth_compacting(logs: EntryLogs, known: Container[int], threshold_percent: int) -> list[int]:
    """Return the closed logs of which less than a share is needed, the emptiest first.

    Args:
        logs: All of a folder; `logs.closed` was called.
        known: Ledgers that are not deleted.
        threshold_percent: The share.
    """
    found = []
    for number, sizes in logs.closed(()).items():
        needed = sum(size for ledger_id, size in sizes.items() if ledger_id in known)
        if needed * 100 < threshold_percent * logs.size_bytes(number):
            found.append((needed, number))
    return [number for _, number in sorted(found)]


def compaction(
    logs: EntryLogs, indexes: IndexFiles, number: int, slice_bytes: int = SLICE_BYTES
) -> Iterator[int]:
    """Move the needed entries of one closed log; yield the bytes of each slice once it is durable.

    Afterwards no index points to the log. To be called in the thread that writes.

    Args:
        logs: Of the folder.
        indexes: Of the folder.
        number: Which log.
        slice_bytes: How much is moved before others may use the disk.

    Raises:
        LedgerFileError: An entry is not where its index points; the log must be kept.
        StoreFullError: The disk is full.
        StoreIOError: An I/O error occurred; the folder must not be used any more.
    """
    batch: dict[int, list[tuple[EntryLocation, bytes]]] = {}
    size_bytes = 0
    for place, entry in logs.copies(number, _locations_in(indexes, sorted(logs.sizes[number]), number)):
        batch.setdefault(place.ledger_id, []).append((place, entry))
        size_bytes += len(entry)
        if size_bytes >= slice_bytes:
            _move(logs, indexes, batch)
            yield size_bytes
            batch, size_bytes = {}, 0
    _move(logs, indexes, batch)
    yield size_bytes


def _locations_in(indexes: IndexFiles, ledger_ids: Iterable[int], number: int) -> Iterator[EntryLocation]:
    for ledger_id in ledger_ids:
        for entry_id, location in indexes.locations(ledger_id):
            if location >> 32 == number:
                yield EntryLocation(ledger_id, entry_id, location)


def _move(logs: EntryLogs, indexes: IndexFiles, batch: dict[int, list[tuple[EntryLocation, bytes]]]) -> None:
    moved: dict[int, dict[int, tuple[int, int]]] = {}
    for ledger_id, copies in batch.items():
        locations = logs.append(ledger_id, (entry for _, entry in copies))
        moved[ledger_id] = {
            place.entry_id: (place.location, location)
            for (place, _), location in zip(copies, locations, strict=True)
        }
    if moved:
        logs.sync()
    for ledger_id, slots in moved.items():
        indexes.move(ledger_id, slots)
