"""The real store of a member in a simulated group, compared with the model at every step."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.protocol.dledger.messages import Entry, TermState
from pyledger.simulator.dledger.model_log import ModelLog
from pyledger.store.dledger.store import DLedgerStore

SIZES = DLedgerStoreConfig(data_file_size_bytes=1 << 16, index_file_size_bytes=1 << 15)


class FolderLog(ModelLog):
    """A model log whose entries are stored in a `DLedgerStore`.

    A crash leaves all written bytes, as `kill -9` does, or the files as they were at the last flush.
    """

    def __init__(self, random: Random, wrote: Callable[[Entry, int], None], folder: Path) -> None:
        super().__init__(random, wrote)
        self.folder, self.image = folder / "now", folder / "flushed"
        self.store = DLedgerStore(str(self.folder), SIZES)
        self._copy()

    def _copy(self) -> None:
        shutil.rmtree(self.image, ignore_errors=True)
        shutil.copytree(self.folder, self.image)

    def append_bodies(self, term: int, bodies: Sequence[bytes]) -> Sequence[int]:
        """Append to the store, and copy the entries into the model."""
        first = self.store.end_index + 1
        offsets = self.store.append_bodies(term, bodies)
        for index in range(first, self.store.end_index + 1):
            self._append(self.store.entry(index))
        return offsets

    def append_entries(self, entries: Sequence[Entry]) -> int:
        """Append to both."""
        taken = self.store.append_entries(entries)
        assert taken == len(entries), "equal logs have equal offsets"
        for entry in entries:
            self._append(entry)
        return taken

    def truncate(self, entry: Entry) -> None:
        """Truncate both."""
        super().truncate(entry)
        self.store.truncate(entry)
        assert self.store.end_index == self.end_index, "the truncated log ends with the entry"

    def entry(self, index: int) -> Entry:
        """The entry in the file; it must equal that of the model."""
        known, found = super().entry(index), self.store.entry(index)
        assert found.same_as(known), f"entry {index} reads {found}, written {known}"
        return found

    @property
    def end_position(self) -> int:
        """Bytes written, fillers included."""
        return self.store.end_position

    def flush(self) -> None:
        """Flush both, and copy the files: a power failure would leave these."""
        super().flush()
        self.store.flush()
        self._copy()

    def save_term_state(self, state: TermState) -> None:
        """Replace the term in both, and in the copy."""
        super().save_term_state(state)
        self.store.save_term_state(state)
        shutil.copy(self.folder / "currterm", self.image / "currterm")

    def crash(self) -> None:
        """Recover the store, and compare and replace the model with what it found."""
        flushed = len(self.durable_log)
        self.store.lock.release()
        if self.random.random() < 0.5:
            shutil.rmtree(self.folder)
            shutil.copytree(self.image, self.folder)
        self.store = DLedgerStore(str(self.folder), SIZES)
        self.flushing = None
        found = [self.store.entry(index) for index in range(self.store.end_index + 1)]
        written = self.log[: len(found)]
        same = all(a.same_as(b) for a, b in zip(found, written, strict=False))
        assert same or all(a.same_as(b) for a, b in zip(found, self.durable_log, strict=False)), "recovered"
        assert len(found) >= min(flushed, len(self.log)), f"{len(found)} left of {flushed} that were flushed"
        self.log = found
        self.durable_term_state = self.store.saved
        self.recover()
