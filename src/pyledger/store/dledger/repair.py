"""`dledger repair`: apply an operator's decisions to the folder of a stopped DLedger node.

A node must not take these decisions by itself, as they may lose acknowledged entries or elect a second leader
of a term; docs/operate/dledger.md describes when each is right.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyledger._core import EntryStop
from pyledger.atomic_file import flush_folder
from pyledger.errors import DLedgerTermError
from pyledger.protocol.dledger.messages import TermState
from pyledger.store.dledger.durable_end import DURABLE_END_FILE, UNREADABLE, content_of
from pyledger.store.dledger.folder import CHECKPOINT_FILE, LOST_TAIL_FILE, TERM_FILE, promised_index
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.store import write_lost_tail, write_term_state
from pyledger.store.files.disk_error import disk_error
from pyledger.store.files.lock import StoreLock
from pyledger.store.files.meta_file import make_folder, write_file


class RepairStep(NamedTuple):
    """One change that was made, or would be in a dry run."""

    action: str
    file: str
    detail: str


def repair_node(
    path: str,
    *,
    term: int | None = None,
    truncate: bool = False,
    accept_loss: bool = False,
    data_paths: Sequence[str] = (),
    dry_run: bool = False,
) -> list[RepairStep]:
    """Apply the decisions; the node must be stopped.

    Args:
        path: The node's folder.
        term: Term to start in, without a vote; above every term that any member knows.
        truncate: End the log before missing entries; what follows them is moved to another folder.
        accept_loss: Let the node vote again without the entries that it lost.
        data_paths: Where its data files are, when not in `data`.
        dry_run: Change nothing.

    Raises:
        StoreLockedError: the node runs.
        DLedgerTermError: the term is not above those in the folder.
        StoreIOError: a file cannot be written or moved.
    """
    steps: list[RepairStep] = []
    with DLedgerReader.open(path, data_paths=data_paths) as reader:
        lock = None if dry_run else StoreLock(path).acquire()
        try:
            stop = reader.scan()
            if term is not None:
                steps.append(_set_term(reader, stop, term, dry_run=dry_run))
            if truncate:
                steps += _truncate(reader, stop, dry_run=dry_run)
            if accept_loss:
                steps += _accept_loss(reader, stop, dry_run=dry_run)
        finally:
            if lock is not None:
                lock.release()
    return steps


def last_term(path: str, data_paths: Sequence[str] = ()) -> int:
    """Return the highest term of the entries and the term file of a folder; at least 0."""
    with DLedgerReader.open(path, data_paths=data_paths) as reader:
        return max(reader.scan().last_term, reader.folder.vote.term, 0)


def _set_term(reader: DLedgerReader, stop: EntryStop, term: int, *, dry_run: bool) -> RepairStep:
    path, known = reader.folder.path, max(stop.last_term, reader.folder.vote.term)
    if term <= known:
        raise DLedgerTermError(path, term, known)
    if not dry_run:
        write_term_state(path, TermState(term))
    return RepairStep("set-term", os.path.join(path, TERM_FILE), f"term {term}, no vote")


def _truncate(reader: DLedgerReader, stop: EntryStop, *, dry_run: bool) -> list[RepairStep]:
    """End the log before a hole: copy the file with it to another folder, and move later files there."""
    beyond = reader.entry_beyond(stop)
    if beyond is None:
        return []
    folder, offset = reader.folder, stop.next_offset
    aside = Path(folder.path, f"truncated-{offset}")
    ends = [(file, file.start_offset + folder.data_file_size_bytes) for file in folder.data_files]
    later = [file for file, _ in ends if file.start_offset > offset]
    within = [file for file, end in ends if file.start_offset <= offset < end]
    if not dry_run:
        write_lost_tail(folder.path, max(beyond.index, promised_index(folder)), stop.last_index)
        make_folder(aside)
        try:
            for file in within:
                shutil.copy2(file.path, aside)
            for file in reversed(later):
                shutil.move(file.path, aside)
            for one in {str(aside), *(os.path.dirname(file.path) for file in later)}:
                flush_folder(one)
        except OSError as error:
            raise disk_error(aside, "move data files to", error) from error
    detail = f"the log ends with entry {stop.last_index}; what follows is kept in {aside}"
    return [RepairStep("truncate", file.path, detail) for file in (*within, *later)]


def _accept_loss(reader: DLedgerReader, stop: EntryStop, *, dry_run: bool) -> list[RepairStep]:
    path, end = reader.folder.path, stop.last_index
    promised = promised_index(reader.folder)
    marker = Path(path, LOST_TAIL_FILE)
    if promised <= end and reader.folder.lost_tail is None and reader.folder.durable_end != UNREADABLE:
        return []
    if not dry_run:
        write_file(Path(path, DURABLE_END_FILE), content_of(end), backup=False)
        if reader.folder.checkpoint is not None:
            text = f"committedIndex={min(reader.committed_index, end)}\nendIndex={end}\n"
            write_file(Path(path, CHECKPOINT_FILE), text.encode())
        try:
            marker.unlink(missing_ok=True)
            flush_folder(path)
        except OSError as error:
            raise disk_error(marker, "remove", error) from error
    lost = f"entries {end + 1} to {promised} are given up" if promised > end else "what was lost is given up"
    return [RepairStep("accept-loss", str(marker), f"{lost}; the log ends with entry {end}")]
