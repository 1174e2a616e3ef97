"""DLedgerStore: the log of a DLedger node on mapped files, with its term file and checkpoint.

It is the `LogStorage` of `protocol.dledger`. One thread appends and reads; another may flush.
Invariant: committed_index <= end_index; what was appended before `flush` returned survives a power failure.
See docs/formats/dledger.md.

Source: DLedger DLedgerMmapFileStore.java, MemberState.java.
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

from pyledger._core import DLedgerLog, EntryScan, MappedFileQueue
from pyledger.atomic_file import flush_folder
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import (
    EntryPositionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StoreFormatError,
    StoreFullError,
)
from pyledger.protocol.dledger.messages import BodyBatch, Entry, EntryBatch, TermState
from pyledger.store.dledger.durable_end import UNREADABLE, DurableEnd
from pyledger.store.dledger.folder import (
    CHECKPOINT_FILE,
    DATA_FOLDER,
    INDEX_FOLDER,
    INDEX_UNIT_BYTES,
    LOST_TAIL_FILE,
    TERM_FILE,
    DLedgerFolder,
    promised_index,
    read_dledger_folder,
)
from pyledger.store.dledger.recovery import drop_unfit_index, recover_log
from pyledger.store.files.disk_error import disk_error
from pyledger.store.files.lock import StoreLock
from pyledger.store.files.meta_file import make_folder, write_file
from pyledger.store.files.retention import disk_usage

CHUNK_BYTES = 1 << 20
ENTRY_BYTES_MAX = 4 << 20
NOTHING_CACHED = (-1, 0, 0, -1)


class DLedgerStore:
    """One node's log, opened for writing.

    Args:
        path: The node's folder, `dledger-<id>`; created when missing.
        config: Sizes and rules; a folder with files keeps their sizes.
        patch_at: See `DLedgerLog`.
    """

    def __init__(self, path: str, config: DLedgerStoreConfig | None = None, *, patch_at: int = -1) -> None:
        self.path = path
        self.config = config or DLedgerStoreConfig()
        self.patch_at = patch_at
        self.disk_full = False
        self.lost_tail = False
        self.promised_index = -1
        """With `lost_tail`: the last entry known to have been durable here; -1 when none is known."""
        self.notices: list[str] = []
        """What recovery found or changed, for the operator."""
        self._flushing = threading.Lock()
        self._flushed_index = -1
        self._regained = False
        self._committed = -1
        self._checkpoint = (-1, -1)
        self._checkpoint_ms = 0
        self._cached_range, self._cached_batch = NOTHING_CACHED, EntryBatch(b"", 0, 0)
        make_folder(Path(path))
        self.lock = StoreLock(path).acquire()
        try:
            self._open()
        except BaseException as error:
            self.lock.release()
            if isinstance(error, OSError):
                raise disk_error(error.filename or path, "open", error) from error
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], config: DLedgerStoreConfig | None = None) -> Self:
        """Open a node's folder; see `recover_log` for the errors, and `StoreLockedError`."""
        return cls(os.fspath(path), config)

    def _open(self) -> None:
        self.data_paths = self.config.data_paths or (os.path.join(self.path, DATA_FOLDER),)
        self._flush_folders()
        known = sorted({*self.data_paths, *self.config.read_only_data_paths})
        folder = read_dledger_folder(self.path, known)
        if unfit := drop_unfit_index(folder):
            self.notices.append(unfit)
            folder = read_dledger_folder(self.path, known)
        if folder.checkpoint_problem:
            path = os.path.join(self.path, CHECKPOINT_FILE)
            self.notices.append(f"{path}: {folder.checkpoint_problem}; it is rewritten")
        self._make_log(folder)
        self.recovered, indexed = recover_log(
            self._log
        )  # flushes what a killed process left in the page cache
        end_index = self._log.end_index
        if self.recovered.problem:
            where = self._log.data.find_file(self.recovered.next_offset)
            self.notices.append(
                f"{self.path if where is None else where.path}: the log ends with entry {end_index}, and "
                f"bytes after it were dropped: at offset {self.recovered.next_offset} "
                f"{self.recovered.problem}"
            )
        self._committed = min((folder.checkpoint or {}).get("committedIndex", -1), end_index)
        if self._committed < self._log.begin_index:
            self._committed = -1
        self._check_tail(folder, indexed)
        self._take_term(folder)
        self._flushed_index = end_index
        self._durable_end = DurableEnd(self.path, end_index)

    def _check_tail(self, folder: DLedgerFolder, indexed: int) -> None:
        """Set `lost_tail` when durable entries are missing: then this member must not vote.

        The marker survives crashes until a leader has sent the missing entries. Without `durable-end`,
        entries up to `indexed`, which only the index names, may have been durable.
        """
        end_index, promised = self._log.end_index, promised_index(folder)
        if folder.durable_end is None:
            promised = max(promised, indexed)
        unreadable = folder.durable_end == UNREADABLE
        if folder.lost_tail is None and promised <= end_index and not unreadable:
            return
        self.lost_tail = True
        self.promised_index = promised if promised > end_index else -1
        write_lost_tail(self.path, self.promised_index, end_index)
        known = f"entry {promised} was durable here" if promised > end_index else "entries may be lost"
        self.notices.append(
            f"{self.path}: {known}, the log ends with entry {end_index}: this member neither votes nor "
            "campaigns until a leader has filled it up; see `pyledger dledger status`"
        )

    def _take_term(self, folder: DLedgerFolder) -> None:
        """Read term and vote, without which a member might vote twice in a term.

        Raises:
            StoreFormatError: they are lost.
        """
        path, end_term = os.path.join(self.path, TERM_FILE), self._log.end_term
        used = self._log.end_index >= 0 or self.lost_tail or folder.durable_end is not None
        if (not folder.has_vote and (used or folder.has_term_file)) or folder.vote.term < end_term:
            found = f"names term {folder.vote.term}" if folder.has_vote else "is missing or names no term"
            reached = f", though the log reaches term {end_term}" if end_term >= 0 else ""
            raise StoreFormatError(
                path,
                f"{found}{reached}: this member might vote twice in a term",
                "with all other members running, set it: "
                f"`pyledger dledger repair {self.path} --group GROUP --peers PEERS`",
            )
        self.saved = TermState(folder.vote.term, folder.vote.vote_for)
        if not folder.has_vote:
            self.save_term_state(self.saved)  # from now on a missing file is a lost one

    def _flush_folders(self) -> None:
        """Make names durable: of the folder, and of a term file whose writer was killed."""
        flush_folder(Path(self.path))
        flush_folder(Path(self.path).absolute().parent)

    def _make_log(self, folder: DLedgerFolder) -> None:
        data_size, index_size = self.config.data_file_size_bytes, self.config.index_file_size_bytes
        if folder.data_files:
            data_size = folder.data_file_size_bytes
        if folder.index_files:
            index_size = folder.index_file_size_bytes
        chunk = min(CHUNK_BYTES, data_size)
        first, *more = self.data_paths
        more += [path for path in self.config.read_only_data_paths if path not in self.data_paths]
        data = MappedFileQueue(
            first,
            data_size,
            allocate_chunk_bytes=chunk,
            more_folders=more,
            choose=partial(self._folder_for, data_size) if more else None,
        )
        units = MappedFileQueue(
            os.path.join(self.path, INDEX_FOLDER), index_size, allocate_chunk_bytes=CHUNK_BYTES
        )
        data.load()
        units.load()
        self._log = DLedgerLog(data, units, seal=self.config.seal_entries, patch_at=self.patch_at)

    def _folder_for(self, data_size: int, start_offset: int) -> str:
        """Return the folder of a new data file, chosen as upstream does."""
        paths = [path for path in self.data_paths if path not in self.config.read_only_data_paths]
        free = [path for path in paths if disk_usage(path) <= self.config.disk_ratio_to_force_clean] or paths
        return free[start_offset // data_size % len(free)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush, write the checkpoint and release the lock."""
        if self._log.data.closed:
            return
        try:
            if self._log.data.failed is None and self._log.units.failed is None:
                self.flush()
                self.flush_units()
                self._durable_end.sync()
                with contextlib.suppress(StoreFullError):  # the old checkpoint stays valid
                    self.write_checkpoint()
        finally:
            self._durable_end.close()
            self._log.close()
            self.lock.release()

    # -- reading

    @property
    def begin_index(self) -> int:
        """Index of the first entry; -1 of an empty log."""
        log = self._log
        return log.begin_index if log.end_index >= log.begin_index else -1

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 of an empty log."""
        return self._log.end_index

    @property
    def end_term(self) -> int:
        """Term of the last entry."""
        return self._log.end_term

    @property
    def end_position(self) -> int:
        """Offset (bytes) of the next entry, unless it does not fit into the file."""
        return self._log.end_offset

    @property
    def committed_index(self) -> int:
        """As last set; after a start, the one of the checkpoint."""
        return self._committed

    @property
    def committed_position(self) -> int:
        """Offset (bytes) of the end of the last committed entry; -1 without one."""
        if self._committed < self._log.begin_index or self._committed < 0:
            return -1
        entry = self._log.read(self._committed)
        return self._log.position_of(self._committed) + entry[3]

    @property
    def log(self) -> DLedgerLog:
        """The native log; for readers of ranges."""
        return self._log

    def regained_tail(self) -> None:
        """Note that the log has all entries again that were durable; recorded with the next `flush`."""
        self.lost_tail = False
        self._regained = True

    def term_at(self, index: int) -> int:
        """Term of an entry."""
        return self._log.term_of(index)

    def entry(self, index: int) -> Entry:
        """One entry, its checksum verified."""
        return Entry._make(self._log.read(index))

    def entries(self, index: int, count_max: int, size_bytes_max: int) -> EntryBatch:
        """Entries from `index` on: at least one, then as many as the limits (bytes) and the end allow.

        Cost: one copy of their bytes, each checksum verified; none for the same arguments as before.
        """
        key = (index, count_max, size_bytes_max, self._log.end_index)
        if key != self._cached_range:
            self._cached_batch = EntryBatch(*self._log.read_batch(index, count_max, size_bytes_max))
            self._cached_range = key
        return self._cached_batch

    # -- writing

    def append_bodies(self, term: int, bodies: Sequence[bytes]) -> list[int]:
        """As leader: append entries, all or none; return their offsets.

        Raises:
            StoreFullError: the disk is full.
            RecordTooLargeError: a body exceeds 4 MiB less 48 bytes, or does not fit into a data file.
        """
        log, end = self._log, self._log.end_index
        try:
            if isinstance(bodies, BodyBatch):
                return log.append_bodies(term, bodies.data)
            return log.append_many(term, bodies)
        except StoreFullError:
            self.disk_full = True
            if log.end_index > end:
                with self._flushing:
                    self._truncate_to(end)
            raise

    def append_entries(self, entries: Sequence[Entry]) -> int:
        """As follower: append entries up to one that does not follow the end; return how many.

        Raises:
            StoreFullError: the disk has no free space for the first of them.
        """
        log = self._log
        if isinstance(entries, EntryBatch):
            return log.append_batch(entries.data)
        for count, entry in enumerate(entries):
            try:
                log.append_entry(
                    entry.index, entry.term, entry.pos, entry.magic, entry.channel, entry.chain_crc,
                    entry.body_crc, entry.body,
                )  # fmt: skip
            except (EntryPositionError, OffsetOutOfRangeError, RecordTooLargeError):
                return count
            except StoreFullError:
                if not count:
                    raise
                return count
        return len(entries)

    def truncate(self, entry: Entry) -> None:
        """Make this the last entry: keep it if it is stored already, else truncate and append it.

        Raises:
            EntryPositionError: its offset would differ from that of its leader.

        Durability: the truncation is durable on return, the entry with the next `flush`.
        """
        log = self._log
        with self._flushing:
            if self.begin_index < 0 or not log.begin_index <= entry.index <= log.end_index + 1:
                self._start_at(entry)
            elif entry.index <= log.end_index and self.entry(entry.index).same_as(entry):
                self._truncate_to(entry.index)
                return
            elif entry.index <= log.end_index:
                self._truncate_to(entry.index - 1)
        if not self.append_entries([entry]):
            raise EntryPositionError(log.data.folder, entry.pos, log.end_offset)

    def _truncate_to(self, end_index: int) -> None:
        """End the log with an entry; one before its first empties it. Data are truncated before units."""
        log = self._log
        begin = log.begin_index
        self._cached_range = NOTHING_CACHED
        self._expect_end(end_index)
        if end_index < begin:
            where, term = log.position_of(begin), -1
        else:
            where = log.position_of(end_index) + log.read(end_index)[3]
            term = log.term_of(end_index)
        log.data.truncate(where)
        log.units.truncate((end_index + 1) * INDEX_UNIT_BYTES)
        log.set_range(begin, end_index, term)
        self._flushed_index = min(self._flushed_index, end_index)

    def _start_at(self, entry: Entry) -> None:
        """Delete all entries, so that the log begins with this one."""
        log = self._log
        self._cached_range = NOTHING_CACHED
        self._expect_end(-1)
        log.clear()
        log.start_at(entry.index, entry.pos, -1)
        self._flushed_index = -1

    def _expect_end(self, end_index: int) -> None:
        """Lower `durable-end` before a truncation, so that no entry counts as lost after a power failure."""
        if end_index < self._durable_end.index:
            self._durable_end.set(end_index)
            self._durable_end.sync()

    def set_committed(self, index: int) -> None:
        """Set the committed index."""
        self._committed = index

    def flush(self) -> None:
        """Make all appends and truncations durable.

        Raises:
            StoreFailedError: this or an earlier flush failed; it is never tried again.
        """
        with self._flushing:
            end_index, regained = self._log.end_index, self._regained
            while self._log.data.flush(0):
                pass
            self._flushed_index = end_index
            self._durable_end.set(end_index)
            if regained:
                path = os.path.join(self.path, LOST_TAIL_FILE)
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise disk_error(path, "remove", error) from error
                self._regained = False

    def flush_units(self) -> None:
        """Make the index durable. No acknowledgement waits for this, as recovery rebuilds the index."""
        with self._flushing:
            while self._log.units.flush(0):
                pass

    def save_term_state(self, state: TermState) -> None:
        """Replace the term file, durably."""
        write_term_state(self.path, state)
        self.saved = state

    def write_checkpoint(self) -> None:
        """Write the checkpoint: committed and end index, as far as they are durable."""
        content = self._checkpoint_content()
        if content != self._checkpoint:
            text = f"committedIndex={content[0]}\nendIndex={content[1]}\n"
            write_file(Path(self.path, CHECKPOINT_FILE), text.encode())
            self._checkpoint = content

    def needs_care(self, now_ms: int) -> bool:
        """Return whether `take_care` has anything to flush or write."""
        log = self._log
        flushed = log.data.flushed_where >= log.data.max_offset and self._flushed_index == log.end_index
        synced = log.units.flushed_where >= log.units.max_offset and self._durable_end.is_synced
        return not flushed or not synced or self._checkpoint_due(now_ms)

    def take_care(self, now_ms: int) -> None:
        """Flush data, index and `durable-end`; write the checkpoint if its interval is over.

        Args:
            now_ms: Of a monotonic clock.
        """
        self.flush()
        self.flush_units()
        with self._flushing:
            self._durable_end.sync()
        if self._checkpoint_due(now_ms):
            self._checkpoint_ms = now_ms
            self.write_checkpoint()

    def _checkpoint_due(self, now_ms: int) -> bool:
        over = now_ms - self._checkpoint_ms >= self.config.check_point_interval_ms
        return over and self._checkpoint != self._checkpoint_content()

    def _checkpoint_content(self) -> tuple[int, int]:
        flushed = self._flushed_index
        return min(self._committed, flushed), flushed

    def delete_head(self, count: int) -> list[str]:
        """Delete the first `count` data files, except the last one and those with uncommitted entries.

        Returns:
            The paths of the deleted files.
        """
        log = self._log
        with self._flushing:
            committed = self.committed_position
            files = [f for f in log.data.files if f.start_offset + f.size_bytes <= committed]
            gone = log.data.delete_head(min(count, len(files)))
            if gone:
                begin = next(EntryScan(log.data.view(), log.data.min_offset))[0]
                log.set_range(begin, log.end_index, log.end_term)
                per_file = log.units.file_size_bytes // INDEX_UNIT_BYTES
                first = log.units.min_offset // INDEX_UNIT_BYTES
                gone += log.units.delete_head(max(0, (begin - first) // per_file))
            return gone


def write_lost_tail(path: str, promised_index: int, end_index: int) -> None:
    """Write the marker, durably: the log ends with `end_index`, though `promised_index` was durable."""
    text = f"promisedIndex={promised_index}\nendIndex={end_index}\n"
    write_file(Path(path, LOST_TAIL_FILE), text.encode(), backup=False)


def write_term_state(path: str, state: TermState) -> None:
    """Replace the term file of a node's folder, durably."""
    text = f"voteLeader={state.vote_leader or ''}\ncurrTerm={state.curr_term}\n"
    write_file(Path(path, TERM_FILE), text.encode())
