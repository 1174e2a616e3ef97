"""Masters and slaves crossed with RocketMQ's own: our master with a Java slave, a Java master with ours."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.ha import HaConfig
from pyledger.config.store import StoreConfig
from pyledger.model.message import Message
from pyledger.model.remoting_codes import RequestCode
from pyledger.net.loop import run
from pyledger.protocol.ha.slave import FRAME_HEADER
from pyledger.servers.broker.server import Broker
from pyledger.servers.broker.supervisor.ha_supervisor import HaSupervisor
from pyledger.store.files.config_files import DelayOffsets
from pyledger.store.messages.message_store import MessageStore
from pyledger.wire.remoting.bodies.offsets import ConsumerOffsetTable, DelayOffsetTable
from pyledger.wire.remoting.bodies.topic_config import SubscriptionGroupTable, TopicConfigTable
from tests.interop.peers import PEER_VERSIONS, Peers, RocketMQ, build, serving
from tests.net.peers import raw
from tests.servers.broker.peers import make_request
from tests.servers.ha.consumer_view import consumer_view, differences, same_for_consumers
from tests.servers.ha.link import linked
from tests.servers.ha.pair import QUICK, SMALL, Pair, brokers, port_of, replication, until
from tests.support.ports import free_ports

LIMIT_S = 300
pytestmark = [pytest.mark.java, pytest.mark.timeout(LIMIT_S)]

FILES = {"mapped_file_size_bytes": 4 << 20}
HEADER = FRAME_HEADER.size
LARGE = ("--size", 20_000, "--compress-over", 1 << 30)
KINDS: tuple[tuple[object, ...], ...] = (
    ("--count", 60, "--size", 200, "--tags", "A,B", "--property", "k=v-%i"),
    ("--count", 20, "--mode", "batch"),
    ("--count", 20, "--mode", "orderly"),
    ("--count", 5, "--size", 30_000),
    ("--count", 1, "--delay-level", 1),
    ("--count", 250, "--mode", "async", *LARGE),
)
"""What a Java client sends, some of it large enough for a second file; bodies above 4 KiB are compressed."""
ALL_KINDS = sum(int(str(kind[1])) for kind in KINDS) + 2
"""Messages in the end, the delayed one and two transactions among them."""


@asynccontextmanager
async def java_broker(
    version: str, folder: Path, pair: Pair, role: str, number: int, *settings: str
) -> AsyncIterator[int]:
    """A broker of RocketMQ in the pair's name; its port."""
    build(version)
    (port,) = free_ports(1)
    options = ("--role", role, "--broker-id", number, "--name", "broker-a", "--small", *settings)
    where = ("--port", port, "--namesrv", pair.name_server.address, "--store", folder / "java")
    server = serving(version, "Broker", *where, *options, log=folder / "java.log")
    await asyncio.to_thread(server.__enter__)
    try:
        yield port
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


def log_files(folder: Path) -> dict[str, bytes]:
    """The files of a log without the zeroes behind its end."""
    found = {}
    for file in sorted((folder / "commitlog").glob("0*")):
        # A file that lies ready for what comes goes when its store is closed.
        with contextlib.suppress(FileNotFoundError):
            found[file.name] = file.read_bytes().rstrip(b"\0")
    return {name: data for name, data in found.items() if data}


async def equal_logs(ours: Path, java: Path) -> None:
    """Wait until two logs have the same bytes."""
    async with asyncio.timeout(100):
        while not (found := await asyncio.to_thread(log_files, ours)) or found != log_files(java):
            await asyncio.sleep(0.2)


async def send_all_kinds(java: RocketMQ, pair: Pair) -> None:
    """Messages of every kind that a log can hold, from a Java client."""
    where = ("--namesrv", pair.name_server.address, "--topic", "Crossed", "--quiet")
    for kind in KINDS:
        await asyncio.to_thread(java.run, "Produce", *where, *kind, "--timeout", 120)
    plan = ("--count", 3, "--plan", "commit,rollback,commit")
    await asyncio.to_thread(java.run, "Transaction", *where, *plan)


async def send_more(java: RocketMQ, pair: Pair, count: int) -> None:
    where = ("--namesrv", pair.name_server.address, "--topic", "Crossed", "--quiet")
    await asyncio.to_thread(java.run, "Produce", *where, "--count", count)


def stored(one: Broker) -> int:
    """Messages of the topic that a broker has."""
    held = one.store.queues().items()
    return sum(found.max_offset for (topic, _), found in held if topic == "Crossed")


async def tables(port: int) -> list[Any]:
    """What slaves copy: topics, offsets, delays, groups."""
    async with raw(port) as client:
        answers = [
            await client.request(make_request(code))
            for code in (
                RequestCode.GET_ALL_TOPIC_CONFIG,
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                RequestCode.GET_ALL_DELAY_OFFSET,
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            )
        ]
    return [
        TopicConfigTable.decode(answers[0].body).topic_config_table,
        ConsumerOffsetTable.decode(answers[1].body).offset_table if answers[1].code == 0 else {},
        DelayOffsetTable.decode(answers[2].body).offset_table if len(answers[2].body) else {},
        SubscriptionGroupTable.decode(answers[3].body).subscription_group_table,
    ]


