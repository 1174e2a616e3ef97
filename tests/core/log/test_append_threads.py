"""Appends of many threads to one log: no decision outlives a moment in which others may append."""

import struct
import threading
from array import array
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from pyledger._core import (
    CommitLog,
    DLedgerLog,
    MappedFileQueue,
    MessageScan,
    ReplicaLog,
    scan,
    scan_entries,
)
from pyledger.errors import InvariantError, OffsetOutOfRangeError
from pyledger.model.message import Message
from tests.support.column_rows import plain_rows

DATA_BYTES, UNIT_FILE_BYTES = 24 << 10, 32 * 50
THREADS, ROUNDS = 6, 150


def encoded_batch(bodies: list[bytes]) -> bytes:
    """A client's batch body."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + b"\0\0" for body in bodies
    )


def in_threads(call: Callable[[int], None]) -> None:
    raised: list[BaseException] = []

    def guarded(thread: int) -> None:
        try:
            call(thread)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not raised, raised


def open_logs(folder: Path, *, dledger: bool) -> tuple[CommitLog, DLedgerLog | None]:
    data = MappedFileQueue(str(folder / "data"), DATA_BYTES, allocate_chunk_bytes=4096)
    data.load()
    if not dledger:
        return CommitLog(data), None
    units = MappedFileQueue(str(folder / "index"), UNIT_FILE_BYTES)
    units.load()
    entries = DLedgerLog(data, units)
    entries.set_range(0, -1, -1)
    entries.term = 1
    return CommitLog(data, entries=entries), entries


@pytest.mark.parametrize("dledger", [False, True])
def test_messages_and_batches_of_many_threads(tmp_path: Path, dledger: bool) -> None:
    """Each record names its place, each batch stands together with queue offsets of its own, none twice."""
    log, entries = open_logs(tmp_path, dledger=dledger)
    stored: dict[bytes, tuple[int, int]] = {}  # body -> physical offset, queue offset
    numbers = count()

    def append(thread: int) -> None:
        for _ in range(ROUNDS):
            bodies = [b"%06d." % next(numbers) + bytes(90) for _ in range(8)]
            if thread % 3 == 0:
                batch = encoded_batch(bodies)
                physical, _, queue_offset, _, size = log.append_inner_batch("inner", 0, batch)
                assert size == 8
                stored[batch] = physical, queue_offset
            elif thread % 3 == 1:
                batches = log.append_encoded_batch("plain", 0, encoded_batch(bodies))
                assert len({physical // DATA_BYTES for physical, *_ in batches}) == 1
                for body, (physical, _, queue_offset, _) in zip(bodies, batches, strict=True):
                    stored[body] = physical, queue_offset
            elif thread == 2:
                messages = [Message("plain", body) for body in bodies]
                results = log.append_messages(messages)
                first = results[0][2]
                assert [queue_offset for _, _, queue_offset, _ in results] == list(range(first, first + 8))
                for body, (physical, _, queue_offset, _) in zip(bodies, results, strict=True):
                    stored[body] = physical, queue_offset
            else:
                for body in bodies:
                    physical, _, queue_offset, _ = log.append("plain", 0, body)
                    stored[body] = physical, queue_offset

    in_threads(append)
    found = {}
    next_offsets: dict[str, int] = defaultdict(int)
    for message in MessageScan(log.queue.view(), log.queue.min_offset):
        assert message.queue_offset == next_offsets[message.topic]
        next_offsets[message.topic] += 8 if message.topic == "inner" else 1
        if message.topic == "inner":
            assert int(message.properties["INNER_BASE"]) == message.queue_offset
        assert message.body not in found
        found[message.body] = message.physical_offset, message.queue_offset
    assert next_offsets == {"inner": 2 * ROUNDS * 8, "plain": 4 * ROUNDS * 8}
    assert {body: found[body] for body in stored} == stored
    if entries is not None:
        stop = scan_entries(log.queue.view(), 0, units=entries.units.view())
        assert (stop.status, stop.last_index, stop.unit_fault) == ("end", entries.end_index, -1)
        assert entries.units.max_offset == 32 * (entries.end_index + 1)
        entries.close()
    else:
        assert scan(log.queue.view(), 0).ordinary
        log.queue.close()


def test_entries_of_many_threads(tmp_path: Path) -> None:
    """Runs of entries beside each other: every one is in the log, whoever made room for it."""
    _, log = open_logs(tmp_path, dledger=True)
    assert log is not None
    stored: dict[int, bytes] = {}

    def append(thread: int) -> None:
        for number in range(ROUNDS):
            bodies = [b"%d.%d.%d" % (thread, number, at) + bytes(400) for at in range(5)]
            stored.update(zip(log.append_many(1, bodies), bodies, strict=True))

    in_threads(append)
    stop = scan_entries(log.data.view(), 0, units=log.units.view())
    assert (stop.entry_count, stop.unit_fault) == (THREADS * ROUNDS * 5, -1)
    assert {log.position_of(index): log.read(index)[4] for index in range(stop.last_index + 1)} == stored
    log.close()


def test_appends_wait_for_a_truncation(tmp_path: Path) -> None:
    """A record appended while the log is truncated lies behind the cut, at the offset that was returned."""
    log, _ = open_logs(tmp_path, dledger=False)
    body = bytes(500)
    places = [log.append("t", 0, body)[0] for _ in range(20)]

    def append(thread: int) -> None:
        if thread == 0:
            for place in reversed(places):
                log.queue.truncate(place)
        else:
            for number in range(200):
                log.append("new", thread, b"%d" % number)

    # Appends that were cut away again are nobody's fault; what stands is whole, record by record.
    in_threads(append)
    stop = scan(log.queue.view(), 0)
    assert (stop.problem, stop.next_offset) == ("", log.queue.max_offset)
    log.queue.close()


def test_rows_beside_a_new_queue_that_takes_its_time(tmp_path: Path) -> None:
    """A queue that is met for the first time runs Python code: no row may wait in the run meanwhile."""
    log, _ = open_logs(tmp_path, dledger=False)
    bodies = [b"%05d" % number + bytes(800) for number in range(3000)]

    def append(thread: int) -> None:
        for begin in range(0, len(bodies), 500):
            part = bodies[begin : begin + 500]
            _, texts, properties, born = plain_rows(part)
            ids = array("i", [(at // 7) % 70 for at in range(500)])
            log.append_rows(f"t{thread}", ids, *texts, *properties, born)

    in_threads(append)
    stop = scan(log.queue.view(), 0)
    assert (stop.problem, stop.record_count) == ("", THREADS * len(bodies))
    for file in (tmp_path / "data").iterdir():
        assert file.stat().st_size == DATA_BYTES
    log.queue.close()


def test_a_second_thread_that_follows_a_master_is_rejected(tmp_path: Path) -> None:
    """Bytes of a master come from one connection; two that append would each believe in its own end."""
    source, _ = open_logs(tmp_path / "source", dledger=False)
    for number in range(20):
        source.append("t", 0, b"%d" % number + bytes(700))
    sent = source.queue.view().read(0, source.queue.max_offset)
    target, _ = open_logs(tmp_path / "target", dledger=False)
    replica = ReplicaLog(target.queue)
    refused: list[BaseException] = []

    def append(_: int) -> None:
        while target.queue.wrote_where < len(sent):
            end = target.queue.wrote_where
            try:
                replica.append(end, sent[end : end + 300])
            except Exception as error:  # noqa: BLE001
                refused.append(error)

    in_threads(append)
    assert target.queue.view().read(0, len(sent)) == sent
    assert {type(error) for error in refused} <= {InvariantError, OffsetOutOfRangeError}
    source.queue.close()
    target.queue.close()
