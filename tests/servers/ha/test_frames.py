"""A slave stores what comes in any pieces as its machine alone would, whatever goes on together."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger.config.ha import HaConfig
from pyledger.errors import PyLedgerError
from pyledger.model.message import Message
from pyledger.protocol.ha.master import REPORT
from pyledger.protocol.ha.slave import FRAME_HEADER, SlaveConnection, SlaveState
from pyledger.servers.ha.client import store_frames, take_frames
from pyledger.store.messages.replica import ReplicaReceiver, StoreReplica
from pyledger.store.messages.store_engine import StoreEngine
from tests.servers.ha.pair import log_bytes

FILE_BYTES = 1 << 20
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of a little more than a file."""
    with StoreEngine.open(tmp_path_factory.mktemp("master"), mapped_file_size_bytes=FILE_BYTES) as store:
        for number in range(60):
            store.append(Message("T", bytes(number * 600)))
        return log_bytes(store)


FRAMES = st.lists(st.integers(1, 60_000), min_size=20, max_size=60)
"""Sizes of frames, in bytes."""


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(
    frames=FRAMES,
    chunks=st.lists(st.integers(1, 200_000), min_size=1, max_size=20),
    odd=st.none() | st.tuples(st.integers(0, 60), st.sampled_from([(7, 0), (0, -5), (0, 1 << 21)])),
)
def test_it_is_as_the_machine_alone_would_have_it(
    tmp_path_factory: pytest.TempPathFactory,
    log: bytes,
    frames: list[int],
    chunks: list[int],
    odd: tuple[int, tuple[int, int]] | None,
) -> None:
    stream = b"".join(stream_of(log, frames, odd))
    config = HaConfig()
    alone = SlaveConnection(config, 0, FILE_BYTES, 0)
    expected = b"".join(bytes(piece.data) for piece in alone.take(memoryview(stream), 0))
    folder: Path = tmp_path_factory.mktemp("slave")
    with StoreEngine.open(folder, mapped_file_size_bytes=FILE_BYTES) as store:
        replica = store.replica()
        machine = SlaveConnection(config, 0, FILE_BYTES, 0)
        at, count = 0, 0
        while at < len(stream):
            size = chunks[count % len(chunks)]
            store_frames(machine, replica, memoryview(stream)[at : at + size], 0)
            assert replica.end_offset == machine.max_offset
            at, count = at + size, count + 1
        assert (machine.state, machine.max_offset) == (alone.state, alone.max_offset)
        assert machine.problem == alone.problem
        assert machine.master_offset == alone.master_offset
        assert log_bytes(store) == expected[: replica.whole_offset]


def stream_of(log: bytes, frames: list[int], odd: tuple[int, tuple[int, int]] | None) -> list[bytes]:
    """What a master sends; in one frame's place something else, perhaps."""
    at, parts = 0, []
    for number, wanted in enumerate(frames):
        size = min(wanted, FILE_BYTES - at % FILE_BYTES, len(log) - at)
        if odd is not None and number == odd[0]:
            parts.append(FRAME_HEADER.pack(at + odd[1][0], odd[1][1]))
        parts.append(FRAME_HEADER.pack(at, size) + log[at : at + size])
        at += size
    return parts


def test_a_frame_that_is_no_record_ends_it(tmp_path: Path, log: bytes) -> None:
    wrong = bytearray(log[:90_000])
    second = int.from_bytes(log[:4], "big")
    wrong[second + 4 : second + 8] = bytes(4)
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=FILE_BYTES) as store:
        replica = store.replica()
        machine = SlaveConnection(HaConfig(), 0, FILE_BYTES, 0)
        store_frames(machine, replica, memoryview(FRAME_HEADER.pack(0, 10) + log[:10]), 0)
        frames = FRAME_HEADER.pack(10, 89_990) + wrong[10:]
        with pytest.raises(PyLedgerError):
            store_frames(machine, replica, memoryview(frames), 0)
        assert replica.end_offset == 10


@contextmanager
def receiving(replica: StoreReplica) -> Iterator[tuple[socket.socket, ReplicaReceiver]]:
    """The master's end of a connection, and what takes from the other."""
    own, other = socket.socketpair()
    with closing(own), closing(other):
        other.setblocking(False)
        yield own, replica.receiver(other.fileno())


