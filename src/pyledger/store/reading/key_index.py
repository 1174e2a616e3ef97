"""Messages by key, as the index would return them after a recovery, found without changing a byte.

The index files cover the records up to the last one they name; keys of later records are read from the log.
After an unclean shutdown only the files covered by the checkpoint are used, as in upstream's recovery.
"""

from dataclasses import dataclass, field

from pyledger._core import IndexFileSet, KeyCollector, LogView, find_next_record
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.folder import INDEX_FOLDER, StoreFolder, derived_folder
from pyledger.store.reading.recovered_queues import record_boundary

QUERY_MAX = 64
"""Limit of results per query: upstream's maxMsgsNumBatch."""


@dataclass(slots=True)
class KeyIndex:
    """The index files of a folder, and the keys of the records after those that the files cover."""

    files: IndexFileSet
    covered: int
    """Physical offset (bytes) below which the files name every record."""
    end_offset: int
    """Physical offset (bytes) up to which keys are known."""
    newer: KeyCollector = field(default_factory=KeyCollector)

    def advance(self, view: LogView) -> None:
        """Add the keys of records appended since."""
        where = self.newer.collect(view, self.end_offset)
        while where < view.end_offset:
            where = self.newer.collect(view, find_next_record(view, where + 1) or view.end_offset)
        self.end_offset = view.end_offset

    def query(self, view: LogView, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Physical offsets (bytes) of records that may have a key, ascending; at most 64, the newest.

        Only hashes are compared, times (ms) in the index files to the second.
        """
        limit = min(limit, QUERY_MAX)
        found = self.newer.query(topic, key, begin_ms, end_ms, limit)
        if len(found) < limit:
            older = self.files.query(topic, key, begin_ms, end_ms, QUERY_MAX)
            inside = [offset for offset in older if view.start_offset <= offset < self.covered]
            found += inside[::-1][: limit - len(found)]
        return sorted(found)

    def close(self) -> None:
        """Close the index files."""
        self.files.close()


def recover_index(folder: StoreFolder, view: LogView, checkpoint: StoreCheckpoint | None) -> KeyIndex:
    """Read the index as a recovery would leave it.

    Cost: one pass over the part of the log that the index files do not cover.
    """
    safe_ms = None if folder.clean else checkpoint.index_msg_timestamp if checkpoint else 0
    files = IndexFileSet(derived_folder(folder.path, INDEX_FOLDER), readonly=True, safe_timestamp_ms=safe_ms)
    # The last record that the files name is read again: after a crash some of its keys may be missing.
    covered = record_boundary(view, min(max(files.end_physical_offset, view.start_offset), view.end_offset))
    index = KeyIndex(files, covered, covered)
    index.advance(view)
    return index
