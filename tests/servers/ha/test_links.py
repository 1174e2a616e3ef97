"""Connections that drop or stall anywhere: a slave's log stays a prefix of its master's."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.protocol.ha.slave import FRAME_HEADER
from pyledger.servers.broker.server import Broker
from pyledger.servers.ha.service import HaService
from pyledger.wire.remoting.bodies.ha_status import HaStatus
from tests.net.conftest import Run
from tests.servers.broker.peers import make_request, send
from tests.servers.ha.link import linked
from tests.servers.ha.pair import QUICK, SMALL, brokers, caught_up, log_bytes, replication, same_view, until
from tests.servers.ha.test_pairs import response_of, send_many
from tests.support.small_disk import small_disk

BATCH = 1024
FEW = {"consume_queue_file_size_bytes": 20_000, "mapped_file_size_bytes": 1 << 19}
"""Bytes of files, so that a small disk holds some."""
NOT_ON_SLAVE = {ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
LARGE = 24
"""Sends that are together more than two sockets' buffers."""
FILE_BYTES = SMALL["mapped_file_size_bytes"]
HEADER = FRAME_HEADER.size


def service_of(master: Broker) -> HaService:
    assert master.context is not None
    return master.context.replication.service  # type: ignore[union-attr]


async def ha_status(slave: Broker) -> HaStatus:
    """What a slave says of itself."""
    return HaStatus.decode((await response_of(slave, make_request(RequestCode.GET_BROKER_HA_STATUS))).body)


def stream_place(start: int, offset: int) -> int:
    """Bytes that a master sends from a physical offset until it has sent the byte at another."""
    sent, at = 0, start
    while True:
        size = min(BATCH, FILE_BYTES - at % FILE_BYTES)
        if offset < at + size:
            return sent + HEADER + offset - at
        sent, at = sent + HEADER + size, at + size


def places(records: list[tuple[int, int]]) -> dict[str, Callable[[int], int]]:
    """Where a link is cut: the bytes it carries, by the offset that a slave begins at."""
    size_of = dict(records)
    blank = next(at + size for at, size in records if at + size not in size_of and at < FILE_BYTES)
    return {
        "before the first byte": lambda _: 0,
        "in a header": lambda _: 5,
        "behind a header": lambda _: HEADER,
        "in the head of a record": lambda _: HEADER + 3,
        "in a record": lambda _: HEADER + 40,
        "at the end of a record": lambda start: stream_place(start, start + size_of[start]),
        "at the end of a frame": lambda _: HEADER + BATCH,
        "in the second header": lambda _: HEADER + BATCH + 7,
        "in the blank at the end of a file": lambda start: stream_place(start, blank + 5),
        "at the end of a file": lambda start: stream_place(start, FILE_BYTES) - HEADER,
        "in the first header of a file": lambda start: HEADER // 2 + stream_place(start, FILE_BYTES) - HEADER,
        "in the first record of a file": lambda start: stream_place(start, FILE_BYTES) + 9,
    }


def test_a_connection_may_drop_at_any_byte(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", ha={"transfer_batch_bytes": BATCH})
            await send_many(master, 1)
            service = service_of(master)
            async with linked(service.port) as link:
                slave = await pair.start(1, "slave", ha={"master_address": link.address})
                await caught_up(master, slave)
                await slave.close()
                stored = [master.store.put(Message("T", bytes(300 + 7 * n % 900))) for n in range(1_500)]
                cuts = places([(one.physical_offset, one.size_bytes) for one in stored])
                before = link.connections
                link.report_cuts = [0, 3]
                link.cuts = list(cuts.values())
                slave = await pair.start(1, "slave", ha={"master_address": link.address})
                await same_view(master, slave)
                assert link.connections - before >= len(cuts) + 3
                await until(lambda: len(service.connections) == 1)

    run(main())


def test_a_slave_that_reads_nothing_delays_no_one_else(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair:
            patient = {"slave_timeout_ms": 3_600_000}
            master = await pair.start(0, "sync_master", ha=patient)
            service = service_of(master)
            async with linked(service.port) as link:
                slave = await pair.start(1, "slave", ha={"master_address": link.address})
                await until(lambda: service.transfer.push_offset == 0)
                assert {one.code for one in await send_many(master, 5)} == {0}
                link.carries.clear()
                reached = slave.store.max_offset
                waiting = [
                    asyncio.ensure_future(response_of(master, send("T", bytes(800_000))))
                    for _ in range(LARGE)
                ]
                await until(lambda: service.transfer.waiting_count == LARGE)
                (connection,) = service.connections.values()
                # More than the kernel takes: the rest stays in the log, and costs no memory.
                await until(lambda: connection._sender.blocked)
                assert not any(one.done() for one in waiting)
                hasty = await response_of(master, send("T", b"hasty", properties={"WAIT": "false"}))
                assert hasty.code == 0
                service.transfer.tick(1 << 62)
                answers = [await one for one in waiting]
                assert {one.code for one in answers} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
                assert slave.store.max_offset < master.store.max_offset
                assert slave.store.max_offset >= reached
                link.carries.set()
                await caught_up(master, slave)
                assert {one.code for one in await send_many(master, 5)} == {0}
                await same_view(master, slave)
                assert replication(slave).ha_client.problem == ""

    run(main())


def test_a_slave_with_a_full_disk_reports_what_it_has(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def disk_full_times() -> list[float]:
        """When the slave logged that its disk is full (s)."""
        lines = [one for one in caplog.records if one.getMessage().startswith("master not followed")]
        return [one.created for one in lines if "no space left" in one.getMessage()]

    async def main() -> None:
        with small_disk(tmp_path / "disk", 16) as disk:
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(11 << 20))
            async with brokers(tmp_path) as pair:
                master = await pair.start(0, "sync_master", store=FEW)
                transfer = service_of(master).transfer
                slave = await pair.start(1, "slave", store=FEW, store_path=str(disk / "store"))
                await until(lambda: transfer.push_offset == 0)
                await send_many(master, 100, 60_000, properties={"WAIT": "false"})
                while "no space" not in (await ha_status(slave)).ha_client_info.problem:
                    await asyncio.sleep(0.002)
                sending = asyncio.ensure_future(response_of(master, send("T", b"late")))
                await until(lambda: sending.done() or transfer.waiting_count > 0)
                transfer.tick(1 << 62)
                assert (await sending).code in NOT_ON_SLAVE
                assert slave.store.max_offset < master.store.max_offset
                assert transfer.push_offset <= slave.store.max_offset
                reached = slave.store.max_offset
                assert log_bytes(slave.store) == log_bytes(master.store)[:reached]
                await until(lambda: len(disk_full_times()) > 4)
                *_, before, last = disk_full_times()
                assert last - before > 4 * QUICK["reconnect_interval_ms"] / 1000, "each time it waits longer"
                ballast.unlink()
                await same_view(master, slave)

    run(main())
