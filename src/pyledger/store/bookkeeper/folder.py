"""The files in the folders of a bookie: journals, entry logs, indexes, marks, cookies.

Reads names and the small files; changes nothing. A bookie has one or more folders of each kind, each
with a subfolder `current`.

Source: BookKeeper bookie/BookieImpl.java, LedgerDirsManager.java, IndexPersistenceMgr.java.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from pyledger.errors import (
    ConfigError,
    LedgerMetadataError,
    StoreFormatError,
    StoreIOError,
    StoreNotFoundError,
)
from pyledger.regular_file import open_regular
from pyledger.store.files.folder import SkippedFile, is_folder, names_in
from pyledger.wire.bookkeeper.bookies import Cookie, decode_cookie
from pyledger.wire.bookkeeper.journal import decode_mark

CURRENT = "current"
COOKIE_FILE = "VERSION"
MARK_FILE = "lastMark"
DIRTY_FILE = "DIRTY"
LIST_FILE = "ledgers.list"
"""Of our bookies: their ledgers, and how many entries the indexes name."""
LOCATIONS_FOLDER = "locations"
"""The RocksDB index of a `DbLedgerStorage`."""
DEPTH_MAX = 3
SMALL_FILE_BYTES_MAX = 1 << 16
_JOURNAL = re.compile(r"([0-9a-f]{1,16})\.txn", re.ASCII)
_LOG = re.compile(r"([0-9a-f]{1,8})\.log", re.ASCII)
_INDEX = re.compile(r"([0-9a-f]{1,16})\.idx", re.ASCII)
_MARK = re.compile(r"lastMark(?:\.(\d{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class BookiePaths:
    """The folders of a bookie: one or more for journals, one or more for ledgers."""

    journals: tuple[str, ...]
    ledgers: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject a folder that is given twice: each journal removes all old files in its folder.

        Raises:
            ConfigError: A folder is there twice.
        """
        for setting, paths in (("journal_directories", self.journals), ("ledger_directories", self.ledgers)):
            for path, count in Counter(map(os.path.realpath, paths)).items():
                if count > 1:
                    raise ConfigError(setting, f"{path} is given {count} times", "give each folder once")

    @classmethod
    def below(cls, folder: str | os.PathLike[str]) -> Self:
        """One of each, in a folder of their own."""
        return cls((os.path.join(folder, "journal"),), (os.path.join(folder, "ledgers"),))

    def absolute(self) -> Self:
        """Return the same paths, made absolute."""
        journals, ledgers = (tuple(map(os.path.abspath, paths)) for paths in (self.journals, self.ledgers))
        return type(self)(journals, ledgers)

    @property
    def all(self) -> tuple[str, ...]:
        """Journals first."""
        return self.journals + self.ledgers


@dataclass(frozen=True, slots=True)
class JournalFiles:
    """One journal of a bookie. Numbers are those in the names of files."""

    current: str
    files: dict[int, str]
    mark: tuple[int, int] = (0, 0)
    """File and position (bytes) before which nothing needs to be replayed."""


