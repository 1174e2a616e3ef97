"""The contents of a store folder: its files by kind and size, and what does not belong there.

Only names and lengths are read, and the trailers of cold segments, so a folder may be written meanwhile. File
sizes are settings of the writer that no file states: they are derived from the most frequent length and the
steps between start offsets.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from pyledger._core import MappedFile
from pyledger.config.store import BATCH_UNIT_BYTES, CONSUME_QUEUE_UNIT_BYTES
from pyledger.errors import StoreFormatError, StoreIOError, StoreNotFoundError
from pyledger.model.names import LIGHT_QUEUE_PREFIX

LOG_FOLDER = "commitlog"
QUEUE_FOLDER = "consumequeue"
QUEUE_EXT_FOLDER = "consumequeue_ext"
BATCH_QUEUE_FOLDER = "batchconsumequeue"
INDEX_FOLDER = "index"
ENTRY_FOLDER = "data"
"""Entries, in the folder of a DLedger node."""
STAGING_FOLDER = "spark"
"""Rows that Spark has staged and not published."""
CONFIG_FOLDER = "config"
ROCKSDB_QUEUE_FOLDER = "consumequeue_rocksdb"
CHECKPOINT_FILE = "checkpoint"
ABORT_FILE = "abort"
LOCK_FILE = "lock"
REPAIR_PREFIX = "repair-"
REBUILD_FOLDER = ".rebuild"
DERIVED_FOLDERS = (QUEUE_FOLDER, BATCH_QUEUE_FOLDER, INDEX_FOLDER)
"""What a rebuild recreates."""

DEFAULT_LOG_FILE_BYTES = 1 << 30
DEFAULT_QUEUE_FILE_BYTES = 6_000_000
DEFAULT_BATCH_QUEUE_FILE_BYTES = 13_800_000
INDEX_SLOTS_DEFAULT = 5_000_000
INDEX_ENTRIES_DEFAULT = 20_000_000

T = TypeVar("T")

_ATTEMPTS_MAX = 5
_ENTRY_FOLDER_PREFIX = "dledger-"

# Offsets stay below 10**18, so that no sum with a size overflows.
_OFFSET_NAME = re.compile(r"00\d{18}", re.ASCII)
_COLD_NAME = re.compile(r"(00\d{18})\.lz4", re.ASCII)
_INDEX_NAME = re.compile(r"\d{17}", re.ASCII)
_KNOWN_FILES = {CHECKPOINT_FILE, ABORT_FILE, "abort.bak", LOCK_FILE, "timerwheel"}
_KNOWN_FOLDERS = {
    STAGING_FOLDER,
    LOG_FOLDER,
    QUEUE_FOLDER,
    QUEUE_EXT_FOLDER,
    BATCH_QUEUE_FOLDER,
    INDEX_FOLDER,
    CONFIG_FOLDER,
    "compaction",
    "timerlog",
}


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file whose name is its start offset (bytes) in 20 digits."""

    path: str
    start_offset: int
    size_bytes: int
    """Length on disk; of a cold segment, the length of the original file."""
    is_cold: bool = False
    """Whether this is a cold segment."""
    inode: int = 0
    """Distinguishes the file from a later one of the same name. 0 of a cold segment."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """Something unusual in the folder."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The files of one store folder, by kind."""

    path: str
    log_files: tuple[StoreFile, ...]
    log_file_size_bytes: int
    """Size of a full commit-log file. If there is only one file: its length, even if that is too short."""
    clean: bool
    """No abort file: the last shutdown was clean and no writer is running."""
    has_checkpoint: bool
    index_files: tuple[str, ...]
    """Paths, oldest first."""
    rocksdb_folders: tuple[str, ...]
    dledger_folders: tuple[str, ...]
    entry_files: tuple[StoreFile, ...]
    """Those of `log_files` that belong to a DLedger log: each record is the body of an entry."""
    unusual: tuple[SkippedFile, ...]

    @property
    def short_files(self) -> tuple[StoreFile, ...]:
        """Commit-log files that are shorter than the others."""
        return tuple(file for file in self.log_files if file.size_bytes < self.log_file_size_bytes)

    def queue_folders(self, kind: str = QUEUE_FOLDER) -> Iterator[tuple[str, int, str]]:
        """Topic, queue id and path of every queue of a kind, sorted. Each call lists the folders again."""
        root = derived_folder(self.path, kind)
        for topic in sorted(names_in(root)):
            topic_path = os.path.join(root, topic)
            if not is_folder(topic_path):
                continue
            for queue_id in sorted(int(name) for name in names_in(topic_path) if _is_queue_id(name)):
                yield topic, queue_id, os.path.join(topic_path, str(queue_id))

    def queue_file_size_bytes(self, kind: str = QUEUE_FOLDER) -> int:
        """Size of a queue file of a kind, a multiple of its unit; upstream's default when there is none."""
        default, unit_bytes = DEFAULT_QUEUE_FILE_BYTES, CONSUME_QUEUE_UNIT_BYTES
        if kind == BATCH_QUEUE_FOLDER:
            default, unit_bytes = DEFAULT_BATCH_QUEUE_FILE_BYTES, BATCH_UNIT_BYTES
        sizes: Counter[int] = Counter()
        for _, _, path in self.queue_folders(kind):
            sizes.update(file.size_bytes for file in offset_files(path) if not file.size_bytes % unit_bytes)
            if sum(sizes.values()) > 64:
                break
        return _commonest(sizes) or default

    def index_geometry(self) -> tuple[int, int]:
        """Hash slots and entries (the unused entry 0 included) of the index files.

        A file does not state its slot count: upstream's ratio of four entries per slot is assumed.
        """
        sizes = Counter(size for path in self.index_files if (size := length_of(path)) > 0)
        size_bytes = _commonest(sizes)
        if not size_bytes:
            return INDEX_SLOTS_DEFAULT, INDEX_ENTRIES_DEFAULT
        slots = (size_bytes - 40) // 84
        return slots, (size_bytes - 40 - 4 * slots) // 20


