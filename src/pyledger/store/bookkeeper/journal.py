"""The journals of a bookie: their files, the threads that write them, and the records that a start replays.

All records of a ledger are in one journal, so the order between journals does not matter.

Source: BookKeeper bookie/Journal.java, JournalChannel.java.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyledger._core import JournalWriter
from pyledger.atomic_file import flush_folder
from pyledger.clock import Clock
from pyledger.config.bookie import BookieConfig
from pyledger.errors import LedgerFileError
from pyledger.log_events import event, logger
from pyledger.store.bookkeeper.file_maps import FileMaps
from pyledger.store.bookkeeper.folder import journal_files
from pyledger.store.files.disk_error import disk_error
from pyledger.system_calls import flush_file
from pyledger.wire.bookkeeper.journal import (
    HEADER_BYTES,
    JournalRecord,
    header,
    records,
    start_of,
    whole_end,
)

log = logger("store")


def replayed_records(
    files: Mapping[int, str], mark: tuple[int, int], maps: FileMaps
) -> Iterator[tuple[str, JournalRecord]]:
    """Yield the records after the mark, with their files: a start replays them.

    Args:
        files: Journal files by number.
        mark: File and position (bytes) before which nothing is needed.
        maps: Maps the files.

    Raises:
        LedgerFileError: A record is damaged, or a batch that is not the last; or the file ends before the
            mark.
        StoreIOError: An I/O error occurred. It may come after records of the file.
    """
    first, position = mark
    for number, path in sorted(files.items()):
        if number < first:
            continue
        with maps.reading(path) as data:
            if number == first and len(data) < position:
                problem = f"the file ends here, before byte {position}, where the last mark is"
                raise LedgerFileError(path, len(data), problem)
            start = start_of(path, data)
            start = max(start, position) if number == first else start
            for one in records(path, data[: whole_end(path, number, data, start)], start):
                yield path, one


def require_marked_file(files: Mapping[int, str], mark: tuple[int, int], folder: str) -> None:
    """Reject a journal without the file at which its replay begins.

    Raises:
        LedgerFileError: The file is missing; entries acknowledged last are lost.
    """
    number, position = mark
    if number > 0 and number not in files:
        path = os.path.join(folder, f"{number:x}.txn")
        raise LedgerFileError(path, position, "the journal file that the last mark names is missing")


class Journal:
    """One journal that a running bookie writes. Records are appended to `writer`."""

    def __init__(
        self,
        folder: str,
        number: tuple[int, int],
        config: BookieConfig,
        clock: Clock,
        failed: Callable[[], None],
    ) -> None:
        """A journal that continues in a new file once it is started.

        Args:
            folder: The `current` of its folder.
            number: Its number among the journals of the bookie, and their count; file numbers are unique.
            config: Sizes and waiting times.
            clock: Gives the number of the first file.
            failed: Called in the journal's thread when it cannot write any more.
        """
        self.folder = folder
        self.writer = JournalWriter(
            file_bytes_max=config.journal_max_size_bytes,
            allocate_bytes=config.journal_pre_alloc_bytes,
            group_wait_ms=config.journal_max_group_wait_ms,
            group_bytes=config.journal_buffered_writes_threshold_bytes,
        )
        self._backups = config.journal_max_backups
        self._failed = failed
        which, self._step = number
        newest = max(journal_files(folder), default=clock.now_ms())
        self._number = newest + 1 + (which - newest - 1) % self._step
        self._file = -1
        self._thread = threading.Thread(target=self._serve, name="bookie-journal", daemon=True)

    def start(self) -> None:
        """Create the first file and start to write.

        Raises:
            StoreFullError: The disk is full.
            StoreIOError: An I/O error occurred.
        """
        self._next_file()
        self._thread.start()

    def close(self) -> None:
        """Write all appended records, then end. Idempotent."""
        self.writer.close()
        if self._thread.is_alive():
            self._thread.join()
        self._close_file()

    def remove_before(self, number: int) -> None:
        """Remove the files before that of a mark, except a configured number of the newest."""
        files = journal_files(self.folder)
        old = sorted(at for at in files if at < number)
        for at in old[: max(len(old) - self._backups, 0)]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(files[at])

    def _serve(self) -> None:
        try:
            while self.writer.run():
                self._next_file()
        except Exception as error:  # noqa: BLE001 - any error must be reported: adds wait for it
            event(log, logging.ERROR, "journal failed", path=self.writer.path, problem=error)
            self.writer.fail(error)
            self._failed()

    def _next_file(self) -> None:
        path = os.path.join(self.folder, f"{self._number:x}.txn")
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(file, header(sealed=True), 0)
                flush_file(file)
                flush_folder(self.folder)
            except BaseException:
                os.close(file)
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
        except OSError as error:
            raise disk_error(path, "make", error) from error
        self._close_file()
        self._file = file
        self.writer.open_file(path, file, self._number, HEADER_BYTES)
        self._number += self._step

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Journals:
    """All journals of one bookie.

    Attributes:
        writers: To append records to, by journal.
    """

    def __init__(
        self, folders: Sequence[str], config: BookieConfig, clock: Clock, failed: Callable[[], None]
    ) -> None:
        """Journals that continue once they are started; see `Journal`.

        Args:
            folders: The `current` of each.
            config: Sizes and waiting times of each.
            clock: Gives the numbers of their first files.
            failed: Called in the thread of a journal that cannot write any more.
        """
        count = len(folders)
        self._journals = [
            Journal(folder, (which, count), config, clock, failed) for which, folder in enumerate(folders)
        ]
        self.writers = tuple(one.writer for one in self._journals)

    def start(self) -> None:
        """Create the first file of each and start to write.

        Raises:
            StoreFullError: The disk is full.
            StoreIOError: An I/O error occurred.
        """
        for one in self._journals:
            one.start()

    def close(self) -> None:
        """Write all appended records, then end. Idempotent."""
        for one in self._journals:
            one.close()

    def of(self, ledger_id: int) -> int:
        """Return the number of a ledger's journal."""
        return ledger_id % len(self.writers)

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """Of each journal: file and position up to which all records are durable."""
        return tuple(writer.mark for writer in self.writers)

    @property
    def failed(self) -> bool:
        """Whether a journal cannot write any more."""
        return any(writer.failed for writer in self.writers)

    @property
    def lag_bytes(self) -> int:
        """Bytes that the slowest journal has not made durable yet."""
        return max(writer.appended - writer.synced for writer in self.writers)

    def remove_before(self, marks: Sequence[tuple[int, int]]) -> None:
        """Remove the files before those of the marks, except a configured number of the newest."""
        for one, (number, _) in zip(self._journals, marks, strict=True):
            one.remove_before(number)
