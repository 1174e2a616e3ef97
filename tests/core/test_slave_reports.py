"""What a slave says comes whole and in order; silence, an end and a broken connection are three things."""

import socket
import struct
from collections.abc import Iterator
from threading import Thread

import pytest

from pyledger._core import SlaveReports

MINUTE_US = 60_000_000


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    first, second = socket.create_server(("127.0.0.1", 0)), socket.socket()
    with first, second:
        second.connect(first.getsockname())
        master, _ = first.accept()
        with master:
            yield master, second


def test_silence_is_none(ends: tuple[socket.socket, socket.socket]) -> None:
    reports = SlaveReports(ends[0].fileno())
    assert reports.take() is None
    assert reports.take(1) is None


def test_takes_all_that_has_come_a_part_at_a_time(ends: tuple[socket.socket, socket.socket]) -> None:
    master, slave = ends
    sent = b"".join(struct.pack(">q", number) for number in range(2_000))
    slave.sendall(sent)
    reports, found = SlaveReports(master.fileno()), b""
    while len(found) < len(sent):
        part = reports.take(MINUTE_US)
        assert part
        assert len(part) <= 4096
        found += part
    assert found == sent
    assert reports.take() is None


def test_waits_for_a_report_that_comes_in_time(ends: tuple[socket.socket, socket.socket]) -> None:
    master, slave = ends
    late = Thread(target=slave.sendall, args=(b"reported",))
    late.start()
    assert SlaveReports(master.fileno()).take(MINUTE_US) == b"reported"
    late.join()


def test_an_end_is_empty(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].shutdown(socket.SHUT_WR)
    assert SlaveReports(ends[0].fileno()).take(MINUTE_US) == b""


def test_a_break_is_an_error(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends[1].close()
    with pytest.raises(ConnectionResetError):
        SlaveReports(ends[0].fileno()).take(MINUTE_US)