def read_folder(path: str | os.PathLike[str], *, entries: bool = False) -> StoreFolder:
    """List a store folder.

    Args:
        path: The folder.
        entries: Include a DLedger log, in `dledger-<id>/data`. For readers only: the log belongs to its
            group.

    Raises:
        StoreNotFoundError: no such folder, or it has no commit log.
        StoreFormatError: the folder has a DLedger log instead; or a cold segment is damaged.
        StoreIOError: a file or folder cannot be read.
    """
    root = os.fspath(path)
    if not is_folder(root):
        raise StoreNotFoundError(root, "this is not a folder" if os.path.lexists(root) else "no such folder")
    names = names_in(root)
    dledger = tuple(os.path.join(root, n) for n in sorted(names) if n.startswith(_ENTRY_FOLDER_PREFIX))
    log_path = os.path.join(root, LOG_FOLDER)
    unusual = [u for name in sorted(names) if (u := _unusual_entry(root, name))]
    log_files = _log_files(log_path, unusual) if is_folder(log_path) else []
    entry_files = _entry_files(root, log_files) if entries else None
    if entry_files is None and ((dledger and not log_files) or not is_folder(log_path)):
        _raise_no_log(root, names, dledger, reads_entries=entries)
    log_files += entry_files or ()
    size_bytes = whole_file_size(log_files, DEFAULT_LOG_FILE_BYTES)
    for file in log_files:
        if file.size_bytes != size_bytes:
            unusual.append(SkippedFile(file.path, f"has {file.size_bytes} bytes, the others {size_bytes}"))
        if size_bytes and file.start_offset % size_bytes and len(log_files) > 1:
            unusual.append(SkippedFile(file.path, f"its start offset is not a multiple of {size_bytes}"))
    index_folder = derived_folder(root, INDEX_FOLDER)
    index_names = []
    for name in sorted(n for n in names_in(index_folder) if _INDEX_NAME.fullmatch(n)):
        if length_of(whole := os.path.join(index_folder, name)) >= 0:
            index_names.append(name)
        else:
            unusual.append(SkippedFile(whole, "not an index file"))
    rocksdb = tuple(p for name in sorted(names) if _holds_rocksdb(p := os.path.join(root, name)))
    unusual += [SkippedFile(p, "RocksDB is not read; the commit log is") for p in rocksdb]
    if entry_files is None:
        unusual += [SkippedFile(p, "this DLedger log is not read; `commitlog` is") for p in dledger]
    return StoreFolder(
        path=root,
        log_files=tuple(log_files),
        log_file_size_bytes=size_bytes,
        clean=ABORT_FILE not in names,
        has_checkpoint=CHECKPOINT_FILE in names,
        index_files=tuple(os.path.join(index_folder, name) for name in index_names),
        rocksdb_folders=rocksdb,
        dledger_folders=dledger,
        entry_files=tuple(entry_files or ()),
        unusual=tuple(unusual),
    )


