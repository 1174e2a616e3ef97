"""`repair`: change a damaged store so that Java and PyLedger can open it, without losing messages.

It repairs the errors that `verify` finds: an incomplete record at the end of the log is removed, as
recovery does; a file that is too short is extended; queues and index that do not match the log are rebuilt;
an inconsistent checkpoint is replaced by an empty one; staged files of abandoned Spark jobs are removed.
Removed bytes are on disk in a side folder before the log is changed.

Damage in the middle of the log stays, because the records after it are valid; on request the log is truncated
before it. If the end of the log is missing, queues and index stay, because they name what is lost; on request
they are rebuilt without it.
"""

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyledger.atomic_file import flush_folder
from pyledger.clock import SystemClock
from pyledger.errors import StoreFormatError
from pyledger.regular_file import open_regular
from pyledger.store.files import checkpoint
from pyledger.store.files.archive_leftovers import remove_leftovers
from pyledger.store.files.checkpoint import StoreCheckpoint
from pyledger.store.files.disk_error import disk_error, disk_errors
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
from pyledger.system_calls import flush_file

Action = Literal["truncate", "extend", "rebuild", "reset-checkpoint", "remove", "leave"]
_CHUNK_BYTES = 1 << 20
_TAIL = {"torn-record", "lost-records"}
_PROPERTIES = {"batch-count", "unreachable"}
_MIDDLE = {"damaged-record", "missing-file", "blank-record"}


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One change that was made, or would be."""

    action: Action
    file: str
    offset: int | None
    """Physical offset (bytes) in the log."""
    size_bytes: int
    """Bytes removed or added."""
    detail: str


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Steps of a repair."""

    steps: tuple[RepairStep, ...]
    side_folder: str | None
    """Folder with the bytes removed from the log; None without any."""

    @property
    def complete(self) -> bool:
        """Whether no damage is left."""
        return all(step.action != "leave" for step in self.steps)


def repair(
    path: str | os.PathLike[str],
    dry_run: bool = False,
    *,
    file_size_bytes: int | None = None,
    truncate_at_damage: bool = False,
) -> RepairReport:
    """Repair a damaged store.

    Args:
        path: The store folder.
        dry_run: Change nothing; return the steps.
        file_size_bytes: Size of a full commit-log file, for a log that is one short file. None: the size of
            the other files, or upstream's default.
        truncate_at_damage: Also truncate the log before the first damage in its middle, with the valid
            records after it. If the end of the log is missing, rebuild queues and index without it.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreIOError: a system call failed. The steps before it are complete; repair again.
        StoreFullError: the same, as the disk is full.

    Durability: removed bytes are on disk in the side folder before the log is changed.
    """
    root = os.fspath(path)
    if dry_run:
        with disk_errors(root, "check"):
            return RepairReport(tuple(_plan(root, file_size_bytes, truncate_at_damage)), None)
    with lock_store(root), disk_errors(root, "repair"):
        undo_rebuild(root)
        remove_leftovers(root)
        steps = _plan(root, file_size_bytes, truncate_at_damage)
        side = None
        if any(step.action == "truncate" for step in steps):
            side = new_side_folder(root)
        for step in steps:
            _perform(root, step, side)
    return RepairReport(tuple(steps), side)


def _plan(root: str, file_size_bytes: int | None, truncate_at_damage: bool) -> list[RepairStep]:
    """Steps in a safe order: the log first, then what is derived from it."""
    folder = read_folder(root)
    errors = [e for e in verify(root) if e.severity == "error"]
    middle = sorted((e for e in errors if e.kind in _MIDDLE), key=lambda e: e.offset or 0)
    steps: list[RepairStep] = []
    end = next((e.offset for e in errors if e.kind == "torn-record"), None)
    if middle and truncate_at_damage:
        end = middle[0].offset
    elif middle:
        steps += [RepairStep("leave", e.file, e.offset, 0, e.detail) for e in middle]
    steps += [RepairStep("leave", e.file, None, 0, e.detail) for e in errors if e.kind in _PROPERTIES]
    if end is not None:
        steps += truncate_steps(folder, end)
    steps += _extend_steps(folder, errors, file_size_bytes, end)
    lost = next((e for e in errors if e.kind == "lost-end"), None)
    derived = any(e.kind.startswith(("queue-", "index-")) for e in errors)
    if lost is not None and not truncate_at_damage:
        steps.append(RepairStep("leave", lost.file, lost.offset, 0, lost.detail))
    elif lost is not None:
        steps.append(
            RepairStep("rebuild", root, None, 0, f"queues and index without what is lost: {lost.detail}")
        )
    elif derived or (truncate_at_damage and middle):
        steps.append(RepairStep("rebuild", root, None, 0, "consume queues and index, from the log"))
    checkpoint_path = os.path.join(root, CHECKPOINT_FILE)
    reset = any(e.kind == "checkpoint" for e in errors) if lost is None else truncate_at_damage
    if reset:
        steps.append(RepairStep("reset-checkpoint", checkpoint_path, None, 0, "to an empty one"))
    steps += [
        RepairStep("remove", job.path, None, job.size_bytes, job.detail)
        for job in find_staged(root, SystemClock().now_ms())
        if job.state == "abandoned"
    ]
    return steps


