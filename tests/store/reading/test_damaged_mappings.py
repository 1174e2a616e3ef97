"""Files that are cut short while a process has them mapped: an error of ours, no signal that ends it, and
nothing false is handed out."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyledger import arrow
from pyledger._core import CommitLog, DLedgerLog, MappedFileQueue, MessageScan, scan
from pyledger.errors import CorruptRecordError, PyLedgerError, StoreFailedError, StoreIOError
from pyledger.model.message import Message
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from tests.store.cold.archived import archive_all, write_store

FILE_BYTES = 1 << 18


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with StoreEngine.open(path, mapped_file_size_bytes=FILE_BYTES) as store:
        for number in range(400):
            store.put(Message("t", b"%d" % number * 300, keys=f"k{number}", tags="a"))
    return path


def cut(path: Path, folder: str = "commitlog", size_bytes: int = 4096) -> None:
    for file in (path / folder).rglob("[0-9]*"):
        if file.is_file():
            os.truncate(file, size_bytes)


READS: dict[str, Callable[[StoreReader], object]] = {
    "messages": lambda reader: [message.body for message in reader.messages()],
    "topic": lambda reader: [message.body for message in reader.messages(topics=["t"])],
    "key": lambda reader: [message.body for message in reader.messages(key="k350")],
    "arrow": lambda reader: arrow.scan(reader).read_all(),
}


@pytest.mark.parametrize("way", READS)
def test_a_log_that_is_truncated_under_a_reader_is_an_error(folder: Path, way: str) -> None:
    with StoreReader.open(folder) as reader:
        cut(folder)
        with pytest.raises(StoreIOError, match="truncated while it was mapped"):
            READS[way](reader)


def test_held_messages_raise_when_their_bytes_are_gone(folder: Path) -> None:
    with StoreReader.open(folder) as reader:
        messages = list(reader.messages())
        read_before = messages[0].body
        cut(folder)
        assert messages[0].body == read_before  # of a page that is still there
        for attribute in ("body", "topic", "properties", "tags", "born_host", "msg_id", "plain_body"):
            with pytest.raises(StoreIOError):
                getattr(messages[150], attribute)
        with pytest.raises(StoreIOError):
            bytes(messages[150].record_view)


@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_queues_and_keys_that_are_truncated_are_an_error(folder: Path, part: str) -> None:
    with StoreEngine.open(folder, mapped_file_size_bytes=FILE_BYTES) as store:
        assert store.get("t", 0, 0).messages
        assert store.query("t", "k7")
        cut(folder, part, 0)
        with pytest.raises(StoreIOError):
            store.get("t", 0, 0) if part == "consumequeue" else store.query("t", "k7")


def test_a_compressed_file_that_is_truncated_is_an_error(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store")
    archive_all(path)
    with StoreReader.open(path) as reader:
        messages = reader.messages()
        next(messages)
        for file in (path / "commitlog").glob("*.lz4"):
            os.truncate(file, 4096)
        with pytest.raises((StoreIOError, CorruptRecordError)):
            list(messages)


def test_nothing_is_acknowledged_that_went_nowhere(tmp_path: Path) -> None:
    """A writer whose file is cut fails as after a flush that failed."""
    queue = MappedFileQueue(str(tmp_path), FILE_BYTES)
    queue.load()
    log = CommitLog(queue)
    log.append("t", 0, bytes(3000))
    os.truncate(queue.files[0].path, 4096)
    with pytest.raises(StoreFailedError) as caught:
        log.append("t", 0, bytes(9000))
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(StoreFailedError):
        log.append("t", 0, b"")
    with pytest.raises(StoreFailedError):
        queue.flush()
    queue.close()


def test_a_flush_counts_only_when_the_file_has_all_bytes(tmp_path: Path) -> None:
    queue = MappedFileQueue(str(tmp_path), FILE_BYTES)
    queue.load()
    log = CommitLog(queue)
    for _ in range(20):
        log.append("t", 0, bytes(3000))
    os.truncate(queue.files[0].path, 4096)
    with pytest.raises(StoreIOError):
        scan(queue.view(), 0)
    with pytest.raises(StoreFailedError):
        queue.flush()
    assert queue.flushed_where == 0
    queue.close()


def test_an_entry_of_a_dledger_log_that_is_truncated(tmp_path: Path) -> None:
    data, units = (MappedFileQueue(str(tmp_path / name), FILE_BYTES) for name in ("data", "index"))
    data.load()
    units.load()
    log = DLedgerLog(data, units)
    log.set_range(0, -1, -1)
    log.append_many(1, [bytes([number]) * 3000 for number in range(30)])
    assert log.read(3)[4] == b"\x03" * 3000
    os.truncate(data.files[0].path, 4096)
    for read in (lambda: log.read(20), lambda: log.read_batch(20, 3, 1 << 20)):
        with pytest.raises(PyLedgerError):
            read()
    with pytest.raises(StoreFailedError):
        log.append_entry(log.end_index + 1, 1, log.end_offset, 1, 0, 0, 0, bytes(9000))
    log.close()


def test_a_new_mapping_is_valid(folder: Path) -> None:
    """The mark is of one mapping: another one of the same place in memory starts without it."""
    with StoreReader.open(folder) as reader:
        cut(folder)
        with pytest.raises(StoreIOError):
            list(reader.messages())
    other = folder.with_name("other")
    with StoreEngine.open(other) as store:
        store.put(Message("t", b"x"))
        assert [message.body for message in MessageScan(store.log_view(), 0)] == [b"x"]


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("handler", ["", "import faulthandler; faulthandler.enable()"])
def test_other_faults_and_signals_go_where_they_went(folder: Path, handler: str) -> None:
    """A mapping that is not ours still ends the process, through the handler that was there before."""
    story = f"""
        import mmap, os, sys
        {handler}
        from pyledger.store.reading.reader import StoreReader

        with StoreReader.open(sys.argv[1]) as reader:
            next(reader.messages())
            with open(sys.argv[1] + "/foreign", "w+b") as file:
                file.truncate(65536)
                foreign = mmap.mmap(file.fileno(), 65536)
                file.truncate(0)
                print("before", flush=True)
                foreign[5000]
        print("never")
    """
    done = run(story, str(folder))
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "before\n")
    assert ("Bus error" in done.stderr) == bool(handler)
    sent = run(
        f"""
        import os, signal, sys
        {handler}
        from pyledger.store.reading.reader import StoreReader

        StoreReader.open(sys.argv[1]).close()
        os.kill(os.getpid(), signal.SIGBUS)
        print("never")
        """,
        str(folder),
    )
    assert (sent.returncode, sent.stdout) == (-signal.SIGBUS, "")


def test_pyarrow_batches_hold_no_mapped_bytes(folder: Path) -> None:
    """Rows that were handed out stay what they were when the file is cut afterwards."""
    with StoreReader.open(folder) as reader:
        table: pa.Table = arrow.scan(reader).read_all()
        bodies = table.column("body").to_pylist()
        cut(folder)
        assert table.column("body").to_pylist() == bodies
        assert bodies[399] == b"399" * 300


def test_a_pull_gives_no_zeroes_and_other_pulls_go_on(tmp_path: Path) -> None:
    """A view that is sent, or joined with others, would pass the zeroes on."""
    with StoreEngine.open(tmp_path / "store", mapped_file_size_bytes=FILE_BYTES) as store:
        for number in range(400):
            store.put(Message(f"t{number % 2}", b"%d" % number * 300))
        assert store.get("t1", 0, 199).messages  # the queues have all units
        first = min((tmp_path / "store" / "commitlog").iterdir())
        os.truncate(first, 8192)
        limits = {"max_count": 1, "max_bytes": 1 << 20, "tags": None}
        for _ in range(2):
            assert bytes(store.get_ranges("t0", 0, 0, **limits).ranges[0])  # of a page that is still there
            ranges = store.get_ranges("t0", 0, 40, **limits).ranges
            with pytest.raises(StoreIOError, match=str(first)):
                ranges[0]
            with pytest.raises(StoreIOError, match=str(first)):
                store.get("t1", 0, 40).messages  # noqa: B018 - raises
            assert store.get("t1", 0, 0, max_count=1).messages[0].body == b"1" * 300
            assert store.get("t1", 0, 190).messages[0].body == b"381" * 300
        assert store.put(Message("t1", b"last")).queue_offset == 200
        assert store.get("t1", 0, 200).messages[0].body == b"last"
