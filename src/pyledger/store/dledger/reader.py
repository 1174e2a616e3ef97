"""Reading the folder of a DLedger node without changing a byte: what recovery would find.

The data files are authoritative; the index derives from them. The end of the data is found by the rules of
Java's recovery: the lengths, offset, index and term of each entry must follow those of the entry before it. A
sealed entry (see docs/formats/dledger.md) must also match its checksums.

Source: DLedger DLedgerMmapFileStore.java (recover). Differs: every file is read, not only the last three,
and entries after missing ones are reported.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Self

from pyledger._core import EntryScan, EntryStop, LogView, MappedFile, read_entry, scan_entries
from pyledger.errors import CorruptRecordError
from pyledger.protocol.dledger.messages import Entry
from pyledger.store.dledger.folder import DLedgerFolder, promised_index, read_dledger_folder
from pyledger.store.files.folder import StoreFile

Generation = Literal["auto", "a", "b"]


class DLedgerReader:
    """A node's log, opened for reading.

    Args:
        folder: What `read_dledger_folder` found.
        generation: Which rules apply: `a` for releases up to 0.3, `b` for 0.4; `auto` detects it. B's entries
            may name another position than their own, and may be no-ops.
    """

    def __init__(self, folder: DLedgerFolder, generation: Generation = "auto") -> None:
        self.folder = folder
        self._files: list[MappedFile] = []
        self.view = self._open(folder.data_files, folder.data_file_size_bytes)
        self.units = self._open(folder.index_files, folder.index_file_size_bytes)
        start = folder.data_files[0].start_offset if folder.data_files else 0
        self.start_offset = start
        self.generation = self._find_generation() if generation == "auto" else generation
        self.stop: EntryStop | None = None
        """Where `entries` ended; None before."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        data_paths: Sequence[str] = (),
        generation: Generation = "auto",
    ) -> Self:
        """Open the folder of a node; see `read_dledger_folder` for the errors."""
        return cls(read_dledger_folder(path, data_paths), generation)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the files."""
        del self.view, self.units
        for file in self._files:
            file.close()

    def scan(self, progress: Callable[[int], None] | None = None) -> EntryStop:
        """Scan the whole log; return where it ends, and from which index on the index files are wrong.

        Args:
            progress: Called with the offset (bytes) reached.
        """
        return scan_entries(
            self.view, self.start_offset, units=self.units, any_position=self._any_position, progress=progress
        )

    def entries(self) -> Iterator[Entry]:
        """All entries in order.

        Raises:
            CorruptRecordError: later entries follow the end, so some are missing in between.
        """
        walk = EntryScan(self.view, self.start_offset, any_position=self._any_position)
        yield from (Entry(*entry) for entry in walk)
        assert walk.stop is not None
        self.stop = walk.stop
        self.check_no_hole(walk.stop)

    def read(self, offset: int) -> Entry:
        """The entry that starts at an offset (bytes) of the data files."""
        return Entry(*read_entry(self.view, offset))

    def check_no_hole(self, stop: EntryStop) -> None:
        """Raise CorruptRecordError when later entries follow the end of a scan."""
        check_no_hole(self.view, stop, self.path_at(stop.next_offset), of_b=self._any_position)

    def shortfall(self, stop: EntryStop) -> str | None:
        """Return why entries are missing after the end of a scan; None when none is known to be missing.

        A torn entry at the end, as a crash leaves it, does not count.
        """
        promised, last = promised_index(self.folder), stop.last_index
        if stop.status != "bad crc" and promised <= last and self.folder.lost_tail is None:
            return None
        what = f"the log ends with entry {last}, at offset {stop.next_offset}"
        why = f": {stop.problem}" if stop.problem else ""
        more = f"; entry {promised} was durable here" if promised > last else "; later ones may be lost"
        return f"{self.path_at(stop.next_offset)}: {what}{why}{more}"

    def path_at(self, offset: int) -> str:
        """The data file that holds an offset (bytes); the node's folder when none does."""
        for file in self.folder.data_files:
            if 0 <= offset - file.start_offset < self.folder.data_file_size_bytes:
                return file.path
        return self.folder.path

    def entry_beyond(self, stop: EntryStop) -> Entry | None:
        """Return the first entry of a later file that continues the log after a hole; None without one."""
        return entry_beyond(self.view, stop, of_b=self._any_position)

    @property
    def committed_index(self) -> int:
        """The committed index of the checkpoint; -1 without a checkpoint."""
        if self.folder.checkpoint is None:
            return -1
        return self.folder.checkpoint.get("committedIndex", -1)

    @property
    def _any_position(self) -> bool:
        return self.generation == "b"

    def _find_generation(self) -> Generation:
        """Only A writes checkpoints, only B snapshots; else B when only its rules fit the entries."""
        if self.folder.checkpoint is not None:
            return "a"
        if self.folder.has_snapshots:
            return "b"
        as_a = scan_entries(self.view, self.start_offset)
        if as_a.status not in ("bad magic", "bad position"):
            return "a"
        as_b = scan_entries(
            self.view,
            as_a.next_offset,
            units=self.units,
            last_index=as_a.last_index,
            last_term=as_a.last_term,
            any_position=True,
        )
        return "b" if as_b.entry_count and as_b.unit_fault != as_b.first_index else "a"

    def _open(self, files: Sequence[StoreFile], size_bytes: int) -> LogView:
        opened = [MappedFile.open(file.path, size_bytes=size_bytes) for file in files]
        self._files += opened
        end = opened[-1].start_offset + opened[-1].size_bytes if opened else 0
        return LogView(opened, end)


def entry_beyond(view: LogView, stop: EntryStop, *, of_b: bool = False) -> Entry | None:
    """Return the first entry of a later file that continues the log after a hole; None without one.

    A stale entry, left by a truncation, has a lower index or term. `of_b`: by the rules of generation B.
    """
    for file in view.files:
        if file.start_offset <= stop.next_offset:
            continue
        found = next(EntryScan(view, file.start_offset, any_position=of_b), None)
        if found is not None:
            entry = Entry(*found)
            if entry.index > stop.last_index and entry.term >= stop.last_term:
                return entry
    return None


def check_no_hole(view: LogView, stop: EntryStop, path: str, *, of_b: bool = False) -> None:
    """Raise CorruptRecordError, naming the file, when entries are missing after the end of a scan."""
    beyond = entry_beyond(view, stop, of_b=of_b)
    if beyond is not None:
        missing = f"{stop.last_index + 1}..{beyond.index - 1}"
        lost = f"entries {missing} are lost" if beyond.index - 1 > stop.last_index else "damage"
        problem = f"{stop.problem or 'zeroes instead of an entry'}; {lost}, entry {beyond.index} follows"
        raise CorruptRecordError(path, stop.next_offset, problem)
