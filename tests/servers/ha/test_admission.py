"""Which slaves get a master's log, and what a slave does before its first report."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pyledger._core import LogSender, LogView, MappedFile
from pyledger.client.admin import ha as replication_admin
from pyledger.client.admin.ha import ReplicationAdmin
from pyledger.clock import SystemClock
from pyledger.config.ha import HaConfig
from pyledger.config.store import StoreConfig
from pyledger.errors import RemotingTimeoutError, StoreIOError
from pyledger.model.message import Message
from pyledger.model.remoting_codes import ResponseCode
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.protocol.ha.master import REPORT
from pyledger.protocol.ha.slave import FRAME_HEADER
from pyledger.servers.broker.ha.replication import SlaveReplication
from pyledger.servers.broker.ha.slave_synchronize import offset_in
from pyledger.servers.ha import connection
from pyledger.servers.ha import service as ha_service
from pyledger.servers.ha.client import HaClient
from pyledger.servers.ha.connection import FOLLOW_BYTES
from pyledger.servers.ha.service import HaService
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.bodies.ha_status import HaStatus
from pyledger.wire.remoting.bodies.topic_config import KVTable
from pyledger.wire.remoting.command import RemotingCommand
from tests.net.conftest import Run
from tests.servers.ha.link import first_bytes
from tests.servers.ha.pair import SMALL, brokers, replication, same_view, until
from tests.servers.ha.test_links import service_of
from tests.servers.ha.test_pairs import following, send_many

THREADS_MAX = min(32, (os.cpu_count() or 1) + 4)
"""Of an event loop, for all that waits for a disk."""
ELSEWHERE = "127.0.0.2"
"""Not one of the addresses that always count as this machine."""


def test_only_slaves_that_are_known_get_the_log(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master")
            await send_many(master, 3)
            port = service_of(master).port
            assert await first_bytes(port, address=ELSEWHERE) == b""
            assert not service_of(master).connections
            # The name server tells of a slave there.
            await pair.start(1, "slave", advertised_host=ELSEWHERE)
            assert await first_bytes(port, address=ELSEWHERE)

    run(main())


@pytest.mark.parametrize("limit", ["ADMISSIONS_MAX", "CONNECTIONS_OF_HOST_MAX"])
def test_pending_admissions_are_limited(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """More connections are closed: each may cost a request to the name servers."""
    monkeypatch.setattr(ha_service, limit, 8)

    async def main() -> None:
        answer, query_count = asyncio.Event(), 0

        async def known(_host: str) -> bool:
            nonlocal query_count
            query_count += 1
            return await answer.wait()

        with StoreEngine.open(tmp_path, **SMALL) as store:
            service = HaService(store, HaConfig(role="async_master"), SystemClock().now_ms, known)
            await service.start("127.0.0.1", 0)
            came = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(9)]
            assert await came[-1][0].read() == b""
            assert query_count == 8
            answer.set()
            await until(lambda: len(service.connections) == 8)
            await service.close()
            assert not service._hosts
            for _, writer in came:
                writer.close()

    run(main())


def test_slaves_that_lag_far_delay_no_other_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of the event loop write tables and flush the log: none is used to send to slaves."""
    gate = threading.Event()

    class Gated(LogSender):
        def stream(
            self, view: LogView, start: int, stop: int, last: MappedFile, *, rests: bool = True
        ) -> int:
            gate.wait()
            return super().stream(view, start, stop, last, rests=rests)

    async def admits(_host: str) -> bool:
        return True

    async def main() -> None:
        monkeypatch.setattr(connection, "LogSender", Gated)
        monkeypatch.setattr(ha_service, "CONNECTIONS_OF_HOST_MAX", THREADS_MAX + 1)
        one_file = SMALL | {"mapped_file_size_bytes": 2 * FOLLOW_BYTES}
        with StoreEngine.open(tmp_path, StoreConfig(**one_file)) as store:
            while store.max_offset <= FOLLOW_BYTES:
                store.put(Message("T", bytes(1 << 16)))
            service = HaService(store, HaConfig(role="async_master"), SystemClock().now_ms, admits)
            await service.start("127.0.0.1", 0)
            came = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(THREADS_MAX + 1)]
            for _, writer in came:
                writer.write(REPORT.pack(0))
            await until(lambda: len(service.streams) == len(came))
            await asyncio.to_thread(lambda: None)
            gate.set()
            for reader, _ in came:
                assert await reader.readexactly(FRAME_HEADER.size)
            await service.close()
            assert not service.streams
            for _, writer in came:
                writer.close()

    run(main())


