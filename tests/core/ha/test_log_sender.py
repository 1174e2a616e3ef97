"""A log goes into a socket as frames, each once and whole, however little the kernel takes at a time."""

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger._core import CommitLog, LogSender, LogView, MappedFileQueue
from pyledger.config.ha import HaConfig
from pyledger.errors import InvariantError, OffsetOutOfRangeError
from pyledger.protocol.ha.master import REPORT, LogRange, MasterConnection
from pyledger.protocol.ha.slave import FRAME_HEADER

FILE_BYTES = 64 << 10


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MappedFileQueue]:
    """A log of some files."""
    found = MappedFileQueue(str(tmp_path_factory.mktemp("log")), FILE_BYTES)
    found.load()
    log = CommitLog(found)
    for number in range(300):
        log.append("T", number % 3, b"x" * (number * 37 % 3000))
    yield found
    found.close()


def bytes_of(view: LogView, start: int, stop: int) -> bytes:
    parts = []
    while start < stop:
        size = min(stop - start, FILE_BYTES - start % FILE_BYTES)
        parts.append(view.read(start, size))
        start += size
    return b"".join(parts)


def frames_of(machine: MasterConnection, view: LogView, log: LogRange) -> tuple[bytes, int]:
    """What the machine would send frame by frame, and where it would go on."""
    parts = []
    while (one := machine.next_transfer(log, 0)) is not None:
        parts.append(FRAME_HEADER.pack(*one) + view.read(one.offset, one.size))
        machine.sent(one, 0)
    return b"".join(parts), machine.next_offset


def drain(peer: socket.socket, size: int = 1 << 20) -> bytes:
    try:
        return peer.recv(size, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.sampled_from([1024, 5000, 32 << 10, 1 << 20]),
    ends=st.lists(st.integers(0, 400_000), min_size=1, max_size=6),
    acknowledges=st.lists(st.booleans(), min_size=6, max_size=6),
    takes=st.lists(st.integers(1, 70_000), min_size=1, max_size=8),
)
def test_it_sends_what_the_machine_would_frame_by_frame(
    queue: MappedFileQueue, batch: int, ends: list[int], acknowledges: list[bool], takes: list[int]
) -> None:
    config = HaConfig(transfer_batch_bytes=batch)
    alone, machine = MasterConnection(config, 0), MasterConnection(config, 0)
    view, step = queue.view(), 0
    own, peer = socket.socketpair()
    with own, peer:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        own.setblocking(False)
        sender = LogSender(own.fileno(), batch)
        for end, acknowledged in zip(
            sorted(min(end, view.end_offset) for end in ends), acknowledges, strict=False
        ):
            log = LogRange(0, end, FILE_BYTES)
            if acknowledged or machine.next_offset < 0:
                for one in (alone, machine):
                    one.receive(REPORT.pack(max(0, one.next_offset)), log, 0)
            expected, reached = frames_of(alone, view, log)
            came = b""
            while (stop := machine.sendable(log, 0)) > machine.next_offset or sender.unfinished:
                machine.sent_to(sender.send(view, machine.next_offset, stop), 0)
                came += drain(peer, takes[step % len(takes)])
                step += 1
            while part := drain(peer):
                came += part
            assert came == expected
            assert machine.next_offset == reached
            assert machine.describe() == alone.describe()


def test_a_stream_goes_at_the_peers_pace(queue: MappedFileQueue) -> None:
    view = queue.view()
    own, peer = socket.socketpair()
    with own, peer:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        own.setblocking(False)
        sender = LogSender(own.fileno(), 5000)
        got = bytearray()

        def read() -> None:
            while part := peer.recv(3000):
                got.extend(part)

        reader = Thread(target=read)
        at = sender.stream(view, 0, view.end_offset, view.files[-1])
        assert sender.blocked
        assert 0 < at < view.end_offset
        reader.start()
        while at < view.end_offset or sender.unfinished:
            at = sender.stream(view, at, view.end_offset, view.files[-1], rests=False)
        assert (at, sender.next_offset, sender.blocked) == (view.end_offset, at, False)
        sender.beat(at)
        while sender.unfinished:
            sender.stream(view, at, at, view.files[-1])
        own.shutdown(socket.SHUT_WR)
        reader.join()
    machine = MasterConnection(HaConfig(transfer_batch_bytes=5000), 0)
    log = LogRange(0, view.end_offset, FILE_BYTES)
    machine.receive(REPORT.pack(0), log, 0)
    machine.next_offset = 0
    assert bytes(got) == frames_of(machine, view, log)[0] + FRAME_HEADER.pack(at, 0)


def test_a_stream_that_is_stopped_goes_no_further(queue: MappedFileQueue) -> None:
    view = queue.view()
    own, peer = socket.socketpair()
    with own, peer:
        sender = LogSender(own.fileno(), 5000)
        sender.stop()
        assert sender.stream(view, 0, view.end_offset, view.files[-1]) == 0
        assert drain(peer) == b""


def test_what_cannot_be_sent(queue: MappedFileQueue, tmp_path: Path) -> None:
    view = queue.view(10_000)
    own, peer = socket.socketpair()
    with own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        own.setblocking(False)
        sender = LogSender(own.fileno(), 1 << 20)
        with peer:
            with pytest.raises(OffsetOutOfRangeError):
                sender.send(view, 0, 10_001)
            assert drain(peer) == b""
            whole = queue.view()
            while not sender.unfinished:
                sender.send(whole, sender.next_offset, whole.end_offset)
            with pytest.raises(InvariantError, match="not sent"):
                sender.send(whole, sender.next_offset + 1, whole.end_offset)
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            sender.send(whole, sender.next_offset, whole.end_offset)
