"""A slave becomes master, an old master comes back as a slave, and what only it had is cut and kept."""

import socket
from pathlib import Path
from typing import Any

import pytest

from pyledger.client.admin.ha import ReplicationAdmin
from pyledger.config.broker import BrokerConfig
from pyledger.config.client import ClientConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.ha import HaConfig
from pyledger.config.store import StoreConfig
from pyledger.errors import NotPromotedError
from pyledger.model.message import Message
from pyledger.servers.broker.server import Broker
from pyledger.servers.broker.supervisor.ha_supervisor import HaSupervisor
from pyledger.store.maintenance.truncate_log import truncate_log
from pyledger.store.messages.store_engine import StoreEngine
from tests.net.conftest import Run
from tests.servers.broker.peers import send
from tests.servers.ha.pair import (
    QUICK,
    SMALL,
    Pair,
    brokers,
    caught_up,
    log_bytes,
    replication,
    same_view,
    until,
)
from tests.servers.ha.test_pairs import response_of, send_many


def supervisor(pair: Pair, number: int, role: str, broker_id: int | None = None, **ha: Any) -> HaSupervisor:
    """A broker that can change, in the folder of its number."""
    config = BrokerConfig(
        port=0,
        broker_id=number if broker_id is None else broker_id,
        vip_port=False,
        name_servers=pair.name_server.address,
        store_path=str(pair.folder / str(number)),
        admin_enabled=True,
    )
    delivery = DeliveryConfig(auto_create_topics=True, slave_read=True)

    def make(config: BrokerConfig, ha: HaConfig) -> Broker:
        return Broker(config, delivery=delivery, store=StoreConfig(**SMALL), ha=ha)

    return HaSupervisor(make, config, HaConfig(**{"role": role, **QUICK, **ha}))  # type: ignore[arg-type]


def admin(pair: Pair) -> ReplicationAdmin:
    return ReplicationAdmin(client=ClientConfig(name_servers=pair.name_server.address))