def truncate_steps(folder: StoreFolder, end: int) -> list[RepairStep]:
    """Steps that let the log end at a physical offset (bytes), the last file first."""
    steps = []
    for file in reversed(folder.log_files):
        if file.is_cold and end < file.start_offset + file.size_bytes:
            raise StoreFormatError(
                file.path, "is archived and would be truncated", "run `pyledger unarchive` first"
            )
        if file.is_cold:
            break
        used = _used_bytes(file, max(0, end - file.start_offset))
        if used:
            at = max(end, file.start_offset)
            steps.append(RepairStep("truncate", file.path, at, used, "saved in the side folder, then zeroed"))
    return steps


def _extend_steps(
    folder: StoreFolder, errors: list[Finding], file_size_bytes: int | None, end: int | None
) -> list[RepairStep]:
    whole = file_size_bytes or folder.log_file_size_bytes
    short_paths = {e.file for e in errors if e.kind == "short-file"}
    steps = []
    for file in folder.log_files:
        if file.path not in short_paths:
            continue
        if len(folder.log_files) == 1:
            whole = file_size_bytes or max(DEFAULT_LOG_FILE_BYTES, file.size_bytes)
        missing = whole - file.size_bytes
        detail = f"to {whole} bytes" + (
            "" if file_size_bytes or len(folder.log_files) > 1 else ", the default size"
        )
        # Zeroes inside the log would be damage: only the file that holds the end gets them.
        holds_end = file is folder.log_files[-1] or (
            end is not None and end <= file.start_offset + file.size_bytes
        )
        action: Action = "extend" if holds_end and missing > 0 else "leave"
        steps.append(RepairStep(action, file.path, file.start_offset + file.size_bytes, missing, detail))
    return steps


def _used_bytes(file: StoreFile, position: int) -> int:
    """Bytes from a position of a file to its last byte that is not zero."""
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


def _perform(root: str, step: RepairStep, side: str | None) -> None:
    try:
        if step.action == "truncate" and side is not None:
            save_and_zero(step, side)
        elif step.action == "extend":
            _extend(step)
        elif step.action == "rebuild":
            rebuild_locked(root, accept_loss=True)  # planned only if a loss is accepted
        elif step.action == "reset-checkpoint":
            checkpoint.write(step.file, StoreCheckpoint())
        elif step.action == "remove":
            for job in find_staged(root, SystemClock().now_ms()):
                if job.path == step.file and job.state == "abandoned":
                    remove(job)
    except OSError as error:
        raise disk_error(step.file, step.action, error) from error


def new_side_folder(root: str) -> str:
    """Return a name for a side folder that is free: an attempt a moment ago may have left one."""
    stem = os.path.join(root, REPAIR_PREFIX + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    names = (stem if attempt == 1 else f"{stem}-{attempt}" for attempt in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


def save_and_zero(step: RepairStep, side: str) -> None:
    """Copy bytes of a log file to the side folder, durably; then zero them, durably."""
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
        flush_file(kept.fileno())
        flush_folder(Path(side))
        log.seek(position)
        log.write(bytes(step.size_bytes))
        log.flush()
        flush_file(log.fileno())


def _extend(step: RepairStep) -> None:
    with open(step.file, "r+b", opener=open_regular) as log:
        log.truncate(os.path.getsize(step.file) + step.size_bytes)
        flush_file(log.fileno())
