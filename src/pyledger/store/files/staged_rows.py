"""Rows that Spark writes have staged in a store folder, and which of them no job will publish.

`<store>/spark/<job>/` holds the files of one job, and `owner`: the process that runs the job, and its
machine. A journal `<job>.json` that is not done names files whose rows the next write appends; they are kept.
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
"""Age (ms) at which files of an unknown owner, or of one on another machine, count as abandoned."""

State = Literal["active", "unfinished", "abandoned", "unknown"]


@dataclass(frozen=True, slots=True)
class StagedJob:
    """The staged files of one job."""

    path: str
    size_bytes: int
    changed_ms: int
    """When the newest of its files was written, ms since 1970."""
    state: State
    detail: str
    files: tuple[str, ...]


def claim(folder: Path, pid: int) -> None:
    """Record which process runs the job of a staging folder. If that fails, the age of the files decides."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"{OWNER_FILE}.{os.getpid()}"
        draft.write_text(json.dumps({"machine": _machine(), "pid": pid, "began": _began(pid)}))
        draft.replace(folder / OWNER_FILE)


def find_staged(store_path: str | os.PathLike[str], now_ms: int) -> list[StagedJob]:
    """Return the staging folders of a store that are not empty, by name, with the state of their jobs."""
    home = Path(store_path) / STAGING_FOLDER
    try:
        folders = sorted(path for path in home.iterdir() if path.is_dir())
    except OSError:
        return []
    return [found for folder in folders if (found := _staged_job(folder, now_ms)) is not None]


def remove_abandoned(store_path: str | os.PathLike[str], now_ms: int) -> list[StagedJob]:
    """Remove the staged files of dead jobs, and old ones of unknown jobs; return those jobs.

    The caller holds the store lock. Only files that existed when the owner was found dead are removed: a
    restarted stream stages others in the same folder.
    """
    abandoned = [job for job in find_staged(store_path, now_ms) if job.state == "abandoned"]
    for job in abandoned:
        remove(job)
    return abandoned


def remove(job: StagedJob) -> None:
    """Remove the files of a job, and its folder if that is then empty."""
    for file in job.files:
        Path(file).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.rmdir(job.path)


def sweep(folder: Path) -> None:
    """Remove the staging folder of a job, finished or not."""
    shutil.rmtree(folder, ignore_errors=True)


def _staged_job(folder: Path, now_ms: int) -> StagedJob | None:
    # List files before reading the owner, so that files of a later owner are not included.
    files, size_bytes, changed_ms = [], 0, 0
    try:
        for file in sorted(folder.iterdir()):
            facts = file.stat()
            files.append(str(file))
            size_bytes += facts.st_size if file.name != OWNER_FILE else 0
            changed_ms = max(changed_ms, facts.st_mtime_ns // 1_000_000)
    except OSError:
        return None  # removed meanwhile
    if not files:
        return None
    state, detail = _state(folder, now_ms - changed_ms)
    return StagedJob(str(folder), size_bytes, changed_ms, state, detail, tuple(files))


def _state(folder: Path, age_ms: int) -> tuple[State, str]:
    if _has_journal(folder):
        return (
            "unfinished",
            "rows of an interrupted write; the next Spark write to the store appends them",
        )
    owner = _read(folder / OWNER_FILE)
    machine = _machine()
    if owner is not None and machine is not None and owner.get("machine") == machine:
        pid = owner.get("pid", 0)
        if _is_alive(pid, owner.get("began")):
            return "active", f"rows of a running job (process {pid})"
        return "abandoned", f"rows of a job that has ended (process {pid})"
    if age_ms >= STALE_MS:
        days = age_ms // 86_400_000
        return "abandoned", f"rows that a job staged {days} days ago and did not publish"
    return "unknown", "rows of a job; whether it is running cannot be determined here"


def _has_journal(folder: Path) -> bool:
    """Whether the job is being published. A journal that cannot be read counts as unfinished."""
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
    """The scope in which a process id is unique: this boot of the kernel and this PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _is_alive(pid: object, began: object) -> bool:
    """Whether a process of this machine is alive; a later one with the same id does not count."""
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
    """Start of a process in ticks since boot; None where that is not known."""
    facts = _facts_of(pid)
    return None if facts is None else int(facts[19])


def process_of_job() -> int:
    """Return the process with which a job planned here ends: the parent JVM of Spark, or this process."""
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
    """Fields of /proc/<pid>/stat from the state on: 1 is the parent, 19 the start time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
