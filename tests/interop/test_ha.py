"""Masters and slaves crossed with RocketMQ's own: our master with a Java slave, a Java master with ours."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pyledger.broker.server import Broker
from pyledger.client import AsyncProducer, Message
from pyledger.net.loop import run
from pyledger.wire.codes import RequestCode
from pyledger.wire.offsets import ConsumerOffsetTable, DelayOffsetTable
from pyledger.wire.topic_config import SubscriptionGroupTable, TopicConfigTable
from tests.broker.peers import asked
from tests.ha.pair import Pair, brokers, replication, until
from tests.interop.peers import build, free_ports, run_alone, serving
from tests.net.peers import raw

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

FILES = {"mapped_file_size_bytes": 4 << 20}
COUNT = 300
ALL_KINDS = COUNT + 20 + 1 + 250
"""Messages in the end, the delayed one among them."""


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
    files = sorted((folder / "commitlog").glob("0*"))
    found = {file.name: file.read_bytes() for file in files}
    return {name: data.rstrip(b"\0") for name, data in found.items() if data.rstrip(b"\0")}


async def equal_logs(ours: Path, java: Path) -> None:
    """Wait until two logs have the same bytes."""
    async with asyncio.timeout(100):
        while not (found := await asyncio.to_thread(log_files, ours)) or found != log_files(java):
            await asyncio.sleep(0.2)


async def send_all_kinds(pair: Pair) -> None:
    """Messages of every kind that a log can hold, some large enough for a second file."""
    async with AsyncProducer("senders", pair.name_server.address) as producer:
        for number in range(COUNT):
            body = b"%d" % number + bytes(20_000 if number % 50 == 0 else 200)
            sent = await producer.send(Message("Crossed", body, tags="AB"[number % 2], keys=f"k{number}"))
            assert sent.status == "SEND_OK", sent
        await producer.send_batch([Message("Crossed", b"%d" % number) for number in range(20)])
        await producer.send(Message("Crossed", b"later", delay_level=1))
        for number in range(250):
            await producer.send(Message("Crossed", bytes(20_000), tags=str(number)))


def stored(one: Broker) -> int:
    """Messages of the topic that a broker has."""
    held = one.store.queues().items()
    return sum(found.max_offset for (topic, _), found in held if topic == "Crossed")


async def tables(port: int) -> list[Any]:
    """What slaves copy: topics, offsets, delays, groups."""
    async with raw(port) as client:
        answers = [
            await client.request(asked(code))
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


async def our_master(pair: Pair, role: str) -> Broker:
    """Our master on ports that a Java slave finds: it reads some tables two below the main one."""
    (port,) = free_ports(1)
    return await pair.start(0, role, store=FILES, port=port)


async def java_slave_follows(version: str, folder: Path, role: str) -> None:
    """Our master, a Java slave: equal logs; the slave comes back, and a consumer reads from it."""
    async with brokers(folder) as pair:
        master = await our_master(pair, role)
        async with java_broker(version, folder, pair, "SLAVE", 1, "--set", "slaveReadEnable=true"):
            assert master.parts is not None
            service = master.parts.replication.service  # type: ignore[union-attr]
            await until(lambda: any(one.ack_offset >= 0 for one in service.slaves()))
            await send_all_kinds(pair)
            await equal_logs(folder / "0", folder / "java")
        await send_more(pair, 20)
        async with java_broker(version, folder, pair, "SLAVE", 1, "--set", "slaveReadEnable=true"):
            await equal_logs(folder / "0", folder / "java")


async def send_more(pair: Pair, count: int) -> None:
    async with AsyncProducer("senders", pair.name_server.address) as producer:
        for number in range(count):
            await producer.send(Message("Crossed", b"more %d" % number))


async def our_slave_follows(version: str, folder: Path, role: str) -> None:
    """A Java master, our slave: equal logs and tables; the slave serves what the dead master had."""
    more = ("--set", "inSyncReplicas=2") if role == "SYNC_MASTER" and version.startswith("5") else ()
    async with brokers(folder) as pair:
        async with java_broker(version, folder, pair, role, 0, *more) as master_port:
            (slave_port,) = free_ports(1)
            slave = await pair.start(1, "slave", store=FILES, port=slave_port)
            await until(lambda: replication(slave).ha_client.connection is not None)
            await send_all_kinds(pair)
            await until(lambda: stored(slave) >= ALL_KINDS)
            await equal_logs(folder / "1", folder / "java")
            while await tables(master_port) != await tables(slave_port):
                await asyncio.sleep(0.5)
            count = stored(slave)
        consumed = await asyncio.to_thread(
            run_alone,
            version,
            "Consume",
            *("--namesrv", pair.name_server.address, "--topic", "Crossed", "--group", "readers"),
            *("--from", "first", "--expect", count, "--quiet", "--timeout", 60),
        )
        assert consumed[-1]["accepted"] == count


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
def test_java_slaves_follow_our_masters(tmp_path: Path, version: str, role: str) -> None:
    run(java_slave_follows(version, tmp_path, role))


@pytest.mark.parametrize(
    ("version", "role"),
    [
        ("5.3.3", "ASYNC_MASTER"),
        pytest.param("5.3.3", "SYNC_MASTER", marks=LIVE),
        pytest.param("4.9.7", "ASYNC_MASTER", marks=LIVE),
        pytest.param("4.9.7", "SYNC_MASTER", marks=LIVE),
    ],
)
def test_our_slave_follows_java_masters(tmp_path: Path, version: str, role: str) -> None:
    run(our_slave_follows(version, tmp_path, role))
