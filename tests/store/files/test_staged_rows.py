"""What Spark's writes leave in a store's staging folder: who owns it, and who removes it. Without Spark."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.store.files.staged_rows import (
    OWNER_FILE,
    STALE_MS,
    claim,
    find_staged,
    process_of_job,
    remove,
    remove_abandoned,
)
from pyledger.store.maintenance.repair import repair
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from tests.cli.command_line import pyledger

CLAIM = """
import os, sys
from pathlib import Path
from pyledger.store.files.staged_rows import claim
claim(Path(sys.argv[1]), os.getpid())
print("claimed", flush=True)
sys.stdin.read()
"""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", mapped_file_size_bytes=65536, index_enabled=False):
        pass
    return tmp_path / "store"


def staged(store: Path, name: str = "job-1") -> Path:
    folder = store / "spark" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.arrow").write_bytes(bytes(1000))
    return folder


def killed_owner(folder: Path) -> None:
    """A process claims the folder, and is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"claimed\n"
        states = {job.path: job.state for job in find_staged(folder.parents[1], now_ms())}
        assert states[str(folder)] == "active"
        owner.kill()
        owner.wait()


def own(folder: Path) -> None:
    claim(folder, os.getpid())


def own_by_a_reused_pid(folder: Path) -> None:
    own(folder)
    owner = folder / OWNER_FILE
    owner.write_text(json.dumps({**json.loads(owner.read_text()), "began": 1}))


def own_elsewhere(folder: Path) -> None:
    own(folder)
    owner = folder / OWNER_FILE
    owner.write_text(json.dumps({**json.loads(owner.read_text()), "machine": "another"}))


def own_unreadably(folder: Path) -> None:
    (folder / OWNER_FILE).write_text("{")


def leave_unowned(folder: Path) -> None:
    assert not (folder / OWNER_FILE).exists()


def begin_publication(folder: Path) -> None:
    killed_owner(folder)
    folder.with_name(f"{folder.name}.json").write_text(json.dumps({"job": folder.name, "done": False}))


@pytest.mark.parametrize(
    ("make", "young", "old"),
    [
        (own, "active", "active"),
        (killed_owner, "abandoned", "abandoned"),
        (own_by_a_reused_pid, "abandoned", "abandoned"),
        (own_elsewhere, "unknown", "abandoned"),
        (own_unreadably, "unknown", "abandoned"),
        (leave_unowned, "unknown", "abandoned"),
        (begin_publication, "unfinished", "unfinished"),
    ],
)
def test_only_what_is_dead_or_unknown_and_old_is_abandoned(
    store: Path, make: Callable[[Path], None], young: str, old: str
) -> None:
    folder = staged(store)
    make(folder)
    for later_ms, state in ((0, young), (STALE_MS + 1000, old)):
        [job] = find_staged(store, now_ms() + later_ms)
        assert (job.path, job.size_bytes, job.state) == (str(folder), 1000, state)
    notes = [found.detail for found in verify(store) if found.kind == "staged-rows"]
    assert len(notes) == (young != "active")
    assert len(remove_abandoned(store, now_ms())) == (young == "abandoned")
    assert folder.exists() == (young != "abandoned")
    remove_abandoned(store, now_ms() + STALE_MS + 1000)
    assert folder.exists() == (old != "abandoned")


def test_what_a_later_owner_stages_is_not_removed(store: Path) -> None:
    folder = staged(store, "sink-a")
    killed_owner(folder)
    [job] = find_staged(store, now_ms())
    own(folder)
    (folder / "later.arrow").write_bytes(b"rows")
    remove(job)
    assert [file.name for file in folder.iterdir()] == ["later.arrow"]


def test_commands_name_and_remove_it(store: Path) -> None:
    dead, alive = staged(store, "job-dead"), staged(store, "job-alive")
    killed_owner(dead)
    own(alive)
    out = pyledger("info", store).out
    assert f"staged: {dead} (1,000 bytes): rows of a job that has ended (process " in out
    assert f"staged: {alive} (1,000 bytes): rows of a running job (process {os.getpid()})" in out
    found = pyledger("verify", store)
    assert found.code == 0
    assert f"note: {dead}: staged-rows" in found.out
    assert str(alive) not in found.out
    [step] = repair(store, dry_run=True).steps
    assert (step.action, step.file, step.size_bytes) == ("remove", str(dead), 1000)
    assert dead.exists()
    done = pyledger("repair", store)
    assert (done.code, f"removed {dead} (1,000 bytes)" in done.out) == (0, True)
    assert not dead.exists()
    assert alive.exists()
    assert not repair(store).steps


def test_a_job_without_a_jvm_is_of_its_own_process() -> None:
    assert process_of_job() == os.getpid()