@dataclass(frozen=True, slots=True)
class BookieFolder:
    """The files of one bookie. Numbers are those in the names."""

    path: str
    journals: tuple[JournalFiles, ...]
    entry_logs: dict[int, str]
    indexes: dict[int, str]
    """By ledger."""
    cookie: Cookie | None
    has_rocksdb: bool
    dirty: bool
    """A writer runs, or had no clean shutdown; only newer releases of BookKeeper set it."""
    unusual: tuple[SkippedFile, ...]
    lists: tuple[str, ...] = ()
    """Lists of ledgers, in bookies of ours."""
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By journal: file and position (bytes) before which nothing needs to be replayed."""


def read_bookie_folder(path: str | os.PathLike[str], *more: str | os.PathLike[str]) -> BookieFolder:
    """Read which files the folder of a bookie contains.

    Args:
        path: The folder above those of its journals and its entry logs.
        more: Further folders, on other disks.

    Raises:
        StoreNotFoundError: There is no such folder, or it contains no bookie's files.
        StoreFormatError: It contains the files of several bookies.
        StoreIOError: An I/O error occurred.
    """
    root = os.fspath(path)
    found = _Found(root)
    for one in (root, *(os.fspath(path) for path in more)):
        if not is_folder(one):
            raise StoreNotFoundError(one, "no such folder", _REMEDY)
        for current in _current_folders(one, DEPTH_MAX):
            found.add_folder(current)
    if not found.journals and not found.entry_logs and not found.cookies:
        raise StoreNotFoundError(root, "it contains no journal and no entry log of a bookie", _REMEDY)
    return BookieFolder(
        root,
        found.journals_with_marks(),
        dict(sorted(found.entry_logs.items())),
        dict(sorted(found.indexes.items())),
        next(iter(found.cookies), None),
        found.has_rocksdb,
        found.dirty,
        tuple(found.unusual),
        tuple(found.lists),
        found.marks,
    )


_REMEDY = "name the folder that contains those of the journal and of the ledgers"


class _Found:
    def __init__(self, root: str) -> None:
        self.root = root
        self.journals: dict[str, dict[int, str]] = {}
        self.entry_logs: dict[int, str] = {}
        self.indexes: dict[int, str] = {}
        self.marks: dict[int, tuple[int, int]] = {}
        self.cookies: list[Cookie] = []
        self.has_rocksdb = self.dirty = False
        self.unusual: list[SkippedFile] = []
        self.lists: list[str] = []

    def add_folder(self, current: str) -> None:
        """Add the files of one `current`."""
        names = sorted(names_in(current))
        self.has_rocksdb |= LOCATIONS_FOLDER in names
        self.dirty |= DIRTY_FILE in names
        for name in names:
            whole = os.path.join(current, name)
            if journal := _JOURNAL.fullmatch(name):
                self.journals.setdefault(current, {})[int(journal[1], 16)] = whole
            elif log := _LOG.fullmatch(name):
                self._add(self.entry_logs, int(log[1], 16), whole)
            elif mark := _MARK.fullmatch(name):
                self._mark(whole, int(mark[1] or 0))
            elif name == COOKIE_FILE:
                self._cookie(whole)
            elif name == LIST_FILE:
                self.lists.append(whole)
        for ledger_id, whole in index_files(current):
            self._add(self.indexes, ledger_id, whole)

    def _add(self, files: dict[int, str], number: int, path: str) -> None:
        if number in files:
            raise StoreFormatError(
                self.root, f"{files[number]} and {path} have the same number", "name the folder of one bookie"
            )
        files[number] = path

    def journals_with_marks(self) -> tuple[JournalFiles, ...]:
        """Return the journals in the order of a cookie, else of their paths."""
        configured = self.cookies[0].journal_dirs if self.cookies else ()
        order = {os.path.basename(path): which for which, path in enumerate(configured)}
        order |= {path: which for which, path in enumerate(configured)}

        def position(current: str) -> tuple[int, str]:
            folder = os.path.dirname(current)
            return order.get(os.path.abspath(folder), order.get(os.path.basename(folder), 0)), current

        found = []
        for which, current in enumerate(sorted(self.journals, key=position)):
            files = dict(sorted(self.journals[current].items()))
            mark = self.marks.get(which, (0, 0))
            # With several journals, a mark that names no file of this one belongs to another one.
            mark = mark if len(self.journals) == 1 or mark[0] in files else (0, 0)
            found.append(JournalFiles(current, files, mark))
        return tuple(found)

    def _mark(self, path: str, which: int) -> None:
        if (mark := decode_mark(_small_file(path))) is not None:
            self.marks[which] = max(mark, self.marks.get(which, mark))
        else:
            self.unusual.append(SkippedFile(path, "not the mark of a journal: its length is wrong"))

    def _cookie(self, path: str) -> None:
        try:
            cookie = decode_cookie(_small_file(path))
        except LedgerMetadataError as error:
            self.unusual.append(SkippedFile(path, str(error)))
            return
        if self.cookies and cookie != self.cookies[0]:
            self.unusual.append(SkippedFile(path, "a cookie that differs from that of another folder"))
        self.cookies.append(cookie)


def mark_name(which: int, count: int) -> str:
    """Return the name of the file with the mark of one of `count` journals."""
    return MARK_FILE if count == 1 else f"{MARK_FILE}.{which}"


def read_mark(folders: Iterable[str], name: str) -> tuple[int, int]:
    """Return the highest mark in several `current`: journal file and position (bytes); else zeros."""
    paths = [os.path.join(folder, name) for folder in folders if name in names_in(folder)]
    return max((decode_mark(_small_file(path)) or (0, 0) for path in paths), default=(0, 0))


def journal_files(current: str) -> dict[int, str]:
    """The journals of one `current`, by number."""
    return _numbered(current, _JOURNAL)


def entry_log_files(current: str) -> dict[int, str]:
    """The entry logs of one `current`, by number."""
    return _numbered(current, _LOG)


def index_path(current: str, ledger_id: int) -> str:
    """Return the path of the index of a ledger."""
    return os.path.join(current, f"{ledger_id >> 8 & 0xFF:x}", f"{ledger_id & 0xFF:x}", f"{ledger_id:x}.idx")


def _numbered(current: str, pattern: re.Pattern[str]) -> dict[int, str]:
    found = (pattern.fullmatch(name) for name in sorted(names_in(current)))
    return {int(one[1], 16): os.path.join(current, one[0]) for one in found if one}


def _current_folders(root: str, depth: int) -> Iterator[str]:
    for name in sorted(names_in(root)):
        below = os.path.join(root, name)
        if not is_folder(below):
            continue
        if name == CURRENT:
            yield below
        elif depth > 1:
            yield from _current_folders(below, depth - 1)


def index_files(current: str) -> Iterator[tuple[int, str]]:
    """Ledgers and their indexes: `<two bytes of the id>/<ledger>.idx`, all in hex."""
    for high in sorted(names_in(current)):
        for low in sorted(names_in(os.path.join(current, high))) if len(high) <= 2 else ():
            folder = os.path.join(current, high, low)
            for name in sorted(names_in(folder)) if len(low) <= 2 else ():
                if found := _INDEX.fullmatch(name):
                    yield int(found[1], 16), os.path.join(folder, name)


def _small_file(path: str) -> bytes:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(SMALL_FILE_BYTES_MAX)
    except OSError as error:
        raise StoreIOError(path, "read", error.strerror or str(error)) from error
