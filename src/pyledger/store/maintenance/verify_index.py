"""Check index files: headers, hash chains, and each entry against the keys of its record."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyledger._core import (
    IndexFile,
    KeyCollector,
    LogView,
    MappedFile,
    check_index_entries,
    find_next_record,
    index_chain_faults,
)
from pyledger.errors import StoreFormatError
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.finding import Finding, Severity
from pyledger.store.files.folder import StoreFolder

_SHOWN_MAX = 10


@dataclass(slots=True)
class _CheckedFile:
    path: str
    raw: MappedFile
    slot_count: int
    entry_count: int
    safe: bool
    """Covered by the checkpoint, so that recovery keeps it."""
    next_entry: int = 1
    """Number of the first entry that was not compared yet."""
    faults: int = 0
    """Faults reported so far."""


@dataclass(slots=True)
class IndexCheck:
    """Compares the index with the log, one log file at a time."""

    folder: StoreFolder
    view: LogView
    checkpoint: StoreCheckpoint | None
    _files: list[_CheckedFile] = field(default_factory=list)
    _missing: int = 0
    _first_missing: int = -1

    def check_files(self) -> Iterator[Finding]:
        """Check headers and hash chains of all files."""
        safe_ms = self.checkpoint.index_msg_timestamp if self.checkpoint else 0
        for path in self.folder.index_files:
            try:
                file = IndexFile(path, readonly=True)
            except StoreFormatError as error:
                yield Finding("index-header", path, 0, error.problem)
                continue
            raw = MappedFile.open(path)
            safe = self.folder.clean or file.end_timestamp <= safe_ms
            self._files.append(_CheckedFile(path, raw, file.slot_count, file.entry_count, safe))
            if safe:
                yield from _check_header(file)
                yield from _check_chains(path, raw, file)
            else:
                detail = "not covered by the checkpoint, so recovery deletes it and indexes its records again"
                yield Finding("index-missing", path, None, detail, "note")
            file.close()

    def check_range(self, start: int, end: int) -> Iterator[Finding]:
        """Compare the entries of records in a range of the log (bytes)."""
        keys = KeyCollector(with_tags=True)
        where = keys.collect(self.view, start, end)
        while where < end:
            where = keys.collect(self.view, find_next_record(self.view, where + 1, end) or end, end)
        wanted, found = len(keys) - keys.of_tags_count, 0
        for file in self._files:
            file.next_entry, of_keys, faults = check_index_entries(
                file.raw,
                file.slot_count,
                file.entry_count,
                file.next_entry,
                keys,
                min_offset=self.view.start_offset,
                end_offset=end,
                limit=_SHOWN_MAX - file.faults if file.safe else 0,
            )
            found += of_keys
            file.faults += len(faults)
            for entry, physical_offset, has_keys in faults:
                what = "no record with this key" if has_keys else "no record with keys"
                detail = f"{what} is at physical offset {physical_offset}"
                yield Finding("index-entry", file.path, entry, detail)
        if found < wanted:
            self._missing += wanted - found
            if self._first_missing < 0:
                self._first_missing = start

    def check_rest(self) -> Iterator[Finding]:
        """Report entries after the end of the log, and keys without an entry."""
        for file in self._files:
            left = file.entry_count - file.next_entry
            if left > 0 and file.safe:
                detail = f"{left} entries name records after the end of the log, {self.view.end_offset}"
                severity: Severity = "error" if self.folder.clean else "note"
                yield Finding("index-entry", file.path, file.next_entry, detail, severity)
        if self._missing:
            path = os.path.join(self.folder.path, "index")
            detail = f"{self._missing} keys are missing, from physical offset {self._first_missing} on"
            yield Finding("index-missing", path, None, detail, "note")


def _check_chains(path: str, raw: MappedFile, file: IndexFile) -> Iterator[Finding]:
    faults = index_chain_faults(raw, file.slot_count, file.entry_count, _SHOWN_MAX)
    for kind, entry, stated, wanted in faults:
        if kind == "hash":
            yield Finding("index-chain", path, entry, f"its key hash is negative: {stated}")
        elif kind == "previous":
            detail = f"links to entry {stated}, but the entry before it in its slot is {wanted}"
            yield Finding("index-chain", path, entry, detail)
        else:
            detail = f"the chain of slot {entry} starts here, but its newest entry is {wanted}"
            yield Finding("index-chain", path, stated, detail)


def _check_header(file: IndexFile) -> Iterator[Finding]:
    last = file.entry_count - 1
    if last < 1:
        return
    begin, end = file.entry(1)[1], file.entry(last)[1]
    if (file.begin_physical_offset, file.end_physical_offset) != (begin, end):
        detail = (
            f"states physical offsets {file.begin_physical_offset} to {file.end_physical_offset}, "
            f"its entries have {begin} to {end}"
        )
        yield Finding("index-header", file.path, 0, detail)
    if file.begin_timestamp > file.end_timestamp:
        detail = f"begins at {file.begin_timestamp} ms, after its end at {file.end_timestamp} ms"
        yield Finding("index-header", file.path, 0, detail)
