"""What lies in a store folder: which files of which kind and size, and what does not belong there.

Looks at names and lengths only; opens nothing, so a folder may be written meanwhile. File sizes are settings
of the writer that no file states: they are read off the files, as the commonest length and the step between
start offsets.
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

from pyledger.config.store import BATCH_UNIT_BYTES, CONSUME_QUEUE_UNIT_BYTES
from pyledger.errors import StoreFormatError, StoreIOError, StoreNotFoundError
from pyledger.model.names import LIGHT_QUEUE_PREFIX
from pyledger.store.files.cold_trailer import original_size

LOG_FOLDER = "commitlog"
QUEUE_FOLDER = "consumequeue"
QUEUE_EXT_FOLDER = "consumequeue_ext"
BATCH_QUEUE_FOLDER = "batchconsumequeue"
INDEX_FOLDER = "index"
ENTRY_FOLDER = "data"
"""Where the folder of a DLedger node keeps entries."""
STAGING_FOLDER = "spark"
"""Rows that Spark writes and that are not published yet."""
CONFIG_FOLDER = "config"
ROCKSDB_QUEUE_FOLDER = "consumequeue_rocksdb"
CHECKPOINT_FILE = "checkpoint"
ABORT_FILE = "abort"
LOCK_FILE = "lock"
REPAIR_PREFIX = "repair-"
REBUILD_FOLDER = ".rebuild"
DERIVED_FOLDERS = (QUEUE_FOLDER, BATCH_QUEUE_FOLDER, INDEX_FOLDER)
"""What a rebuild makes anew."""

DEFAULT_LOG_FILE_BYTES = 1 << 30
DEFAULT_QUEUE_FILE_BYTES = 6_000_000
DEFAULT_BATCH_QUEUE_FILE_BYTES = 13_800_000
INDEX_SLOTS_DEFAULT = 5_000_000
INDEX_ENTRIES_DEFAULT = 20_000_000

T = TypeVar("T")

_LOOKS_MAX = 5
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
    """Length on disk; of a cold segment that of the file it was made of."""
    is_cold: bool = False
    """Whether this is a cold segment."""
    inode: int = 0
    """Which file it is: one that takes its name later is another. 0 of a cold segment."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """Something in the folder that an ordinary store does not have, or has in another way."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The files of one store folder, by kind."""

    path: str
    log_files: tuple[StoreFile, ...]
    log_file_size_bytes: int
    """Size of a whole commit-log file. Of a lone file: its length, which is less when that file was cut."""
    clean: bool
    """No abort file: the last writer shut down in good order and none is running."""
    has_checkpoint: bool
    index_files: tuple[str, ...]
    """Paths, oldest first."""
    rocksdb_folders: tuple[str, ...]
    dledger_folders: tuple[str, ...]
    entry_files: tuple[StoreFile, ...]
    """Those of `log_files` that are of a DLedger log: each record is the body of an entry."""
    unusual: tuple[SkippedFile, ...]

    @property
    def cut_files(self) -> tuple[StoreFile, ...]:
        """Commit-log files that are shorter than the others."""
        return tuple(file for file in self.log_files if file.size_bytes < self.log_file_size_bytes)

    def queue_folders(self, kind: str = QUEUE_FOLDER) -> Iterator[tuple[str, int, str]]:
        """Topic, queue id and path of every queue of a kind, sorted. Looks at the disk anew each time."""
        root = home_of(self.path, kind)
        for topic in sorted(names_in(root)):
            topic_path = os.path.join(root, topic)
            if not is_folder(topic_path):
                continue
            for queue_id in sorted(int(name) for name in names_in(topic_path) if _is_queue_id(name)):
                yield topic, queue_id, os.path.join(topic_path, str(queue_id))

    def queue_file_size_bytes(self, kind: str = QUEUE_FOLDER) -> int:
        """Size of a queue file of a kind; upstream's default when there is none. It is of whole units."""
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

        A file does not state its slot count: it is taken as upstream's ratio of four entries for each slot.
        """
        sizes = Counter(size for path in self.index_files if (size := length_of(path)) > 0)
        size_bytes = _commonest(sizes)
        if not size_bytes:
            return INDEX_SLOTS_DEFAULT, INDEX_ENTRIES_DEFAULT
        slots = (size_bytes - 40) // 84
        return slots, (size_bytes - 40 - 4 * slots) // 20


def read_folder(path: str | os.PathLike[str], *, entries: bool = False) -> StoreFolder:
    """Look at a store folder.

    Args:
        path: The folder.
        entries: Take also a log that DLedger keeps, in `dledger-<id>/data`. Who changes a log does not: it is
            the group's.

    Raises:
        StoreNotFoundError: no such folder, or it holds no commit log.
        StoreFormatError: the folder keeps its log in another form (DLedger).
    """
    root = os.fspath(path)
    if not is_folder(root):
        raise StoreNotFoundError(root, "this is not a folder" if os.path.lexists(root) else "no such folder")
    names = names_in(root)
    dledger = tuple(os.path.join(root, n) for n in sorted(names) if n.startswith(_ENTRY_FOLDER_PREFIX))
    log_path = os.path.join(root, LOG_FOLDER)
    unusual = [u for name in sorted(names) if (u := _judge(root, name))]
    log_files = _log_files(log_path, unusual) if is_folder(log_path) else []
    entry_files = _entry_files(root, log_files) if entries else None
    if entry_files is None and ((dledger and not log_files) or not is_folder(log_path)):
        _refuse(root, names, dledger, reads_entries=entries)
    log_files += entry_files or ()
    size_bytes = whole_file_size(log_files, DEFAULT_LOG_FILE_BYTES)
    for file in log_files:
        if file.size_bytes != size_bytes:
            unusual.append(SkippedFile(file.path, f"has {file.size_bytes} bytes, the others {size_bytes}"))
        if size_bytes and file.start_offset % size_bytes and len(log_files) > 1:
            unusual.append(SkippedFile(file.path, f"its start offset is no multiple of {size_bytes}"))
    index_home = home_of(root, INDEX_FOLDER)
    index_names = []
    for name in sorted(n for n in names_in(index_home) if _INDEX_NAME.fullmatch(n)):
        if length_of(whole := os.path.join(index_home, name)) >= 0:
            index_names.append(name)
        else:
            unusual.append(SkippedFile(whole, "not an index file"))
    rocksdb = tuple(p for name in sorted(names) if _holds_rocksdb(p := os.path.join(root, name)))
    unusual += [SkippedFile(p, "what is in RocksDB is not read; the commit log is") for p in rocksdb]
    if entry_files is None:
        unusual += [SkippedFile(p, "a DLedger log is not read here; only `commitlog` is") for p in dledger]
    return StoreFolder(
        path=root,
        log_files=tuple(log_files),
        log_file_size_bytes=size_bytes,
        clean=ABORT_FILE not in names,
        has_checkpoint=CHECKPOINT_FILE in names,
        index_files=tuple(os.path.join(index_home, name) for name in index_names),
        rocksdb_folders=rocksdb,
        dledger_folders=dledger,
        entry_files=tuple(entry_files or ()),
        unusual=tuple(unusual),
    )


def refuse_foreign_parts(path: str) -> None:
    """Let nobody write to a folder with parts that only a Java broker keeps in step with the log.

    What is not kept in step would be lost: units of light queues, which stand in no queue of their own;
    queues, topics, groups and offsets in RocksDB.

    Raises:
        StoreFormatError: there are such parts.
    """
    queues, config = home_of(path, QUEUE_FOLDER), os.path.join(path, CONFIG_FOLDER)
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


def on_files(path: str, act: Callable[[StoreFolder], T]) -> T:
    """Look at a folder to read and do something with its files; again, when some vanish meanwhile.

    Raises:
        StoreIOError: a file cannot be read, or they keep vanishing.
    """
    for _look in range(_LOOKS_MAX - 1):
        try:
            return act(read_folder(path, entries=True))
        except StoreIOError as error:
            if not isinstance(error.__cause__, OSError) or os.path.exists(error.path):
                raise
    return act(read_folder(path, entries=True))


def holds_log(path: str) -> bool:
    """Whether a folder is a store by the folders in it: of a plain log, or of one that DLedger keeps."""
    return is_folder(os.path.join(path, LOG_FOLDER)) or bool(_entry_homes(path))


def log_extent_bytes(path: str) -> tuple[int, int]:
    """Bytes between the beginning of the log and the end of its last file, by their names alone.

    Returns:
        All of them, and those of the last file, of which a part may not be written yet.
    """
    found = [
        (name, home)
        for home in (os.path.join(path, LOG_FOLDER), *_entry_homes(path))
        for name in names_in(home)
        if _OFFSET_NAME.fullmatch(name) or _COLD_NAME.fullmatch(name)
    ]
    if not found:
        return 0, 0
    (first, _), (last, home) = min(found), max(found)
    in_last = max(0, length_of(os.path.join(home, last)))
    return int(last[:20]) - int(first[:20]) + in_last, in_last


def _entry_homes(root: str) -> list[str]:
    """Where DLedger keeps the entries of each of its logs in a folder."""
    names = sorted(name for name in names_in(root) if name.startswith(_ENTRY_FOLDER_PREFIX))
    homes = (os.path.join(root, name, ENTRY_FOLDER) for name in names)
    return [home for home in homes if is_folder(home)]


def set_aside(root: str, name: str) -> str:
    """Where a rebuild keeps the old folder of a kind while the new one takes its place."""
    return os.path.join(root, REBUILD_FOLDER, "old-" + name)


def home_of(root: str, name: str) -> str:
    """Path of a folder of derived files: where a rebuild that was cut off left it, when that is so."""
    home, aside = os.path.join(root, name), set_aside(root, name)
    return aside if not is_folder(home) and is_folder(aside) else home


def offset_files(path: str) -> list[StoreFile]:
    """Files of a folder whose names are start offsets, in order; an empty last file is left out."""
    return _in_one_piece(lambda: _offset_files(path, sorted(names_in(path))))


def _in_one_piece(look: Callable[[], list[StoreFile]]) -> list[StoreFile]:
    """Files of a folder that may be written to meanwhile.

    A folder is not listed in one moment: of files that are made meanwhile a later one may be found and an
    earlier one not, or not with its length. What was there before a look began it finds, so a file that two
    looks in a row miss is missing.
    """
    missed: set[int] | None = None
    while True:
        files = look()
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
    """The names in a folder; none when there is no such folder."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreIOError(path, "list", error.strerror or str(error)) from error


