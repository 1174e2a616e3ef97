"""Room in front of the appends within the log's last file."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyledger._core import CommitLog, MappedFileQueue
from pyledger.store.messages import allocate_ahead

FIRST_BYTES = 1 << 20
CHUNK_BYTES = 2 << 20
FILE_BYTES = 16 << 20


@pytest.mark.parametrize(
    ("populates", "free_bytes", "allocated"),
    [
        pytest.param(True, 1 << 40, FIRST_BYTES + CHUNK_BYTES, id="by mapping"),
        pytest.param(False, 1 << 40, FILE_BYTES, id="by file"),
        pytest.param(False, FILE_BYTES, FIRST_BYTES + CHUNK_BYTES, id="by file on a small disk"),
    ],
)
def test_appending_by_file_waits_once_for_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, populates: bool, free_bytes: int, allocated: int
) -> None:
    queue = MappedFileQueue(str(tmp_path), FILE_BYTES, allocate_chunk_bytes=FIRST_BYTES)
    queue.load()
    monkeypatch.setattr(allocate_ahead, "CHUNK_BYTES", CHUNK_BYTES)
    ahead = allocate_ahead.ChunkAhead(queue)
    ahead.populates = populates
    assert not ahead.is_short()
    CommitLog(queue).append("T", 0, b"x")
    space = SimpleNamespace(f_bavail=free_bytes // 4096, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: space)
    ahead.work()
    assert queue.files[-1].allocated_position == allocated
    queue.close()
