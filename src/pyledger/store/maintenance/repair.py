"""`repair`: make a damaged store one that Java and PyLedger open, and lose nothing on the way.

What `verify` calls a problem is mended where it can be: half a record at the log's end is cut off, as
recovery does; a file that was cut short gets its size back; queues and index that do not fit the log are
rebuilt from it; a checkpoint that cannot be true is replaced by one that knows nothing. What abandoned Spark
jobs have staged is removed. Cut bytes are on disk in a side folder before anything is changed. Damage in the
middle of the log stays where it is, for what follows is sound; on request the log is cut before it. Where the
log lacks its end, queues and index name what is gone, so they stay as they are; on request they are cut.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyledger.atomic_file import flush_folder
from pyledger.clock import SystemClock
from pyledger.errors import StoreFormatError, StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.files import checkpoint
from pyledger.store.files.archive_leftovers import remove_leftovers
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.finding import Finding
from pyledger.store.files.folder import (
    CHECKPOINT_FILE,
    DEFAULT_LOG_FILE_BYTES,
    REPAIR_PREFIX,
    StoreFile,
    StoreFolder,
    read_folder,
)
from pyledger.store.files.lock import lock_store
from pyledger.store.files.rebuild_commit import undo_rebuild
from pyledger.store.files.staged_rows import find_staged, remove
from pyledger.store.maintenance.rebuild import rebuild_locked
from pyledger.store.maintenance.verify import verify

Action = Literal["cut", "extend", "rebuild", "reset-checkpoint", "remove", "leave"]
_CHUNK_BYTES = 1 << 20
_TAIL = {"torn-record", "lost-records"}
_PROPERTIES = {"batch-count", "unreachable"}
_MIDDLE = {"damaged-record", "missing-file", "blank-record"}


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One thing that was done, or would be."""

    action: Action
    file: str
    offset: int | None
    """Where: a physical offset (bytes) in the log."""
    size_bytes: int
    """How many bytes are cut or added."""
    detail: str


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did, or would do."""

    steps: tuple[RepairStep, ...]
    side_folder: str | None
    """Where the cut bytes are kept; None when nothing was cut."""

    @property
    def complete(self) -> bool:
        """Whether no damage was left where it is."""
        return all(step.action != "leave" for step in self.steps)


def repair(
    path: str | os.PathLike[str],
    dry_run: bool = False,
    *,
    file_size_bytes: int | None = None,
    cut_at_damage: bool = False,
) -> RepairReport:
    """Mend what is damaged.

    Args:
        path: The store folder.
        dry_run: Only say what would be done.
        file_size_bytes: Size of a whole commit-log file, where a lone file that was cut short does not tell;
            None is the size of the other files, and of a lone one upstream's default.
        cut_at_damage: Cut the log before the first damage in its middle too, sound records behind it
            included; where the log lacks its end, give up what is gone.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreIOError: the operating system refused. Steps done so far are complete; repair again.

    Durability: cut bytes are on disk in the side folder before the log is changed.
    """
    root = os.fspath(path)
    if dry_run:
        return RepairReport(tuple(_plan(root, file_size_bytes, cut_at_damage)), None)
    with lock_store(root):
        undo_rebuild(root)
        remove_leftovers(root)
        steps = _plan(root, file_size_bytes, cut_at_damage)
        side = None
        if any(step.action == "cut" for step in steps):
            side = os.path.join(root, REPAIR_PREFIX + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        for step in steps:
            _carry_out(root, step, side)
    return RepairReport(tuple(steps), side)


def _plan(root: str, file_size_bytes: int | None, cut_at_damage: bool) -> list[RepairStep]:
    """Steps in a safe order: the log first, what is derived from it after."""
    folder = read_folder(root)
    problems = [p for p in verify(root) if p.severity == "problem"]
    middle = sorted((p for p in problems if p.kind in _MIDDLE), key=lambda p: p.offset or 0)
    steps: list[RepairStep] = []
    cut = next((p.offset for p in problems if p.kind == "torn-record"), None)
    if middle and cut_at_damage:
        cut = middle[0].offset
    elif middle:
        steps += [RepairStep("leave", p.file, p.offset, 0, p.detail) for p in middle]
    steps += [RepairStep("leave", p.file, None, 0, p.detail) for p in problems if p.kind in _PROPERTIES]
    if cut is not None:
        steps += cut_steps(folder, cut)
    steps += _extend_steps(folder, problems, file_size_bytes, cut)
    lost = next((p for p in problems if p.kind == "lost-end"), None)
    derived = any(p.kind.startswith(("queue-", "index-")) for p in problems)
    if lost is not None and not cut_at_damage:
        steps.append(RepairStep("leave", lost.file, lost.offset, 0, lost.detail))
    elif lost is not None:
        steps.append(
            RepairStep("rebuild", root, None, 0, f"queues and index without what is lost: {lost.detail}")
        )
    elif derived or (cut_at_damage and middle):
        steps.append(RepairStep("rebuild", root, None, 0, "consume queues and index, from the log"))
    checkpoint_path = os.path.join(root, CHECKPOINT_FILE)
    given_up = lost is not None and cut_at_damage
    if given_up or (lost is None and any(p.kind == "checkpoint" for p in problems)):
        steps.append(RepairStep("reset-checkpoint", checkpoint_path, None, 0, "to one that knows nothing"))
    steps += [
        RepairStep("remove", job.path, None, job.size_bytes, job.detail)
        for job in find_staged(root, SystemClock().now_ms())
        if job.state == "abandoned"
    ]
    return steps


def cut_steps(folder: StoreFolder, end: int) -> list[RepairStep]:
    """What has to be cut for the log to end at a physical offset (bytes), the last file first."""
    steps = []
    for file in reversed(folder.log_files):
        if file.is_cold and end < file.start_offset + file.size_bytes:
            raise StoreFormatError(
                file.path, "is archived, and the log would be cut in it", "run `pyledger unarchive` first"
            )
        if file.is_cold:
            break
        used = _used_bytes(file, max(0, end - file.start_offset))
        if used:
            at = max(end, file.start_offset)
            steps.append(RepairStep("cut", file.path, at, used, "kept in the side folder, then zeroed"))
    return steps


def _extend_steps(
    folder: StoreFolder, problems: list[Finding], file_size_bytes: int | None, cut: int | None
) -> list[RepairStep]:
    whole = file_size_bytes or folder.log_file_size_bytes
    cut_paths = {p.file for p in problems if p.kind == "short-file"}
    steps = []
    for file in folder.log_files:
        if file.path not in cut_paths:
            continue
        if len(folder.log_files) == 1:
            whole = file_size_bytes or max(DEFAULT_LOG_FILE_BYTES, file.size_bytes)
        missing = whole - file.size_bytes
        detail = f"to {whole} bytes" + (
            "" if file_size_bytes or len(folder.log_files) > 1 else ", the default size"
        )
        # Zeroes inside the log would be damage: only the file that holds the end gets them.
        holds_end = file is folder.log_files[-1] or (
            cut is not None and cut <= file.start_offset + file.size_bytes
        )
        action: Action = "extend" if holds_end and missing > 0 else "leave"
        steps.append(RepairStep(action, file.path, file.start_offset + file.size_bytes, missing, detail))
    return steps


def _used_bytes(file: StoreFile, position: int) -> int:
    """Bytes from a position of a file up to its last one that is not zero."""
    used = 0
    with open(file.path, "rb", opener=open_regular) as source:
        source.seek(position)
        done = 0
        while chunk := source.read(_CHUNK_BYTES):
            kept = len(chunk.rstrip(b"\0"))
            if kept:
                used = done + kept
            done += len(chunk)
    return used


def _carry_out(root: str, step: RepairStep, side: str | None) -> None:
    try:
        if step.action == "cut" and side is not None:
            keep_and_cut(step, side)
        elif step.action == "extend":
            _extend(step)
        elif step.action == "rebuild":
            rebuild_locked(root, accept_loss=True)  # the plan has none where a loss is not accepted
        elif step.action == "reset-checkpoint":
            checkpoint.write(step.file, StoreCheckpoint())
        elif step.action == "remove":
            for job in find_staged(root, SystemClock().now_ms()):
                if job.path == step.file and job.state == "abandoned":
                    remove(job)
    except OSError as error:
        raise StoreIOError(step.file, step.action, error.strerror or str(error)) from error


def keep_and_cut(step: RepairStep, side: str) -> None:
    """Keep bytes of a log file aside, durably; then zero them, durably."""
    offset = step.offset or 0
    position = offset - int(os.path.basename(step.file))
    os.makedirs(side, exist_ok=True)
    flush_folder(Path(os.path.dirname(side)))
    with (
        open(step.file, "r+b", opener=open_regular) as log,
        open(os.path.join(side, f"{offset:020d}"), "xb") as kept,
    ):
        log.seek(position)
        left = step.size_bytes
        while left:
            chunk = log.read(min(left, _CHUNK_BYTES))
            kept.write(chunk)
            left -= len(chunk)
        kept.flush()
        os.fsync(kept.fileno())
        flush_folder(Path(side))
        log.seek(position)
        log.write(bytes(step.size_bytes))
        log.flush()
        os.fsync(log.fileno())


def _extend(step: RepairStep) -> None:
    with open(step.file, "r+b", opener=open_regular) as log:
        log.truncate(os.path.getsize(step.file) + step.size_bytes)
        os.fsync(log.fileno())