def is_folder(path: str) -> bool:
    """Whether there is a folder of that path.

    Raises:
        StoreIOError: the system cannot say. Who took that for "no" would give out queue offsets again.
    """
    facts = _facts_of(path)
    return facts is not None and stat.S_ISDIR(facts.st_mode)


def length_of(path: str) -> int:
    """Length of a regular file (bytes); -1 for anything else, or when it went away meanwhile.

    Raises:
        StoreIOError: the system cannot say.
    """
    facts = _facts_of(path)
    return facts.st_size if facts is not None and stat.S_ISREG(facts.st_mode) else -1


def _facts_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreIOError(path, "look at", error.strerror or str(error)) from error


def _entry_files(root: str, before: Sequence[StoreFile]) -> list[StoreFile] | None:
    """The data files of the one DLedger log of a folder, which may go on behind files of a plain one.

    None: there is no such log, or not just one.
    """
    homes = _entry_homes(root)
    if len(homes) != 1:
        return None
    files = offset_files(homes[0])
    joins = not (files and before) or before[-1].start_offset + before[-1].size_bytes <= files[0].start_offset
    return files if joins else None


def _refuse(root: str, names: Sequence[str], dledger: Sequence[str], *, reads_entries: bool) -> None:
    if dledger:
        logs = ", ".join(Path(folder).name for folder in dledger)
        raise StoreFormatError(
            root,
            f"the log is kept by DLedger in {logs}",
            "give a folder with one node's log that is not empty"
            if reads_entries
            else "such a folder can be read; only a broker of its group writes to it",
        )
    if any(_OFFSET_NAME.fullmatch(name) for name in names):
        raise StoreNotFoundError(root, "this is a folder of log or queue files, not a store")
    inside = [n for n in sorted(names) if is_folder(os.path.join(root, n, LOG_FOLDER))]
    hint = f"did you mean {os.path.join(root, inside[0])}? no" if inside else "no"
    raise StoreNotFoundError(root, f"{hint} `{LOG_FOLDER}` folder in it")


