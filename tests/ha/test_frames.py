"""A slave stores what comes in any pieces as its machine alone would, whatever goes on together."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger.config.ha import HaConfig
from pyledger.errors import PyLedgerError
from pyledger.message import Message
from pyledger.protocol.ha.slave import FRAME_HEADER, SlaveConnection
from pyledger.runtime.ha_client import store_frames
from pyledger.store.message_store import MessageStore
from tests.ha.pair import log_bytes

FILE_BYTES = 1 << 20
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of a little more than a file."""
    with MessageStore.open(tmp_path_factory.mktemp("master"), mapped_file_size_bytes=FILE_BYTES) as store:
        for number in range(60):
            store.append(Message("T", bytes(number * 600)))
        return log_bytes(store)


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(
    frames=st.lists(st.integers(1, 60_000), min_size=20, max_size=60),
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
    with MessageStore.open(folder, mapped_file_size_bytes=FILE_BYTES) as store:
        replica = store.replica()
        machine = SlaveConnection(config, 0, FILE_BYTES, 0)
        at, turn = 0, 0
        while at < len(stream):
            size = chunks[turn % len(chunks)]
            store_frames(machine, replica, memoryview(stream)[at : at + size], 0)
            assert replica.end_offset == machine.max_offset
            at, turn = at + size, turn + 1
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
    with MessageStore.open(tmp_path, mapped_file_size_bytes=FILE_BYTES) as store:
        replica = store.replica()
        machine = SlaveConnection(HaConfig(), 0, FILE_BYTES, 0)
        store_frames(machine, replica, memoryview(FRAME_HEADER.pack(0, 10) + log[:10]), 0)
        frames = FRAME_HEADER.pack(10, 89_990) + wrong[10:]
        with pytest.raises(PyLedgerError):
            store_frames(machine, replica, memoryview(frames), 0)
        assert replica.end_offset == 10
