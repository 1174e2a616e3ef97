"""All that a store offers, called by many threads beside each other, and judged by what the log holds."""

import asyncio
import struct
import sys
import threading
import time
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from pyledger._core import scan
from pyledger.errors import OffsetOutOfRangeError, StoreClosedError
from pyledger.model.message import Message
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from tests.support.column_rows import columns

FILE_BYTES = 128 << 10
TOPICS = ("t0", "t1")


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Threads give the interpreter away a hundred times more often than they would."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def run_all(calls: list[Callable[[], None]]) -> list[BaseException]:
    """Each call in a thread of its own; what they raised."""
    raised: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def encoded_batch(bodies: list[bytes]) -> bytes:
    """A client's batch body."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0" for body in bodies
    )


@pytest.mark.parametrize("file_bytes", [48 << 10, 256 << 10, 1 << 20, 4 << 20])
def test_rows_of_many_threads_fill_files_to_the_byte(tmp_path: Path, file_bytes: int) -> None:
    """A run that goes past the mapping chooses its file anew whenever another thread may have appended."""
    threads, calls, rows = 6, 12, 300
    marks = [[f"{thread}.{number}.".encode() for number in range(calls * rows)] for thread in range(threads)]
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=file_bytes) as store:

        def append(thread: int) -> None:
            for call in range(calls):
                bodies = [mark * 40 for mark in marks[thread][call * rows : (call + 1) * rows]]
                ids, none = array("i", [thread % 2] * rows), array("q", [0] * rows)
                store.append_rows(f"t{thread}", ids, columns(bodies), columns([b""] * rows), none)

        assert not run_all([partial(append, thread) for thread in range(threads)])
        stop = scan(store.log_view(), 0)
        assert (stop.problem, stop.record_count) == ("", threads * calls * rows)
        found = defaultdict(list)
        for message in store.messages():
            assert message.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF
            assert message.queue_offset == len(found[message.topic])
            found[message.topic].append(message.body)
    assert all(file.stat().st_size == file_bytes for file in (tmp_path / "commitlog").iterdir())
    assert found == {f"t{thread}": [mark * 40 for mark in marks[thread]] for thread in range(threads)}


class Load:
    """Threads that use a store in every way, and what they know of it afterwards."""

    def __init__(self, store: StoreEngine) -> None:
        self.store = store
        self.numbers = count()
        self.stored: dict[bytes, int] = {}  # body -> physical offset
        self.rows: dict[int, list[bytes]] = defaultdict(list)  # of each thread, in order
        self.until = time.monotonic() + 4.0

    def body(self) -> bytes:
        return b"%08d" % next(self.numbers) + b"." * 700

    def message(self) -> Message:
        number = next(self.numbers)
        return Message(TOPICS[number % 2], b"%08d" % number + b"-" * 300, tags="a", keys=f"k{number}")

    def note(self, body: bytes, physical_offset: int) -> None:
        self.stored[body] = physical_offset

    # -- ways to write

    def put(self) -> None:
        message = self.message()
        self.note(message.body, self.store.put(message).physical_offset)

    def put_batch(self) -> None:
        messages = [self.message() for _ in range(7)]
        for message, result in zip(messages, self.store.put_batch(messages), strict=True):
            self.note(message.body, result.physical_offset)

    def put_async(self) -> None:
        async def one() -> None:
            messages = [self.message() for _ in range(5)]
            results = await asyncio.gather(*(self.store.aput(message) for message in messages))
            results += await self.store.aput_batch(more := [self.message() for _ in range(3)])
            for message, result in zip(messages + more, results, strict=True):
                self.note(message.body, result.physical_offset)

        asyncio.run(one())

    def put_encoded(self) -> None:
        bodies = [self.body() for _ in range(9)]
        results = self.store.append_encoded_batch(Message(TOPICS[0], encoded_batch(bodies)))
        assert [result.queue_offset for result in results] == list(
            range(results[0].queue_offset, results[0].queue_offset + 9)
        )
        for body, result in zip(bodies, results, strict=True):
            self.note(body, result.physical_offset)

    def put_inner(self) -> None:
        batch = encoded_batch([self.body() for _ in range(4)])
        self.note(batch, self.store.append_inner_batch(Message("batches", batch)).physical_offset)

    def put_prepared(self) -> None:
        appender = self.store.appender(TOPICS[1], 0)
        self.note(body := self.body(), appender.put(body))
        self.note(body := self.body(), appender.put_many([body]))

    def put_rows(self) -> None:
        bodies = [self.body() for _ in range(120)]
        none = array("q", [0] * len(bodies))
        ids = array("i", [0] * len(bodies))
        self.store.append_rows("rows", ids, columns(bodies), columns([b""] * len(bodies)), none)
        self.rows[threading.get_ident()] += bodies

    # -- ways to read

    def read_queues(self) -> None:
        for (topic, queue_id), reach in self.store.queues().items():
            got = self.store.get(topic, queue_id, reach.min_offset)
            for message in got.messages:
                assert zlib.crc32(message.body) & 0x7FFFFFFF == message.body_crc
            for view in self.store.get_ranges(topic, queue_id, reach.min_offset).ranges:
                assert len(bytes(view)) > 91
            self.store.queue_range(topic, queue_id)
            self.store.count_messages(topic, queue_id, reach.min_offset, reach.max_offset, "a")
            self.store.offset_by_time(topic, queue_id, int(time.time() * 1000) - 50)

    def read_log(self) -> None:
        at = self.store.min_offset
        for message in self.store.messages(at):
            assert zlib.crc32(message.body) & 0x7FFFFFFF == message.body_crc
            at = message.physical_offset
        try:
            if self.store.confirmed_where > at:
                assert self.store.message_at(at).physical_offset == at
        except OffsetOutOfRangeError:
            assert self.store.min_offset > at
        view = self.store.log_view()
        assert scan(view, view.start_offset).ordinary

    def ask(self) -> None:
        for body in list(self.stored)[-20:]:
            self.store.query(TOPICS[0], f"k{int(body[:8])}" if body[:1].isdigit() else "none")
        self.store.statistics()
        assert self.store.flushed_where <= self.store.max_offset
        assert self.store.confirmed_where >= 0
        assert len(self.store.index_end) == 2

    # -- ways to keep

    def keep(self) -> None:
        self.store.flush()
        self.store.flush_log()
        self.store.wait_flushed(self.store.flushed_where, 10)
        self.store.dispatch()

    def expire(self) -> None:
        time.sleep(0.01)  # how often operators clean by hand does not matter, only that they do meanwhile
        self.store.clean()
        if len(list((Path(self.store.path) / "commitlog").iterdir())) > 12:
            self.store.delete_expired(immediate=True)

    def calls(self) -> list[Callable[[], None]]:
        once = (
            self.put, self.put_batch, self.put_async, self.put_encoded, self.put_inner, self.put_prepared,
            self.put_rows, self.put_rows, self.read_queues, self.read_log, self.ask, self.keep, self.expire,
        )  # fmt: skip

        def again_and_again(call: Callable[[], None]) -> Callable[[], None]:
            def loop() -> None:
                while time.monotonic() < self.until:
                    call()

            return loop

        return [again_and_again(call) for call in once]

    def judge(self, path: Path) -> None:
        """What the log holds is what was stored, each message once and where its writer was told."""
        found: dict[bytes, int] = {}
        ends: dict[tuple[str, int], int] = {}
        with StoreReader.open(path) as reader:
            for message in reader.messages():
                assert message.body not in found
                found[message.body] = message.physical_offset
                if message.topic != "batches":
                    assert message.queue_offset == ends.get((message.topic, 0), message.queue_offset)
                    ends[message.topic, 0] = message.queue_offset + 1
            first = min(found.values())
        lost = [body for body, offset in self.stored.items() if offset >= first and found.get(body) != offset]
        assert not lost
        for bodies in self.rows.values():
            # In order, and only what retention took from the front is missing.
            kept = bodies[next((at for at, body in enumerate(bodies) if body in found), len(bodies)) :]
            places = [found[body] for body in kept]
            assert places == sorted(places)
        sizes = {file.stat().st_size for file in (path / "commitlog").iterdir()}
        assert sizes == {FILE_BYTES}


def open_small(path: Path, flush: str) -> StoreEngine:
    return StoreEngine.open(
        path, flush_disk_type=flush, mapped_file_size_bytes=FILE_BYTES,
        consume_queue_file_size_bytes=4000,
    )  # fmt: skip


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_everything_at_once(tmp_path: Path, flush: str) -> None:
    with open_small(tmp_path, flush) as store:
        load = Load(store)
        assert not run_all(load.calls())
        assert len(load.stored) > 100
        assert load.rows
    load.judge(tmp_path)


def test_close_beside_everything(tmp_path: Path) -> None:
    """A thread in a call when the store closes gets StoreClosedError; acknowledged messages are stored."""
    store = open_small(tmp_path, "async")
    load = Load(store)

    def close() -> None:
        while len(load.stored) < 300:
            time.sleep(0.001)
        store.close()

    raised = run_all([close, *load.calls()])
    assert {type(error) for error in raised} <= {StoreClosedError}, raised
    load.judge(tmp_path)
