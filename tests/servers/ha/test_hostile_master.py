"""A slave's log holds whole records in order, whatever its master sends."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger._core import scan
from pyledger.config.ha import HaConfig
from pyledger.errors import PyLedgerError
from pyledger.model.message import Message
from pyledger.protocol.ha.slave import FRAME_HEADER, SlaveConnection, SlaveState
from pyledger.servers.ha.client import store_frames
from pyledger.store.messages.store_engine import StoreEngine
from tests.net.conftest import Run
from tests.servers.ha.pair import SMALL, brokers, log_bytes, replication, same_view, until
from tests.servers.ha.test_pairs import send_many

FILE_BYTES = SMALL["mapped_file_size_bytes"]
INT64_MAX = (1 << 63) - 1
PLACES = [-(1 << 63), -1, 0, 1, 17, 4096, FILE_BYTES - 1, FILE_BYTES, 3 * FILE_BYTES, 1 << 40]
FAR_PLACES = [
    10**18 // FILE_BYTES * FILE_BYTES,
    (1 << 62) // FILE_BYTES * FILE_BYTES,
    INT64_MAX // FILE_BYTES * FILE_BYTES,
    INT64_MAX,
]
NUMBERS = st.sampled_from([*PLACES, *FAR_PLACES])
SIZES = st.sampled_from([-(1 << 31), -1, 0, 1, 12, 100, FILE_BYTES, FILE_BYTES + 1, (1 << 31) - 1])


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a log that a master could send."""
    with StoreEngine.open(tmp_path_factory.mktemp("master"), **SMALL) as store:
        for number in range(30):
            store.put(Message("T", b"%d" % number * 40, keys=f"k{number}"))
        return log_bytes(store)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frames=st.lists(
        st.tuples(st.one_of(st.none(), NUMBERS), st.one_of(st.none(), SIZES), st.binary(max_size=40)),
        max_size=6,
    ),
    good=st.integers(0, 1500),
)
def test_frames_of_any_kind_leave_whole_records(
    tmp_path_factory: pytest.TempPathFactory,
    records: bytes,
    frames: list[tuple[int | None, int | None, bytes]],
    good: int,
) -> None:
    """Offsets and sizes are nonsense, or right with other bytes behind them; some good bytes come before."""
    folder = tmp_path_factory.mktemp("slave")
    with StoreEngine.open(folder, **SMALL) as store:
        replica = store.replica()
        machine = SlaveConnection(HaConfig(role="slave"), 0, FILE_BYTES, 0)
        data = FRAME_HEADER.pack(0, good) + records[:good] if good else b""
        end = good
        for offset, size, body in frames:
            data += FRAME_HEADER.pack(end if offset is None else offset, len(body) if size is None else size)
            data += body
            end += len(body)
        with suppress(PyLedgerError):
            store_frames(machine, replica, memoryview(data), 0)
        replica.truncate_partial()
        start, whole = max(0, store.min_offset), replica.whole_offset
        assert store.max_offset == whole
        assert not whole or scan(store.log_view(), start, check=False).next_offset == whole
        assert len(store.log_view().files) <= 1
    # Nothing of it keeps the store from being opened, or is dropped then.
    with StoreEngine.open(folder, **SMALL) as store:
        assert store.max_offset == whole


@pytest.mark.parametrize("offset", [10**18, INT64_MAX // FILE_BYTES * FILE_BYTES, -FILE_BYTES])
def test_an_impossible_start_offset_ends_the_connection(offset: int) -> None:
    """Its files could not be named."""
    machine = SlaveConnection(HaConfig(role="slave"), 0, FILE_BYTES, 0)
    assert not list(machine.take(memoryview(FRAME_HEADER.pack(offset, 100) + bytes(100)), 0))
    assert machine.state is SlaveState.SHUTDOWN


def test_a_slave_comes_back_from_a_master_of_nonsense(run: Run, tmp_path: Path) -> None:
    """It gives up the connection, keeps nothing of it, and follows its true master after that."""
    lies = [
        FRAME_HEADER.pack(0, 200) + bytes(range(200)),
        FRAME_HEADER.pack(7, 100) + bytes(100),
        FRAME_HEADER.pack(0, -5),
        FRAME_HEADER.pack(0, FILE_BYTES + 1) + bytes(4096),
        FRAME_HEADER.pack(-1, 0),
        b"\xff" * 4096,
    ]

    async def main() -> None:
        sent_count = 0

        async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent_count
            writer.write(lies[sent_count % len(lies)])
            sent_count += 1
            await reader.read()
            writer.close()

        server = await asyncio.start_server(lie, "127.0.0.1", 0)
        async with brokers(tmp_path) as pair:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            slave = await pair.start(1, "slave", ha={"master_address": address})
            # It has a problem between two connections.
            await until(lambda: sent_count > 2 * len(lies) and bool(replication(slave).ha_client.problem))
            assert slave.store.max_offset == 0
            await slave.close()
            server.close()
            master = await pair.start(0, "async_master")
            await send_many(master, 20)
            slave = await pair.start(1, "slave")
            await same_view(master, slave)

    run(main())