def reports(master: socket.socket) -> list[int]:
    """What a slave has reported since the last time."""
    try:
        return [offset for (offset,) in REPORT.iter_unpack(master.recv(1 << 16, socket.MSG_DONTWAIT))]
    except BlockingIOError:
        return []


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(
    frames=FRAMES,
    chunks=st.lists(st.integers(1, 60_000), min_size=1, max_size=20),
    odd=st.none() | st.tuples(st.integers(0, 60), st.sampled_from([(7, 0), (0, -5), (0, 1 << 21), (0, 0)])),
)
def test_a_feed_is_as_the_machine_alone_would_be(
    tmp_path_factory: pytest.TempPathFactory,
    log: bytes,
    frames: list[int],
    chunks: list[int],
    odd: tuple[int, tuple[int, int]] | None,
) -> None:
    stream = b"".join(stream_of(log, frames, odd))
    alone = SlaveConnection(HaConfig(), 0, FILE_BYTES, 0)
    expected = b"".join(bytes(piece.data) for piece in alone.take(memoryview(stream), 0))
    folder: Path = tmp_path_factory.mktemp("slave")
    with StoreEngine.open(folder, mapped_file_size_bytes=FILE_BYTES) as store:
        replica = store.replica()
        machine = SlaveConnection(HaConfig(), 0, FILE_BYTES, 0)
        reported, at, count = [0], 0, 0
        with receiving(replica) as (master, receiver):
            while at < len(stream) and machine.state is not SlaveState.SHUTDOWN:
                size = chunks[count % len(chunks)]
                master.sendall(stream[at : at + size])
                while machine.state is not SlaveState.SHUTDOWN and take_frames(
                    machine, replica, receiver, 0, lambda: 0
                ):
                    pass
                assert replica.end_offset == machine.max_offset
                came = reports(master)
                # Where nothing but frames in order came, the slave has reported what it has.
                assert came == sorted(came)
                reported += came
                at, count = at + size, count + 1
        assert (machine.state, machine.max_offset) == (alone.state, alone.max_offset)
        assert machine.problem == alone.problem
        assert machine.master_offset == alone.master_offset
        assert log_bytes(store) == expected[: replica.whole_offset]
        assert reported == sorted(reported)
        assert reported[-1] <= replica.whole_offset


@pytest.mark.parametrize("cut", [1, FRAME_HEADER.size - 1, FRAME_HEADER.size, FRAME_HEADER.size + 1])
def test_an_empty_slave_begins_at_the_first_frame(tmp_path: Path, log: bytes, cut: int) -> None:
    """Also when the bytes come after the header that says so."""
    rest = log[FILE_BYTES:]
    frame = FRAME_HEADER.pack(FILE_BYTES, len(rest)) + rest
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=FILE_BYTES) as store:
        replica = store.replica()
        machine = SlaveConnection(HaConfig(), 0, FILE_BYTES, 0)
        with receiving(replica) as (master, receiver):
            for part in (frame[:cut], frame[cut:]):
                master.sendall(part)
                while take_frames(machine, replica, receiver, 0, lambda: 0):
                    pass
        assert replica.whole_offset == machine.max_offset == len(log)
        assert log_bytes(store, FILE_BYTES) == rest


def test_a_feed_reports_whole_records_and_rings_once(tmp_path: Path, log: bytes) -> None:
    with StoreEngine.open(tmp_path, mapped_file_size_bytes=FILE_BYTES) as store:
        replica = store.replica()
        machine = SlaveConnection(HaConfig(), 0, FILE_BYTES, 0)
        first = int.from_bytes(log[:4], "big")
        with receiving(replica) as (master, receiver):
            master.sendall(FRAME_HEADER.pack(0, first) + log[:first])
            assert take_frames(machine, replica, receiver, 0, lambda: 0)
            # The first file is made where Python runs; from there on the receiver needs nobody.
            assert (replica.whole_offset, reports(master)) == (first, [])
            half = first + 20
            master.sendall(FRAME_HEADER.pack(first, 20) + log[first:half])
            assert not take_frames(machine, replica, receiver, 0, lambda: 0)
            assert (replica.end_offset, replica.whole_offset, reports(master)) == (half, first, [first])
            end = half + int.from_bytes(log[first : first + 4], "big") - 20
            master.sendall(FRAME_HEADER.pack(half, end - half) + log[half:end])
            assert not take_frames(machine, replica, receiver, 0, lambda: 0)
            assert (machine.max_offset, machine.stored_offset, reports(master)) == (end, end, [end])
            assert not receiver.closed
            master.shutdown(socket.SHUT_WR)
            assert not take_frames(machine, replica, receiver, 0, lambda: 0)
            assert receiver.closed


def test_a_feed_with_sync_flush_leaves_reports_to_others(tmp_path: Path, log: bytes) -> None:
    options = {"mapped_file_size_bytes": FILE_BYTES, "flush_disk_type": "sync"}
    with StoreEngine.open(tmp_path, **options) as store:
        replica = store.replica()
        machine = SlaveConnection(HaConfig(), 0, FILE_BYTES, 0)
        with receiving(replica) as (master, receiver):
            for at in range(0, 90_000, 30_000):
                master.sendall(FRAME_HEADER.pack(at, 30_000) + log[at : at + 30_000])
                take_frames(machine, replica, receiver, 3_600_000, lambda: 0)
            assert (machine.max_offset, machine.stored_offset, reports(master)) == (90_000, 0, [])
            assert replica.until_durable(replica.whole_offset, 3_600_000)
            assert store.flushed_where >= replica.whole_offset > 0
            assert receiver.report(replica.whole_offset)
            assert reports(master) == [replica.whole_offset]