async def slave_tables(version: str, port: int, folder: Path) -> list[Any]:
    """The same of a Java slave: one of 4.9 writes how far delays are to a file alone, for its next start."""
    found = await tables(port)
    if version.startswith("4."):
        found[2] = DelayOffsets.read(folder / "java" / "config").offsets
    return found


async def our_master(pair: Pair, role: str) -> Broker:
    """Our master on ports that a Java slave finds: it reads some tables two below the main one."""
    (port,) = free_ports(1)
    return await pair.start(0, role, store=FILES, port=port)


async def java_slave_follows(java: RocketMQ, folder: Path, role: str) -> None:
    """Our master, a Java slave: equal logs, also after either was away."""
    version = java.version
    async with brokers(folder) as pair:
        master = await our_master(pair, role)
        async with java_broker(version, folder, pair, "SLAVE", 1, "--set", "slaveReadEnable=true"):
            await until(lambda: followed(master))
            await send_all_kinds(java, pair)
            await until(lambda: stored(master) >= ALL_KINDS)
            await equal_logs(folder / "0", folder / "java")
        if role == "async_master":
            await send_more(java, pair, 20)
        async with java_broker(version, folder, pair, "SLAVE", 1, "--set", "slaveReadEnable=true"):
            await until(lambda: followed(master))
            await master.close()
            master = await pair.start(0, role, store=FILES, port=int(master.address.rpartition(":")[2]))
            await until(lambda: followed(master))
            await send_more(java, pair, 20)
            await equal_logs(folder / "0", folder / "java")


def followed(master: Broker) -> bool:
    """Whether a slave has said how far it is."""
    assert master.context is not None
    service = master.context.replication.service  # type: ignore[union-attr]
    return any(one.ack_offset >= 0 for one in service.slaves())


async def java_slave_serves(java: RocketMQ, folder: Path) -> None:
    """A Java slave has our master's tables, as soon as it asks, and gives consumers what the master had."""
    async with brokers(folder) as pair:
        master = await our_master(pair, "async_master")
        master_port = int(master.address.rpartition(":")[2])
        more = ("--set", "slaveReadEnable=true")
        async with java_broker(java.version, folder, pair, "SLAVE", 1, *more) as slave_port:
            await until(lambda: followed(master))
            await send_all_kinds(java, pair)
            await until(lambda: stored(master) >= ALL_KINDS)
            await asyncio.to_thread(java.run, *consume(pair, "early", 100))
            while await tables(master_port) != await slave_tables(java.version, slave_port, folder):
                await asyncio.sleep(1)
            seen = await same_for_consumers(master_port, slave_port, tables=False)
            count = stored(master)
            await master.close()
            alone = await consumer_view(slave_port)
            assert not differences(seen.of_topic("Crossed"), alone.of_topic("Crossed"), tables=False)
            (*_, summary) = await asyncio.to_thread(java.run, *consume(pair, "late", count))
            assert summary["accepted"] == count


def consume(pair: Pair, group: str, expect: int) -> tuple[object, ...]:
    """A Java consumer that reads all from the first message on."""
    where = ("--namesrv", pair.name_server.address, "--topic", "Crossed", "--group", group)
    return ("Consume", *where, "--from", "first", "--expect", expect, "--quiet", "--timeout", 120)


async def our_slave_follows(java: RocketMQ, folder: Path, role: str) -> None:
    """A Java master, our slave: equal logs and tables; the slave serves what the dead master had."""
    version = java.version
    more = ("--set", "inSyncReplicas=2") if role == "SYNC_MASTER" and version.startswith("5") else ()
    async with brokers(folder) as pair:
        async with java_broker(version, folder, pair, role, 0, *more) as master_port:
            (slave_port,) = free_ports(1)
            slave = await pair.start(1, "slave", store=FILES, port=slave_port)
            await until(lambda: replication(slave).ha_client.connection is not None)
            await send_all_kinds(java, pair)
            await until(lambda: stored(slave) >= ALL_KINDS)
            await equal_logs(folder / "1", folder / "java")
            while await tables(master_port) != await tables(slave_port):
                await asyncio.sleep(0.5)
            seen = await same_for_consumers(master_port, slave_port)
            count = stored(slave)
        alone = await consumer_view(slave_port)
        assert not differences(seen.of_topic("Crossed"), alone.of_topic("Crossed"))
        # The master is gone: a consumer reads at the slave, and goes on when the master has come back.
        consumer = java.start(*consume(pair, "readers", count + 20))
        await until(lambda: read_by(slave, "readers") >= count)
        async with java_broker(version, folder, pair, role, 0, *more):
            await until(lambda: replication(slave).ha_client.connection is not None)
            await send_more(java, pair, 20)
            (*_, summary) = await asyncio.to_thread(consumer.end)
        assert summary["accepted"] == count + 20