def _judge(root: str, name: str) -> SkippedFile | None:
    path = os.path.join(root, name)
    known = _KNOWN_FOLDERS if is_folder(path) else _KNOWN_FILES
    if name in known or name.startswith(_ENTRY_FOLDER_PREFIX) or _holds_rocksdb(path):
        return None
    if name.startswith(REPAIR_PREFIX):
        return SkippedFile(path, "bytes that a repair cut off")
    if name == REBUILD_FOLDER:
        return SkippedFile(path, "left over from a rebuild that did not end")
    return SkippedFile(path, "not a part of a store")


def _holds_rocksdb(path: str) -> bool:
    return length_of(os.path.join(path, "CURRENT")) >= 0


def _log_files(path: str, unusual: list[SkippedFile]) -> list[StoreFile]:
    names: list[str] = []

    def look() -> list[StoreFile]:
        names[:] = sorted(names_in(path))
        files = _offset_files(path, names)
        if len(files) == len(names):
            return files
        plain = {os.path.basename(file.path) for file in files}
        cold = [file for name in names if (file := _cold_file(path, name, plain))]
        return sorted([*files, *cold], key=lambda file: file.start_offset)

    files = _in_one_piece(look)
    known = {os.path.basename(file.path) for file in files}
    for name in names:
        if name in known:
            continue
        whole = os.path.join(path, name)
        if _COLD_NAME.fullmatch(name):
            unusual.append(SkippedFile(whole, "a cold segment whose plain file is there too"))
            continue
        empty = _OFFSET_NAME.fullmatch(name) and length_of(whole) >= 0
        unusual.append(SkippedFile(whole, "an empty file" if empty else "not a commit-log file"))
    return files


def _cold_file(path: str, name: str, plain: Container[str]) -> StoreFile | None:
    """A cold segment by its name; None for other names, beside its plain file, or when it went away."""
    found = _COLD_NAME.fullmatch(name)
    if not found or found[1] in plain:
        return None
    whole = os.path.join(path, name)
    try:
        return StoreFile(whole, int(found[1]), original_size(whole), is_cold=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreIOError(whole, "read", error.strerror or str(error)) from error


def whole_file_size(files: Sequence[StoreFile], default_bytes: int) -> int:
    """The size (bytes) that whole files have: a length or a step that all start offsets bear out."""
    if not files:
        return default_bytes
    steps = Counter(b.start_offset - a.start_offset for a, b in pairwise(files))
    evidence = steps + Counter(file.size_bytes for file in files if file.size_bytes)
    # A missing file makes a step too long and a cut one makes a length too short: neither divides the other
    # steps.
    fitting = {size: times for size, times in evidence.items() if not any(step % size for step in steps)}
    return _commonest(Counter(fitting or evidence))


def _commonest(counts: Counter[int]) -> int:
    """The most frequent number; of equals the largest; 0 when there is none."""
    return max(counts, key=lambda number: (counts[number], number), default=0)
