"""The list of a bookie's ledgers: a second record of how many entries their indexes name.

If an index is missing or truncated, its ledger seems never to have existed. So each checkpoint writes the
ledgers, and how many entries their indexes name, to one more file. It does so after the indexes are on disk
and before the journal's mark advances: the list is a lower bound at any moment.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pyledger.atomic_file import replace_file
from pyledger.errors import LedgerFileError
from pyledger.log_events import event, logger
from pyledger.regular_file import open_regular
from pyledger.store.bookkeeper.disks import LedgerDisks, write_at
from pyledger.store.bookkeeper.folder import LIST_FILE
from pyledger.store.files.disk_error import disk_error
from pyledger.system_calls import flush_data
from pyledger.wire.bookkeeper.ledger_list import (
    KEY_BYTES_MAX,
    RECORD_BYTES,
    ListContent,
    ListedLedger,
    decode_list,
    encode_list_header,
    encode_list_mark,
    encode_listed,
    encode_removed,
    is_behind,
)

log = logger("store")

SPARE_RECORDS = 16_384
"""A list is rewritten when it has this many obsolete records plus one for each ledger."""


def read_list(paths: Iterable[str], marks: Mapping[int, tuple[int, int]]) -> ListContent | None:
    """Read the list of a bookie; None: it has none, or another program has written to its folders since.

    Args:
        paths: Where it may be, in the folders of the bookie.
        marks: Of each journal: file and position (bytes) before which nothing is replayed.

    Raises:
        LedgerFileError: The list is damaged.
        StoreIOError: An I/O error occurred.
    """
    found: list[ListContent] = []
    for path in paths:
        try:
            found.append(decode_list(path, Path(path).read_bytes()))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise disk_error(path, "read", error) from error
    current = (one for one in found if not is_behind(one, marks))
    return max(current, key=lambda one: one.generation, default=None)


class LedgerList:
    """The list of a running bookie. All but `remove` belongs to the thread that writes checkpoints.

    Attributes:
        ledgers: Its content.
    """

    def __init__(self, disks: LedgerDisks) -> None:
        """A list that the first `write` rewrites."""
        self._disks = disks
        self.ledgers: dict[int, ListedLedger] = {}
        self._removed: set[int] = set()
        self._marks: tuple[tuple[int, int], ...] = ()
        self._generation = 0
        self._path, self._end = "", 0

    def read(self, marks: Iterable[tuple[int, int]]) -> dict[int, ListedLedger] | None:
        """Return what the indexes must name according to the list on disk; None: it is missing or not usable.

        Raises:
            StoreIOError: An I/O error occurred.
        """
        try:
            content = read_list(self._paths(), dict(enumerate(marks)))
        except LedgerFileError as error:
            # The indexes themselves may well be valid.
            event(log, logging.WARNING, "list of ledgers is rebuilt", problem=error.problem, path=error.path)
            return None
        if content is None:
            return None
        self._generation = content.generation
        return content.ledgers

    def write(self, marks: tuple[tuple[int, int], ...], changed: Mapping[int, ListedLedger]) -> None:
        """Write ledgers whose indexes are on disk, and those that were removed; durable.

        Args:
            marks: Of each journal: file and position (bytes) up to which the list is complete.
            changed: The ledgers that changed.

        Raises:
            StoreFullError: The disk is full.
            StoreIOError: An I/O error occurred.
        """
        self._marks = marks
        self.ledgers |= {
            ledger_id: one for ledger_id, one in changed.items() if len(one.master_key) <= KEY_BYTES_MAX
        }
        records = [encode_removed(ledger_id) for ledger_id in self._removed if ledger_id not in self.ledgers]
        records += [encode_listed(one, self.ledgers[one]) for one in changed if one in self.ledgers]
        records += self._mark_records()
        spare = self._end // RECORD_BYTES - 2 * len(self.ledgers)
        if not self._path or spare > SPARE_RECORDS or self._disks.avoids(os.path.dirname(self._path)):
            self._replace()
        else:
            self._append(b"".join(records))
        self._removed.clear()

    def remove(self, ledger_id: int) -> None:
        """Remove a ledger from the next `write` or `flush` on. Not to be called during either."""
        if self.ledgers.pop(ledger_id, None) is not None:
            self._removed.add(ledger_id)

    def flush(self) -> None:
        """Make removals durable: from now on no start expects those ledgers.

        Raises:
            StoreFullError: The disk is full.
            StoreIOError: An I/O error occurred.
        """
        if self._removed:
            self.write(self._marks, {})

    def _append(self, data: bytes) -> None:
        try:
            with open(self._path, "r+b", buffering=0, opener=open_regular) as file:
                write_at(file.fileno(), data, self._end)
                flush_data(file.fileno())
        except OSError as error:
            raise disk_error(self._path, "write", error) from error
        self._end += len(data)

    def _replace(self) -> None:
        path = os.path.join(self._disks.choose(), LIST_FILE)
        records = [encode_listed(ledger_id, one) for ledger_id, one in self.ledgers.items()]
        data = b"".join((encode_list_header(self._generation + 1), *records, *self._mark_records()))
        try:
            replace_file(Path(path), data, backup=False)
            for old in self._paths():
                if old != path:
                    with suppress(FileNotFoundError):
                        os.unlink(old)
        except OSError as error:
            raise disk_error(path, "write", error) from error
        self._generation += 1
        self._path, self._end = path, len(data)

    def _mark_records(self) -> list[bytes]:
        return [encode_list_mark(which, mark) for which, mark in enumerate(self._marks)]

    def _paths(self) -> list[str]:
        return [os.path.join(folder, LIST_FILE) for folder in self._disks.folders]
