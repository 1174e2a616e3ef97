"""The journals of a bookie: their files, the threads that write them, and what a start replays.

Records of one ledger go to one journal, so nothing depends on an order between two of them.

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
from pyledger.store.bookkeeper.folder import journal_files
from pyledger.store.files.disk_error import disk_error
from pyledger.wire.bookkeeper.journal import (
    HEADER_BYTES,
    JournalRecord,
    header,
    records,
    start_of,
    whole_end,
)

log = logger("store")

Map = Callable[[str], memoryview]


def replayed_records(
    files: Mapping[int, str], mark: tuple[int, int], map_file: Map
) -> Iterator[tuple[str, JournalRecord]]:
    """Records behind the mark with their files: what a start takes over.

    Args:
        files: Journal files by number.
        mark: File and position (bytes) before which nothing is needed.
        map_file: Gives the bytes of a file.

    Raises:
        LedgerFileError: A record is damaged, or a batch that others follow; or the file ends before the mark.
    """
    first, position = mark
    for number, path in sorted(files.items()):
        if number < first:
            continue
        data = map_file(path)
        if number == first and len(data) < position:
            problem = f"the file ends here, before byte {position} that the last mark names"
            raise LedgerFileError(path, len(data), problem)
        start = start_of(path, data)
        start = max(start, position) if number == first else start
        for one in records(path, data[: whole_end(path, number, data, start)], start):
            yield path, one


def require_marked_file(files: Mapping[int, str], mark: tuple[int, int], folder: str) -> None:
    """Refuse a journal that lacks the file from which a replay begins.

    Raises:
        LedgerFileError: It does: what was acknowledged last is lost here.
    """
    number, position = mark
    if number > 0 and number not in files:
        path = os.path.join(folder, f"{number:x}.txn")
        raise LedgerFileError(path, position, "the journal that the last mark names is not there")


class Journal:
    """One journal that a running bookie writes. `writer` is where records go."""

    def __init__(
        self,
        folder: str,
        place: tuple[int, int],
        config: BookieConfig,
        clock: Clock,
        failed: Callable[[], None],
    ) -> None:
        """A journal that goes on in a new file once it is started.

        Args:
            folder: The `current` of its folder.
            place: Which journal of the bookie it is, and of how many; no two use a number twice.
            config: Sizes and waits.
            clock: Names the first file.
            failed: Called in the journal's thread when nothing can be written any more.
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
        which, self._step = place
        newest = max(journal_files(folder), default=clock.now_ms())
        self._number = newest + 1 + (which - newest - 1) % self._step
        self._file = -1
        self._thread = threading.Thread(target=self._serve, name="bookie-journal", daemon=True)

    def start(self) -> None:
        """Make the first file and write from now on.

        Raises:
            StoreFullError: No room.
            StoreIOError: The operating system refused.
        """
        self._next_file()
        self._thread.start()

    def close(self) -> None:
        """Write what was appended, then end. Idempotent."""
        self.writer.close()
        if self._thread.is_alive():
            self._thread.join()
        self._close_file()

    def remove_before(self, number: int) -> None:
        """Remove files before that of a mark, but for some of the newest."""
        files = journal_files(self.folder)
        old = sorted(at for at in files if at < number)
        for at in old[: max(len(old) - self._backups, 0)]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(files[at])

    def _serve(self) -> None:
        try:
            while self.writer.run():
                self._next_file()
        except Exception as error:  # noqa: BLE001 - whatever ends it must be known: adds wait for it
            event(log, logging.ERROR, "journal failed", path=self.writer.path, problem=error)
            self.writer.fail(error)
            self._failed()

    def _next_file(self) -> None:
        path = os.path.join(self.folder, f"{self._number:x}.txn")
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(file, header(sealed=True), 0)
                os.fsync(file)
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
        writers: Where records go, by journal.
    """

    def __init__(
        self, folders: Sequence[str], config: BookieConfig, clock: Clock, failed: Callable[[], None]
    ) -> None:
        """Journals that go on once they are started; see `Journal`.

        Args:
            folders: The `current` of each.
            config: Sizes and waits of each.
            clock: Names their first files.
            failed: Called in the thread of one that cannot be written any more.
        """
        count = len(folders)
        self._journals = [
            Journal(folder, (which, count), config, clock, failed) for which, folder in enumerate(folders)
        ]
        self.writers = tuple(one.writer for one in self._journals)

    def start(self) -> None:
        """Make the first file of each and write from now on.

        Raises:
            StoreFullError: No room.
            StoreIOError: The operating system refused.
        """
        for one in self._journals:
            one.start()

    def close(self) -> None:
        """Write what was appended, then end. Idempotent."""
        for one in self._journals:
            one.close()

    def of(self, ledger_id: int) -> int:
        """Which journal the records of a ledger go to."""
        return ledger_id % len(self.writers)

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """Of each journal: file and position up to which all is durable."""
        return tuple(writer.mark for writer in self.writers)

    @property
    def failed(self) -> bool:
        """Whether one of them cannot be written any more."""
        return any(writer.failed for writer in self.writers)

    @property
    def behind_bytes(self) -> int:
        """What the slowest has not made durable yet."""
        return max(writer.appended - writer.synced for writer in self.writers)

    def remove_before(self, marks: Sequence[tuple[int, int]]) -> None:
        """Remove files before those of the marks, but for some of the newest."""
        for one, (number, _) in zip(self._journals, marks, strict=True):
            one.remove_before(number)
