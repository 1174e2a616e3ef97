"""The folder of a DLedger node: its data and index files, its term file and its checkpoint.

Reads names, lengths and the small text files; changes nothing.
See docs/formats/dledger.md.

Source: DLedger DLedgerConfig.java, MemberState.java, DLedgerMmapFileStore.java, IOUtils.java.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyledger.errors import StoreFormatError, StoreIOError, StoreNotFoundError
from pyledger.regular_file import open_regular
from pyledger.store.dledger.durable_end import DURABLE_END_FILE, UNREADABLE, read_durable_end
from pyledger.store.files.folder import (
    SkippedFile,
    StoreFile,
    is_folder,
    length_of,
    names_in,
    offset_files,
    whole_file_size,
)

DATA_FOLDER = "data"
INDEX_FOLDER = "index"
TERM_FILE = "currterm"
CHECKPOINT_FILE = "checkpoint"
LOST_TAIL_FILE = "lost-tail"
SNAPSHOT_FOLDER = "snapshot"
INDEX_UNIT_BYTES = 32
DATA_FILE_BYTES = 1 << 30
INDEX_FILE_BYTES = INDEX_UNIT_BYTES * 5 * 1024 * 1024
SMALL_FILE_BYTES_MAX = 1 << 16

_KNOWN = {
    *(DATA_FOLDER, INDEX_FOLDER, SNAPSHOT_FOLDER),
    *(TERM_FILE, CHECKPOINT_FILE, LOST_TAIL_FILE, DURABLE_END_FILE, "lock"),
}
_REPLACED = (TERM_FILE, CHECKPOINT_FILE, LOST_TAIL_FILE, DURABLE_END_FILE)
_SIBLINGS = (".bak", ".tmp")


@dataclass(frozen=True, slots=True)
class VoteState:
    """The term of a node, and the candidate that it voted for in this term."""

    term: int = 0
    vote_for: str | None = None


@dataclass(frozen=True, slots=True)
class DLedgerFolder:
    """The files of one node."""

    path: str
    data_files: tuple[StoreFile, ...]
    data_file_size_bytes: int
    index_files: tuple[StoreFile, ...]
    index_file_size_bytes: int
    vote: VoteState
    has_vote: bool
    """`currterm` names a term. Without it a member does not know in which terms it has voted."""
    has_term_file: bool
    """There is a `currterm`, even a damaged one."""
    lost_tail: Mapping[str, int] | None
    """The content of `lost-tail`, when durable entries may be missing; None without this file."""
    durable_end: int | None
    """Last entry that was durable here; None without the file, `UNREADABLE` when it is damaged."""
    checkpoint: Mapping[str, int] | None
    """`committedIndex` and `endIndex`; None when the file is damaged or missing. Generation B writes none."""
    checkpoint_problem: str | None
    """How it is damaged."""
    has_snapshots: bool
    unusual: tuple[SkippedFile, ...]
    """Files with which Java does not start, and other unexpected ones."""


def read_dledger_folder(path: str | os.PathLike[str], data_paths: Sequence[str] = ()) -> DLedgerFolder:
    """Read the folder of a node.

    Args:
        path: The folder, `<storeBaseDir>/dledger-<id>`.
        data_paths: Where its data files are, when not in `data`; Java allows several folders.

    Raises:
        StoreNotFoundError: there is no such folder, or it holds no DLedger log.
        StoreIOError: a file or folder cannot be read.
    """
    root = os.fspath(path)
    if not is_folder(root):
        raise StoreNotFoundError(root, "no such folder", "name the folder of a node, `dledger-<id>`")
    names = names_in(root)
    if not data_paths and DATA_FOLDER not in names and TERM_FILE not in names:
        inside = [name for name in sorted(names) if name.startswith("dledger-")]
        remedy = f"did you mean {os.path.join(root, inside[0])}?" if inside else "it has no `data` folder"
        raise StoreNotFoundError(root, "this is not the folder of a DLedger node", remedy)
    unusual: list[SkippedFile] = []
    data = _files(list(data_paths) or [os.path.join(root, DATA_FOLDER)], unusual)
    units = _files([os.path.join(root, INDEX_FOLDER)], unusual)
    data_size = whole_file_size(data, DATA_FILE_BYTES)
    unit_size = whole_file_size(units, INDEX_FILE_BYTES)
    for file, size_bytes in [*((f, data_size) for f in data), *((f, unit_size) for f in units)]:
        if file.size_bytes != size_bytes:
            unusual.append(SkippedFile(file.path, f"has {file.size_bytes} bytes, the others {size_bytes}"))
    known = {*_KNOWN, *(name + end for name in _REPLACED for end in _SIBLINGS)}
    unusual += [SkippedFile(os.path.join(root, n), "not a part of a node") for n in names if n not in known]
    vote = read_vote(os.path.join(root, TERM_FILE))
    checkpoint, checkpoint_problem = _read_checkpoint(os.path.join(root, CHECKPOINT_FILE))
    durable_end = read_durable_end(root)
    if checkpoint_problem and durable_end is None:
        durable_end = UNREADABLE  # the checkpoint was the only record of which entries were durable
    return DLedgerFolder(
        path=root,
        data_files=data,
        data_file_size_bytes=data_size,
        index_files=units,
        index_file_size_bytes=unit_size,
        vote=vote or VoteState(0, None),
        has_vote=vote is not None,
        has_term_file=TERM_FILE in names,
        lost_tail=_read_lost_tail(os.path.join(root, LOST_TAIL_FILE)),
        durable_end=durable_end,
        checkpoint=checkpoint,
        checkpoint_problem=checkpoint_problem,
        has_snapshots=any(n.startswith("snapshot_") for n in names_in(os.path.join(root, SNAPSHOT_FOLDER))),
        unusual=tuple(unusual),
    )


def promised_index(folder: DLedgerFolder) -> int:
    """Return the last entry that was durable and not truncated on purpose; -1 when it is not known.

    A valid `durable-end` overrides the end in the checkpoint, which may be older than a truncation.
    """
    known = dict(folder.checkpoint or {})
    if folder.durable_end not in (None, UNREADABLE):
        known["endIndex"] = folder.durable_end
    return max(*known.values(), (folder.lost_tail or {}).get("promisedIndex", -1), -1)


def committed_end(folder: DLedgerFolder) -> int | None:
    """Return the offset (bytes) in the data files where the last entry committed by the checkpoint ends.

    None when there is no checkpoint, or no index unit of this entry.
    """
    committed = (folder.checkpoint or {}).get("committedIndex")
    if committed is None or not folder.data_files:
        return None
    if committed < 0:
        return folder.data_files[0].start_offset
    where = committed * INDEX_UNIT_BYTES
    for file in folder.index_files:
        if file.start_offset <= where < file.start_offset + file.size_bytes:
            try:
                with open(file.path, "rb", opener=open_regular) as opened:
                    unit = os.pread(opened.fileno(), INDEX_UNIT_BYTES, where - file.start_offset)
            except OSError as error:
                raise StoreIOError(file.path, "read", error.strerror or str(error)) from error
            magic, position, size_bytes = struct.unpack_from(">iqi", unit.ljust(INDEX_UNIT_BYTES, b"\0"))
            return position + size_bytes if magic else None
    return None


def read_properties(path: str) -> dict[str, str] | None:
    """Read a small file of `key=value` lines; return None when it is missing.

    Raises:
        StoreFormatError: it is far too long, or not text.
        StoreIOError: a file or folder cannot be read.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            content = file.read(SMALL_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreIOError(path, "read", error.strerror or str(error)) from error
    try:
        if len(content) > SMALL_FILE_BYTES_MAX:
            raise ValueError("it is far too long")
        lines = content.decode("utf-8").splitlines()
    except ValueError as error:
        raise StoreFormatError(path, f"is not a file of `key=value` lines ({error})", "restore it") from error
    pairs = (line.partition("=") for line in map(str.strip, lines) if line[:1] not in ("", "#", "!"))
    return {key.strip(): value.strip() for key, _, value in pairs}


_NUMBERS = ("committedIndex", "endIndex", "promisedIndex")


def read_vote(path: str) -> VoteState | None:
    """Read the term and vote of `currterm`; return None when it is missing or cannot be parsed.

    Its `.bak` names an older term, in which the node might vote twice, so it is not used.
    """
    try:
        values = read_properties(path) or {}
    except StoreFormatError:
        return None
    text = values.get("currTerm", "")
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        return None
    return VoteState(int(text), values.get("voteLeader") or None)


def _read_checkpoint(path: str) -> tuple[dict[str, int] | None, str | None]:
    """Return the checkpoint, or how it is damaged; None and None without one."""
    try:
        return _read_numbers(path), None
    except StoreFormatError as error:
        return None, error.problem


def _read_lost_tail(path: str) -> dict[str, int] | None:
    """Return the content of the marker; empty when it is damaged, as its existence is what counts."""
    try:
        return _read_numbers(path)
    except StoreFormatError:
        return {}


def _read_numbers(path: str) -> dict[str, int] | None:
    values = read_properties(path)
    try:
        return None if values is None else {key: int(values[key]) for key in _NUMBERS if key in values}
    except ValueError as error:
        raise StoreFormatError(path, f"holds no numbers ({error})", "restore it") from error


def _files(paths: Sequence[str], unusual: list[SkippedFile]) -> tuple[StoreFile, ...]:
    """Return the files of the folders of one log, in order."""
    found: dict[int, StoreFile] = {}
    for path in paths:
        files = offset_files(path)
        known = {file.path for file in files}
        for file in files:
            if file.start_offset in found:
                unusual.append(SkippedFile(file.path, f"is also at {found[file.start_offset].path}"))
            found.setdefault(file.start_offset, file)
        strange = (os.path.join(path, name) for name in sorted(names_in(path)))
        for whole in strange:
            if whole not in known:
                what = "an empty file" if length_of(whole) == 0 else "not a file of a log"
                unusual.append(SkippedFile(whole, f"{what}: Java does not start with it"))
    return tuple(found[start] for start in sorted(found))
