"""Rows that Spark's writes have staged beside a store's log, and which of them no job will publish.

`<store>/spark/<job>/` holds the files of one job, and `owner`: which process runs the job, on which machine.
A journal `<job>.json` that is not done names files whose rows the next write appends; they are not removed.
"""

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyledger.store.files.folder import STAGING_FOLDER

OWNER_FILE = "owner"
STALE_MS = 7 * 86_400_000
"""Age (ms) from which files of an unknown owner, or one on another machine, count as abandoned."""

State = Literal["active", "unfinished", "abandoned", "unknown"]


@dataclass(frozen=True, slots=True)
class StagedJob:
    """What one job has staged."""

    path: str
    size_bytes: int
    changed_ms: int
    """When the newest of its files was written, ms since 1970."""
    state: State
    detail: str
    files: tuple[str, ...]


def claim(folder: Path, pid: int) -> None:
    """Note that a process runs the job of a staging folder; where that cannot be written, age decides."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{OWNER_FILE}.{os.getpid()}"
        draft.write_text(json.dumps({"machine": _machine(), "pid": pid, "began": _began(pid)}))
        draft.replace(folder / OWNER_FILE)


def find_staged(store_path: str | os.PathLike[str], now_ms: int) -> list[StagedJob]:
    """Staging folders of a store with something in them, by name, and what is known of their jobs."""
    home = Path(store_path) / STAGING_FOLDER
    try:
        folders = sorted(path for path in home.iterdir() if path.is_dir())
    except OSError:
        return []
    return [found for folder in folders if (found := _look_at(folder, now_ms)) is not None]


def remove_abandoned(store_path: str | os.PathLike[str], now_ms: int) -> list[StagedJob]:
    """Remove what provably dead jobs, and unknown ones that are old, have staged; what was removed.

    Under the lock of the store. Only files that were there when the owner was found dead are removed: a
    stream that starts again stages others in the same folder.
    """
    abandoned = [job for job in find_staged(store_path, now_ms) if job.state == "abandoned"]
    for job in abandoned:
        remove(job)
    return abandoned


def remove(job: StagedJob) -> None:
    """Remove the files of a job, and its folder when it is empty then."""
    for file in job.files:
        Path(file).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.rmdir(job.path)


def sweep(folder: Path) -> None:
    """Remove what a job staged, finished or not."""
    shutil.rmtree(folder, ignore_errors=True)


def _look_at(folder: Path, now_ms: int) -> StagedJob | None:
    # Files before the owner: what a later owner stages is not among them.
    files, size_bytes, changed_ms = [], 0, 0
    try:
        for file in sorted(folder.iterdir()):
            facts = file.stat()
            files.append(str(file))
            size_bytes += facts.st_size if file.name != OWNER_FILE else 0
            changed_ms = max(changed_ms, facts.st_mtime_ns // 1_000_000)
    except OSError:
        return None  # swept meanwhile
    if not files:
        return None
    state, detail = _state(folder, now_ms - changed_ms)
    return StagedJob(str(folder), size_bytes, changed_ms, state, detail, tuple(files))


def _state(folder: Path, age_ms: int) -> tuple[State, str]:
    if _has_journal(folder):
        return (
            "unfinished",
            "rows of a write that was broken off; the next Spark write to the store appends them",
        )
    owner = _read(folder / OWNER_FILE)
    machine = _machine()
    if owner is not None and machine is not None and owner.get("machine") == machine:
        pid = owner.get("pid", 0)
        if _is_alive(pid, owner.get("began")):
            return "active", f"rows that a job of process {pid} has staged, which runs"
        return "abandoned", f"rows that a job of process {pid} has staged, which is gone"
    if age_ms >= STALE_MS:
        days = age_ms // 86_400_000
        return "abandoned", f"rows that a job has staged {days} days ago, and has not published"
    return "unknown", "rows that a job has staged; whether it still runs cannot be determined here"


def _has_journal(folder: Path) -> bool:
    """Whether a publication of the job is under way; one that cannot be read counts as one."""
    file = folder.with_name(f"{folder.name}.json")
    if not file.exists():
        return False
    journal = _read(file)
    return journal is None or not journal.get("done", False)


def _read(file: Path) -> dict[str, object] | None:
    try:
        facts = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _machine() -> str | None:
    """Where process ids mean the same: this boot of this kernel, and this namespace of process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _is_alive(pid: object, began: object) -> bool:
    """Whether a process of this machine lives; a later one with its id is another."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # of another user
    now = _began(pid)
    return now is None or began is None or now == began


def _began(pid: int) -> int | None:
    """When a process began, in ticks of this boot; None where the system does not tell."""
    facts = _facts_of(pid)
    return None if facts is None else int(facts[19])


def process_of_job() -> int:
    """The process whose end is the end of a job that is planned here: Spark's JVM above, or this process."""
    pid = os.getpid()
    while pid > 1:
        facts = _facts_of(pid)
        if facts is None:
            break
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return pid
        except OSError:
            break
        pid = int(facts[1])
    return os.getpid()


def _facts_of(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on: the second is the parent, the twentieth the start."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
