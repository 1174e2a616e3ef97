"""Reading the folder of a DLedger node without changing a byte: what recovery would find there.

The data files decide; the index derives from them. Where the data end is found by the rules of Java's
recovery: lengths, place, index and term of each entry against those of the one before it. An entry that was
sealed (see docs/formats/dledger.md) must match its checksums besides.

Source: DLedger DLedgerMmapFileStore.java (recover), Differs: every file is walked, not only the last three,
and entries behind a hole are told of.
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
        generation: Whose rules hold: `a` for releases up to 0.3, `b` for 0.4; `auto` finds out. B's entries
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
        """Where `entries` ended, once it did."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        data_paths: Sequence[str] = (),
        generation: Generation = "auto",
    ) -> Self:
        """Open the folder of a node; see `read_dledger_folder` for what may go wrong."""
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
        """Walk the whole log: where it ends, and from which index on the index files are wrong.

        Args:
            progress: Called with the offset (bytes) reached.
        """
        return scan_entries(
            self.view, self.start_offset, units=self.units, any_position=self._any_position, progress=progress
        )

    def entries(self) -> Iterator[Entry]:
        """All entries in order.

        Raises:
            CorruptRecordError: behind the place where they end stand later ones: some are lost in between.
        """
        walk = EntryScan(self.view, self.start_offset, any_position=self._any_position)
        yield from (Entry(*entry) for entry in walk)
        assert walk.stop is not None
        self.stop = walk.stop
        self.refuse_hole(walk.stop)

    def read(self, offset: int) -> Entry:
        """The entry that starts at an offset (bytes) of the data files."""
        return Entry(*read_entry(self.view, offset))

    def refuse_hole(self, stop: EntryStop) -> None:
        """Raise CorruptRecordError when later entries stand behind the place where a walk ended."""
        refuse_hole(self.view, stop, self.path_at(stop.next_offset), of_b=self._any_position)

    def shortfall(self, stop: EntryStop) -> str | None:
        """Why a walk that ended here did not give all that the node once had; None where nothing tells so.

        A torn entry at the end, which a crash leaves, is none.
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
        """The first entry of a later file that goes on where a walk broke off; None when there is none."""
        return entry_beyond(self.view, stop, of_b=self._any_position)

    @property
    def committed_index(self) -> int:
        """What the checkpoint names, at most the end; -1 without a checkpoint."""
        if self.folder.checkpoint is None:
            return -1
        return self.folder.checkpoint.get("committedIndex", -1)

    @property
    def _any_position(self) -> bool:
        return self.generation == "b"

    def _find_generation(self) -> Generation:
        """Only A writes checkpoints, only B snapshots; else B's when only that makes sense of the entries."""
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
    """The first entry of a later file that goes on where a walk broke off; None when the log ends there.

    A stale one, left behind by a truncation, has a lower index or term. `of_b`: by the rules of generation B.
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


def refuse_hole(view: LogView, stop: EntryStop, path: str, *, of_b: bool = False) -> None:
    """Raise CorruptRecordError, naming a file, when entries are missing where a walk ended."""
    beyond = entry_beyond(view, stop, of_b=of_b)
    if beyond is not None:
        missing = f"{stop.last_index + 1}..{beyond.index - 1}"
        lost = f"entries {missing} are lost" if beyond.index - 1 > stop.last_index else "damage"
        problem = f"{stop.problem or 'zeroes stand here'}; {lost}, entry {beyond.index} stands behind it"
        raise CorruptRecordError(path, stop.next_offset, problem)