def reject_foreign_parts(path: str) -> None:
    """Raise for a folder with parts that only a Java broker can keep in step with the log.

    Without updates they would lose data: units of light queues, whose records are in other queues; queues,
    topics, groups and offsets in RocksDB.

    Raises:
        StoreFormatError: there are such parts.
    """
    queues, config = derived_folder(path, QUEUE_FOLDER), os.path.join(path, CONFIG_FOLDER)
    problem = ""
    if rocksdb := [p for p in (queues, os.path.join(path, ROCKSDB_QUEUE_FOLDER)) if _holds_rocksdb(p)]:
        problem = f"its consume queues are kept in RocksDB ({os.path.basename(rocksdb[0])})"
    elif tables := [name for name in sorted(names_in(config)) if _holds_rocksdb(os.path.join(config, name))]:
        problem = f"{', '.join(tables)} of its broker are kept in RocksDB"
    elif light := next(
        (name for name in sorted(names_in(queues)) if name.startswith(LIGHT_QUEUE_PREFIX)), None
    ):
        problem = f"it has light queues ({light})"
    if problem:
        raise StoreFormatError(
            path,
            f"{problem}, which PyLedger does not write",
            "only read it, and let a Java broker write to it",
        )


def read_with_retries(path: str, read: Callable[[StoreFolder], T]) -> T:
    """List a folder and call `read` with it, again if files vanish meanwhile.

    Raises:
        StoreIOError: a file cannot be read, or files kept vanishing.
    """
    for _attempt in range(_ATTEMPTS_MAX - 1):
        try:
            return read(read_folder(path, entries=True))
        except StoreIOError as error:
            if not isinstance(error.__cause__, OSError) or os.path.exists(error.path):
                raise
    return read(read_folder(path, entries=True))


def holds_log(path: str) -> bool:
    """Whether a folder has a commit log or a DLedger log, by the folders in it."""
    return is_folder(os.path.join(path, LOG_FOLDER)) or bool(_entry_folders(path))


def log_extent_bytes(path: str) -> tuple[int, int]:
    """Bytes from the start of the log to the end of its last file, by file names and the last length.

    Returns:
        The total, and the bytes of the last file, which may not be fully written yet.
    """
    found = [
        (name, folder)
        for folder in (os.path.join(path, LOG_FOLDER), *_entry_folders(path))
        for name in names_in(folder)
        if _OFFSET_NAME.fullmatch(name) or _COLD_NAME.fullmatch(name)
    ]
    if not found:
        return 0, 0
    (first, _), (last, folder) = min(found), max(found)
    in_last = max(0, length_of(os.path.join(folder, last)))
    return int(last[:20]) - int(first[:20]) + in_last, in_last


def _entry_folders(root: str) -> list[str]:
    """The folders with the entries of DLedger logs."""
    names = sorted(name for name in names_in(root) if name.startswith(_ENTRY_FOLDER_PREFIX))
    folders = (os.path.join(root, name, ENTRY_FOLDER) for name in names)
    return [folder for folder in folders if is_folder(folder)]


def replaced_folder(root: str, name: str) -> str:
    """Path to which a rebuild moves the old folder of a kind before it renames the new one."""
    return os.path.join(root, REBUILD_FOLDER, "old-" + name)


def derived_folder(root: str, name: str) -> str:
    """Path of a folder of derived files, also after an interrupted rebuild."""
    current, old = os.path.join(root, name), replaced_folder(root, name)
    return old if not is_folder(current) and is_folder(old) else current


def offset_files(path: str) -> list[StoreFile]:
    """Files of a folder whose names are start offsets, in order; an empty last file is left out."""
    return _consistent_list(lambda: _offset_files(path, sorted(names_in(path))))


def _consistent_list(list_files: Callable[[], list[StoreFile]]) -> list[StoreFile]:
    """List a folder that may be written meanwhile.

    A listing is not a snapshot: of files created meanwhile, it may contain a later one without an earlier
    one, or with an old length. Files that existed when it began are in it, so a gap in two successive
    listings is real.
    """
    missed: set[int] | None = None
    while True:
        files = list_files()
        misses = {
            b.start_offset for a, b in pairwise(files) if a.start_offset + a.size_bytes < b.start_offset
        }
        if not misses or (missed is not None and misses <= missed):
            return files
        missed = misses


def _offset_files(path: str, names: Sequence[str]) -> list[StoreFile]:
    found = []
    for name in names:
        if _OFFSET_NAME.fullmatch(name):
            whole = f"{path}/{name}"
            if (facts := _facts_of(whole)) is not None and stat.S_ISREG(facts.st_mode):
                found.append(StoreFile(whole, int(name), facts.st_size, inode=facts.st_ino))
    while found and found[-1].size_bytes == 0:
        found.pop()
    return found


def _is_queue_id(name: str) -> bool:
    return name.isascii() and name.isdecimal() and name == str(int(name)) and int(name) < 1 << 31