def test_a_slave_may_be_configured(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", ha={"allowed_slaves": f"10.1.2.3;{ELSEWHERE}"})
            await send_many(master, 3)
            assert await first_bytes(service_of(master).port)

    run(main())


def test_a_slave_that_connects_again_reports_what_is_on_its_disk(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master, slave = await following(pair, 5)
            flush: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            offsets: list[int] = []

            def until_durable(end_offset: int) -> asyncio.Future[bool]:
                offsets.append(end_offset)
                return flush

            # Its last bytes wait for a slow disk while the connection breaks.
            slave.store.until_durable = until_durable  # type: ignore[method-assign]
            side = replication(slave)
            assert side.ha_client.connection is not None
            side.ha_client.connection.end("broken")
            await until(lambda: offsets == [slave.store.max_offset])
            assert [one.ack_offset for one in service_of(master).slaves()] in ([], [-1])
            flush.set_result(True)
            await until(lambda: ends_of(master) == [slave.store.max_offset])
            await send_many(master, 5)
            await same_view(master, slave)

    def ends_of(master: object) -> list[int]:
        return [one.ack_offset for one in service_of(master).slaves()]  # type: ignore[arg-type]

    run(main())


def test_a_slave_survives_any_address_of_a_name_server(run: Run, tmp_path: Path) -> None:
    addresses = ["127.0.0.1:none", "127.0.0.1:99999", "nowhere", ":", "127.0.0.1:-1"]

    async def main() -> None:
        problems: list[str] = []
        with StoreEngine.open(tmp_path, StoreConfig(**SMALL)) as store:

            async def learn() -> None:
                await asyncio.sleep(0)
                if client.problem:
                    problems.append(client.problem)
                client.follow(addresses[len(problems) % len(addresses)])

            client = follower(store, learn)
            client.start()
            await until(lambda: len(problems) > len(addresses))
            await client.close()
        assert set(problems) == {"it is not host:port"}

    run(main())


def test_a_slave_survives_any_error(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        problems: list[str] = []
        with StoreEngine.open(tmp_path, StoreConfig(**SMALL)) as store:

            async def learn() -> None:
                await asyncio.sleep(0)
                problems.append(client.problem)
                raise RuntimeError("can't start new thread")

            client = follower(store, learn)
            client.start()
            await until(lambda: len(problems) > 1)
            await client.close()
        assert problems[1] == """RuntimeError("can't start new thread")"""

    run(main())


def test_a_slave_removes_a_partial_record_before_it_finds_a_master(run: Run, tmp_path: Path) -> None:
    """Another master might not send the rest of that record."""

    async def main() -> None:
        events: list[str] = []
        with StoreEngine.open(tmp_path, StoreConfig(**SMALL)) as store:

            async def learn() -> None:
                events.append("learn")

            def truncate_partial() -> int:
                events.append("truncate")
                if len(events) < 6:
                    raise StoreIOError("commitlog", "write to", "the disk fails")
                return 0

            client = follower(store, learn)
            client.replica.truncate_partial = truncate_partial  # type: ignore[method-assign]
            client.start()
            await until(lambda: "learn" in events)
            await client.close()
        assert events.index("learn") >= 6

    run(main())


def follower(store: StoreEngine, learn: Callable[[], Awaitable[None]]) -> HaClient:
    """A slave's client that knows no master yet."""

    async def agree() -> str:
        return ""

    config = HaConfig(role="slave", reconnect_interval_ms=10)
    return HaClient(store, config, SystemClock().monotonic_ms, learn=learn, agree=agree, grown=lambda: None)


def test_a_broker_that_does_not_support_the_request_is_alive(run: Run) -> None:
    async def main() -> None:
        async def handle(_: Connection, request: RemotingCommand) -> RemotingCommand:
            return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

        server = RemotingServer(handle, port=0)
        await server.start()
        async with ReplicationAdmin() as tool:
            assert await tool._answers(f"127.0.0.1:{server.port}")
            await server.close()
            assert not await tool._answers(f"127.0.0.1:{server.port}")

    run(main())


@pytest.mark.parametrize(("text", "offset"), [("17", 17), ("-1", -1), ("", -1), ("much", -1), ("1_0", -1)])
def test_a_malformed_offset_of_a_master_counts_as_none(text: str, offset: int) -> None:
    assert offset_in(KVTable(table={"commitLogMaxOffset": text}), "commitLogMaxOffset") == offset


def test_a_broker_that_does_not_change_its_role_times_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def handle(_: Connection, request: RemotingCommand) -> RemotingCommand:
            return request.response(ResponseCode.SUCCESS, body=HaStatus(master=False).encode())

        monkeypatch.setattr(replication_admin, "CHANGE_TIMEOUT_MS", 1)
        server = RemotingServer(handle, port=0)
        await server.start()
        async with ReplicationAdmin() as tool:
            with pytest.raises(RemotingTimeoutError):
                await tool.promote(f"127.0.0.1:{server.port}", "SYNC_MASTER", force=True)
        await server.close()

    run(main())


def test_a_slave_forgets_how_far_another_master_was(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master, slave = await following(pair, 5)
            side: SlaveReplication = replication(slave)
            assert side.status().master_commit_log_max_offset == master.store.max_offset
            await master.close()
            await until(lambda: side.ha_client.connection is None)
            side.learn_master("", "")
            assert side.status().master_commit_log_max_offset > 0
            side.learn_master("127.0.0.1:1", "127.0.0.1:2")
            assert side.status().master_commit_log_max_offset == -1

    run(main())