def read_by(one: Broker, group: str) -> int:
    """How much of the topic a group has consumed, as it has said at a broker."""
    assert one.context is not None
    offsets = one.context.tables.offsets.offsets.get(("Crossed", group), {})
    return sum(offsets.values())


def slave_config(pair: Pair, ha_address: str) -> HaSupervisor:
    """Our slave in the pair's name, which goes on after its log was cut; it follows through a link."""
    config = BrokerConfig(
        port=0, broker_id=1, name_servers=pair.name_server.address, store_path=str(pair.folder / "1")
    )
    ha = HaConfig(role="slave", master_address=ha_address, **QUICK)  # type: ignore[arg-type]

    def make(config: BrokerConfig, ha: HaConfig) -> Broker:
        store = StoreConfig(**{**SMALL, **FILES})  # type: ignore[arg-type]
        return Broker(config, delivery=DeliveryConfig(slave_read=True), store=store, ha=ha)

    return HaSupervisor(make, config, ha)


async def our_slave_in_trouble(java: RocketMQ, folder: Path) -> None:
    """The link to a Java master is cut within headers and frames and stands still; our slave is away, joins
    anew without anything, and has records that the master never had: in the end it has the master's log."""
    version = java.version
    async with (
        brokers(folder) as pair,
        java_broker(version, folder, pair, "ASYNC_MASTER", 0) as port,
        linked(port + 1) as link,
    ):
        link.cuts += [lambda _: HEADER - 3, lambda _: HEADER + 100, lambda _: 50_001]
        async with slave_config(pair, link.address) as slave:
            await send_all_kinds(java, pair)
            await equal_logs(folder / "1", folder / "java")
            assert link.connections > 3
            link.carries.clear()
            await send_more(java, pair, 30)
            link.carries.set()
            await equal_logs(folder / "1", folder / "java")
            end = slave.broker.store.max_offset
        await send_more(java, pair, 20)
        async with slave_config(pair, link.address):
            await equal_logs(folder / "1", folder / "java")
        with MessageStore.open(folder / "1", **{**SMALL, **FILES}) as store:
            assert store.max_offset > end
            wrong = store.put(Message("Crossed", b"never at the master", tags="Lost"))
        async with slave_config(pair, link.address):
            await send_more(java, pair, 5)
            await equal_logs(folder / "1", folder / "java")
        (kept,) = (folder / "1").glob("repair-*")
        assert sum(part.stat().st_size for part in kept.iterdir()) == wrong.size_bytes
        shutil.rmtree(folder / "1")
        async with slave_config(pair, link.address) as slave:
            await until(lambda: slave.broker.store.max_offset > end)
            await until(lambda: newest_files(folder / "1") == newest_files(folder / "java"))
            seen = await same_for_consumers(port, port_of(slave.broker), tables=False)
            assert seen.log_start == slave.broker.store.min_offset > 0


def newest_files(folder: Path) -> tuple[str, bytes]:
    """The last file of a log that has anything: an empty slave begins there."""
    return max(log_files(folder).items(), default=("", b""))


def play(story: Coroutine[Any, Any, None]) -> None:
    """Run a story. It ends itself, and so its servers: a signal would end nothing in the loop."""
    run(asyncio.wait_for(story, LIMIT_S - 20))


LIVE = pytest.mark.live


@pytest.mark.parametrize(
    ("version", "role"),
    [
        ("5.3.3", "sync_master"),
        ("4.9.7", "async_master"),
        pytest.param("5.3.3", "async_master", marks=LIVE),
        pytest.param("4.9.7", "sync_master", marks=LIVE),
    ],
)
def test_java_slaves_follow_our_masters(peers: Peers, tmp_path: Path, version: str, role: str) -> None:
    play(java_slave_follows(peers(version), tmp_path, role))


@pytest.mark.parametrize(
    ("version", "role"),
    [
        ("5.3.3", "ASYNC_MASTER"),
        pytest.param("5.3.3", "SYNC_MASTER", marks=LIVE),
        pytest.param("4.9.7", "ASYNC_MASTER", marks=LIVE),
        ("4.9.7", "SYNC_MASTER"),
    ],
)
def test_our_slave_follows_java_masters(peers: Peers, tmp_path: Path, version: str, role: str) -> None:
    play(our_slave_follows(peers(version), tmp_path, role))


@pytest.mark.live
@pytest.mark.parametrize("version", PEER_VERSIONS)
def test_java_slaves_serve_what_our_masters_had(peers: Peers, tmp_path: Path, version: str) -> None:
    play(java_slave_serves(peers(version), tmp_path))


@pytest.mark.parametrize("version", ["5.3.3", pytest.param("4.9.7", marks=LIVE)])
def test_our_slave_comes_out_of_trouble(peers: Peers, tmp_path: Path, version: str) -> None:
    play(our_slave_in_trouble(peers(version), tmp_path))