def names_in(path: str) -> list[str]:
    """Return the names in a folder; empty when there is no such folder."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreIOError(path, "list", error.strerror or str(error)) from error


def is_folder(path: str) -> bool:
    """Whether a path is a folder.

    Raises:
        StoreIOError: not known. A caller that took this as "no" would assign queue offsets twice.
    """
    facts = _facts_of(path)
    return facts is not None and stat.S_ISDIR(facts.st_mode)


def length_of(path: str) -> int:
    """Length of a regular file (bytes); -1 for anything else, or when it does not exist.

    Raises:
        StoreIOError: not known.
    """
    facts = _facts_of(path)
    return facts.st_size if facts is not None and stat.S_ISREG(facts.st_mode) else -1


def _facts_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreIOError(path, "stat", error.strerror or str(error)) from error


def _entry_files(root: str, before: Sequence[StoreFile]) -> list[StoreFile] | None:
    """Data files of the only DLedger log of a folder, which may continue a plain log; None without one."""
    folders = _entry_folders(root)
    if len(folders) != 1:
        return None
    files = offset_files(folders[0])
    joins = not (files and before) or before[-1].start_offset + before[-1].size_bytes <= files[0].start_offset
    return files if joins else None


def _raise_no_log(root: str, names: Sequence[str], dledger: Sequence[str], *, reads_entries: bool) -> None:
    if dledger:
        logs = ", ".join(Path(folder).name for folder in dledger)
        raise StoreFormatError(
            root,
            f"the log is kept by DLedger in {logs}",
            "give a folder with the log of one node, which must not be empty"
            if reads_entries
            else "such a folder can only be read; the brokers of its group write to it",
        )
    if any(_OFFSET_NAME.fullmatch(name) for name in names):
        raise StoreNotFoundError(root, "this is a folder of log or queue files, not a store")
    inside = [n for n in sorted(names) if is_folder(os.path.join(root, n, LOG_FOLDER))]
    hint = f"did you mean {os.path.join(root, inside[0])}? no" if inside else "no"
    raise StoreNotFoundError(root, f"{hint} `{LOG_FOLDER}` folder in it")


def _unusual_entry(root: str, name: str) -> SkippedFile | None:
    path = os.path.join(root, name)
    known = _KNOWN_FOLDERS if is_folder(path) else _KNOWN_FILES
    if name in known or name.startswith(_ENTRY_FOLDER_PREFIX) or _holds_rocksdb(path):
        return None
    if name.startswith(REPAIR_PREFIX):
        return SkippedFile(path, "bytes that a repair removed from the log")
    if name == REBUILD_FOLDER:
        return SkippedFile(path, "left by an interrupted rebuild")
    return SkippedFile(path, "not part of a store")


def _holds_rocksdb(path: str) -> bool:
    return length_of(os.path.join(path, "CURRENT")) >= 0


def _log_files(path: str, unusual: list[SkippedFile]) -> list[StoreFile]:
    names: list[str] = []

    def list_files() -> list[StoreFile]:
        names[:] = sorted(names_in(path))
        files = _offset_files(path, names)
        if len(files) == len(names):
            return files
        plain = {os.path.basename(file.path) for file in files}
        cold = [file for name in names if (file := _cold_file(path, name, plain))]
        return sorted([*files, *cold], key=lambda file: file.start_offset)

    files = _consistent_list(list_files)
    known = {os.path.basename(file.path) for file in files}
    for name in names:
        if name in known:
            continue
        whole = os.path.join(path, name)
        if _COLD_NAME.fullmatch(name):
            unusual.append(SkippedFile(whole, "a cold segment whose plain file still exists"))
            continue
        empty = _OFFSET_NAME.fullmatch(name) and length_of(whole) >= 0
        unusual.append(SkippedFile(whole, "an empty file" if empty else "not a commit-log file"))
    return files


def _cold_file(path: str, name: str, plain: Container[str]) -> StoreFile | None:
    """A cold segment by its name; None for other names, if its plain file exists, or if it vanished."""
    found = _COLD_NAME.fullmatch(name)
    if not found or found[1] in plain:
        return None
    whole = os.path.join(path, name)
    try:
        segment = MappedFile.open(whole)
    except StoreIOError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    try:
        return StoreFile(whole, segment.start_offset, segment.size_bytes, is_cold=True)
    finally:
        segment.close()


def whole_file_size(files: Sequence[StoreFile], default_bytes: int) -> int:
    """Size (bytes) of full files: the most frequent length or step that agrees with all start offsets."""
    if not files:
        return default_bytes
    steps = Counter(b.start_offset - a.start_offset for a, b in pairwise(files))
    evidence = steps + Counter(file.size_bytes for file in files if file.size_bytes)
    # A missing file makes a step too long and a truncated one makes a length too short: neither divides the
    # other steps.
    fitting = {size: times for size, times in evidence.items() if not any(step % size for step in steps)}
    return _commonest(Counter(fitting or evidence))


def _commonest(counts: Counter[int]) -> int:
    """The most frequent number, of equals the largest; 0 when there are none."""
    return max(counts, key=lambda number: (counts[number], number), default=0)
