"""The appender of a store with sync flush returns when its messages are on disk, or says that it is late."""

import contextlib
import threading
from pathlib import Path

import pytest

from pyledger import errors
from pyledger._core import CommitLog, DurableAppender, GroupCommit, MappedFileQueue


def test_durable_put_returns_after_its_flush_and_says_when_that_is_late(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path / "log"), 1 << 20)
    queue.load()
    commit = GroupCommit("log")
    appender = DurableAppender(CommitLog(queue).appender("topic", 3), commit, 1)
    with pytest.raises(errors.FlushTimeoutError) as late:
        appender.put(b"late", "tag")
    assert late.value.physical_offset == 0
    with pytest.raises(errors.FlushTimeoutError):
        appender.put_many([b"later", b"latest"])
    assert (appender.topic, appender.queue_id, appender.next_queue_offset) == ("topic", 3, 3)
    assert commit.requested_where == queue.wrote_where, "stored, and asked for"

    patient = DurableAppender(appender.appender, commit, 60_000)

    def serve() -> None:
        with contextlib.suppress(errors.StoreFailedError):
            while not commit.failed:
                commit.serve(queue, 500)

    flusher = threading.Thread(target=serve)
    flusher.start()
    first = patient.put(b"one")
    assert first < commit.flushed_where
    patient.put_many([b"two", b"three"])
    assert commit.flushed_where == queue.wrote_where == queue.flushed_where
    commit.fail(OSError("flush"))
    with pytest.raises(errors.StoreFailedError):
        patient.put(b"refused")
    flusher.join(30)
    assert not flusher.is_alive()
