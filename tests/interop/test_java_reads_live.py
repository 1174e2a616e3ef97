"""Java's store opens what a running broker of ours has on disk: a copy made while messages come in."""

import shutil
from pathlib import Path

import pytest

from tests.interop.java import JavaStore
from tests.servers.broker.test_live_folder import TOPIC, body_of, sending

pytestmark = pytest.mark.java


def copy_live(folder: Path, copy: Path) -> None:
    """Copy a folder that grows: first what is derived from the log, then the log."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("commitlog", "lock"))
    shutil.copytree(folder / "commitlog", copy / "commitlog")


def test_copy_of_a_running_broker(java: JavaStore, tmp_path: Path) -> None:
    with sending(tmp_path) as (node, sent):
        sent.wait_for(500)
        least = sent.acknowledged
        copy_live(node.folder, tmp_path / "copy")
        seen = java.read(tmp_path / "copy")
    # 3: the record that was being written is dropped, as after a crash.
    assert seen.exit in (0, 3), seen.errors
    assert seen.summary["abortFile"]
    found = [line for line in seen.of_kind("message") if line["topic"] == TOPIC]
    lengths = sorted(line["bodyLength"] for line in found)
    assert len(found) >= least
    assert lengths == sorted(len(body_of(number)) for number in range(len(found)))
    places = {(line["queueId"], line["queueOffset"]) for line in found}
    assert len(places) == len(found)