def test_a_slave_becomes_master_and_the_old_one_its_slave(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            first, second = supervisor(pair, 0, "sync_master"), supervisor(pair, 1, "slave")
            async with first, second:
                await until(lambda: replicas(first) == 1)
                assert {one.code for one in await send_many(first.broker, 30)} == {0}
                with pytest.raises(NotPromotedError, match="is alive"):
                    await tool.promote(second.address)
                # The end of the log comes to nobody, nor how far it is: the master dies with it.
                await second.broker.context.replication.close()  # type: ignore[union-attr]
                await send_many(first.broker, 10)
                ours = log_bytes(first.broker.store)
                await first.broker.close()
                assert (await tool.status(second.address)).document()["masterRole"] == "SYNC_MASTER"
                done = await tool.promote(second.address)
                assert done.document()["role"] == "master"
                assert done.document()["brokerRole"] == "SYNC_MASTER"
                kept = second.broker.store.max_offset
                assert log_bytes(second.broker.store) == ours[:kept]
                assert {one.code for one in await send_many(second.broker, 5)} == {11}
                offsets = [held.max_offset for held in second.broker.store.queues().values()]
                assert sum(offsets) == 35
                # It comes back as it was left, and is made a slave.
                old = supervisor(pair, 0, "slave", broker_id=2)
                async with old:
                    await until(lambda: old._change is not None and old._change.done())
                    await same_view(second.broker, old.broker)
                (side,) = (tmp_path / "0").glob("repair-*")
                assert b"".join(part.read_bytes() for part in sorted(side.iterdir())) == ours[kept:]

    run(main())


def test_a_promoted_slave_has_the_topics_of_its_log(run: Run, tmp_path: Path) -> None:
    """Those that were made since the tables were copied last, and none that was deleted before."""

    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            first = supervisor(pair, 0, "sync_master")
            second = supervisor(pair, 1, "slave", sync_first_ms=0, sync_interval_ms=3_600_000)
            async with first, second:
                await until(lambda: replicas(first) == 1)
                await until(lambda: replication(second.broker).sync.count == 1)
                assert first.broker.context is not None
                for topic in ("new", "deleted"):
                    assert (await response_of(first.broker, send(topic, queue_id=2))).code == 0
                first.broker.context.tables.topics.delete("deleted", 1)
                await replication(second.broker).sync.copy()
                assert (await response_of(first.broker, send("newer", queue_id=3))).code == 0
                await caught_up(first.broker, second.broker)
                await first.broker.close()
                await tool.promote(second.address, force=True)
                assert second.broker.context is not None
                topics = second.broker.context.tables.topics
                assert topics.find("deleted") is None
                assert not topics.is_without_queue("new", 2)
                assert not topics.is_without_queue("newer", 3)

    run(main())


def replicas(one: HaSupervisor) -> Any:
    """Slaves that have said how far they are."""
    assert one.broker.context is not None
    slaves = one.broker.context.replication.service.slaves()  # type: ignore[union-attr]
    return sum(slave.ack_offset >= 0 for slave in slaves)


def test_a_role_that_was_given_is_kept(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            async with supervisor(pair, 1, "slave") as one:
                with pytest.raises(NotPromotedError, match="has not met its master"):
                    await tool.promote(one.address)
                assert (await tool.status(one.address)).document()["lagBytes"] is None
                with pytest.raises(NotPromotedError, match="choose with --role"):
                    await tool.promote(one.address, force=True)
                done = await tool.promote(one.address, "ASYNC_MASTER", force=True)
                assert done.document()["brokerRole"] == "ASYNC_MASTER"
                assert (await response_of(one.broker, send("T"))).code == 0
                with pytest.raises(NotPromotedError, match="already"):
                    await tool.promote(one.address)
            async with supervisor(pair, 1, "slave") as again:
                assert (await tool.status(again.address)).status.master
                assert (await tool.demote(again.address, 3)).document()["role"] == "slave"

    run(main())


def test_promotion_reports_what_would_be_lost(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            first = supervisor(pair, 0, "async_master")
            behind, foremost = supervisor(pair, 1, "slave"), supervisor(pair, 2, "slave")
            async with first, behind, foremost:
                await until(lambda: replicas(first) == 2)
                await send_many(first.broker, 5)
                for slave in (behind, foremost):
                    await caught_up(first.broker, slave.broker)
                # It neither follows nor asks how far its master is.
                await replication(behind.broker).close()
                await send_many(first.broker, 5)
                await caught_up(first.broker, foremost.broker)
                await replication(foremost.broker).ha_client.close()
                await send_many(first.broker, 5)
                end = first.broker.store.max_offset
                assert await replication(foremost.broker).sync.fetch_master_end() == end
                await first.broker.close()
                lost = end - foremost.broker.store.max_offset
                with pytest.raises(NotPromotedError, match=f"had {lost} bytes more, which would be lost"):
                    await tool.promote(foremost.address)
                more = foremost.broker.store.max_offset - behind.broker.store.max_offset
                # It may have queried the end of the master's log by then; that is reported first.
                problem = f"{foremost.address} has {more} bytes more|its master had [0-9]+ bytes more"
                with pytest.raises(NotPromotedError, match=problem):
                    await tool.promote(behind.address)
                done = await tool.promote(foremost.address, force=True)
                assert done.document()["lostBytes"] == lost

    run(main())


def test_a_slave_that_began_with_the_last_file_is_not_promoted(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            first, second = supervisor(pair, 0, "async_master"), supervisor(pair, 1, "slave")
            async with first:
                await send_many(first.broker, 300, 5000)
                async with second:
                    await caught_up(first.broker, second.broker)
                    missing = second.broker.store.min_offset
                    assert missing > 0
                    assert (await tool.status(second.address)).document()["missingBytes"] == missing
                    await first.broker.close()
                    await until(lambda: replication(second.broker).ha_client.connection is None)
                    with pytest.raises(NotPromotedError, match=f"had {missing} bytes before this log begins"):
                        await tool.promote(second.address)
                    done = await tool.promote(second.address, force=True)
                    assert done.document()["lostBytes"] == missing

    run(main())


def test_a_port_that_was_taken_meanwhile_is_waited_for(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with brokers(tmp_path) as pair, admin(pair) as tool:
            one = supervisor(pair, 1, "slave")
            made, taken = one._make, socket.socket()
            attempts: list[int] = []

            def make(config: BrokerConfig, ha: HaConfig) -> Broker:
                attempts.append(config.port)
                if len(attempts) == 1:
                    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    taken.bind(("127.0.0.1", config.port))
                    taken.listen()
                else:
                    taken.close()
                return made(config, ha)

            async with one:
                one._make = make
                assert (await tool.promote(one.address, "ASYNC_MASTER", force=True)).status.master
                assert attempts == [int(one.address.rpartition(":")[2])] * 2
                assert (await response_of(one.broker, send("T"))).code == 0

    run(main())


def test_a_log_is_truncated_as_requested_and_the_bytes_are_kept(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        places = [store.put(Message("T", bytes(50_000), keys=f"k{n}")) for n in range(60)]
        whole = log_bytes(store)
    end = places[25].physical_offset
    side = truncate_log(tmp_path, end)
    assert side is not None
    kept = {int(part.name): part.read_bytes() for part in Path(side).iterdir()}
    assert min(kept) == end
    for offset, data in kept.items():
        assert data == whole[offset : offset + len(data)]
    assert max(offset + len(data) for offset, data in kept.items()) == len(whole)
    with StoreEngine.open(tmp_path, **SMALL) as store:
        assert log_bytes(store) == whole[:end]
        assert store.queue_range("T", 0).max_offset == 25
        assert store.query("T", "k24")
        assert not store.query("T", "k25")
        assert store.put(Message("T", b"next")).queue_offset == 25
    assert truncate_log(tmp_path, store_end(tmp_path)) is None


def store_end(path: Path) -> int:
    with StoreEngine.open(path, **SMALL) as store:
        return store.max_offset
