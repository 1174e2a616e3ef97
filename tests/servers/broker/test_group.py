"""Brokers whose log is that of a DLedger group: kill -9 of the leader loses nothing that was acknowledged."""

import asyncio
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pyledger.client.consumer.pull_consumer import AsyncPullConsumer
from pyledger.client.producer.producer import AsyncProducer
from pyledger.client.producer.send_result import SendStatus
from pyledger.config.broker import BrokerConfig
from pyledger.config.client import ClientConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.dledger_broker import DLedgerBrokerConfig
from pyledger.errors import ConfigError, CorruptRecordError, PyLedgerError, StoreFormatError
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.model.topic import TopicConfig
from pyledger.protocol.broker.delay_levels import Destination
from pyledger.servers.broker.dledger.member import Membership
from pyledger.servers.broker.tables import BrokerTables
from pyledger.servers.dledger.server import DLedgerServer
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from tests.servers.broker.group_process import group_of_brokers

if TYPE_CHECKING:
    from pyledger.servers.broker.context import BrokerContext

pytestmark = pytest.mark.timeout(300)


class Sending:
    """Sends numbered messages without end, again those that were refused; what was acknowledged is noted."""

    def __init__(self, producer: AsyncProducer) -> None:
        self.acknowledged: list[bytes] = []
        self._producer = producer
        self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        number = 0
        while True:
            number += 1
            body = b"%d" % number
            try:
                result = await self._producer.send(Message("T", body, keys=f"k{number}"))
            except PyLedgerError:
                await asyncio.sleep(0.01)
                continue
            if result.status is SendStatus.OK:
                self.acknowledged.append(body)

    async def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            assert not self._task.done()
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Send no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def consume(name_server: str, wanted: set[bytes]) -> Counter[bytes]:
    """What consumers get of the topic from its master, until all that is wanted was there."""
    seen: Counter[bytes] = Counter()
    async with AsyncPullConsumer("C", name_server) as consumer:
        while not wanted <= set(seen):
            seen.clear()
            try:
                for queue in await consumer.queues("T"):
                    at, end = 0, await consumer.max_offset(queue)
                    while at < end:
                        found = await consumer.pull(queue, at, broker_id=0)
                        seen.update(one.body for one in found.messages)
                        at = found.next_offset
            except PyLedgerError:
                await asyncio.sleep(0.05)  # on a slow machine the leader may change at any time
    return seen


def test_leaders_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_of_brokers(tmp_path) as group:
            await asyncio.gather(*(group.start(one) for one in group.ids))
            address = group.name_server.address
            producer = AsyncProducer("P", address, client=ClientConfig(poll_name_server_interval_ms=100))
            async with producer:
                sending = Sending(producer)
                await sending.more(50)
                leader = await group.lead()
                await group.end(leader, signal.SIGKILL)
                await group.lead(besides=leader)
                await sending.more(50)
                await group.start(leader)
                await sending.more(50)
                await sending.end()
            wanted = set(sending.acknowledged)
            await consume(address, wanted)
            for one in group.ids:
                await caught_up(tmp_path / one, wanted)
            for one in group.ids:
                await group.end(one, signal.SIGTERM)
            for one in group.ids:
                check_folder(tmp_path / one, wanted)

    asyncio.run(main())


async def caught_up(folder: Path, wanted: set[bytes]) -> None:
    """Wait until a member that runs has all that is wanted."""
    while not wanted <= await asyncio.to_thread(bodies, folder):
        await asyncio.sleep(0.05)


def test_a_new_leader_makes_topics_whose_table_did_not_come(tmp_path: Path) -> None:
    """Made by the leader before, just before it was killed. Older ones that are missing were deleted."""
    with StoreEngine.open(tmp_path, index_slots=100, index_entries=400) as store:
        store.put(Message("deleted", b"0", 7))
        before = Membership(cast("DLedgerServer", None), None)
        before._tables_where = store.max_offset
        for queue_id in (1, 3):
            store.put(Message("new", b"1", queue_id))
            waits = store.put(Message(names.HALF_TOPIC, b"2")).physical_offset
        tables = BrokerTables(BrokerConfig(store_path=str(tmp_path)), DeliveryConfig(), store, lambda: 0)
        topics, changes = tables.topics, []
        topics.update(TopicConfig("widened", 1, 1), 0)
        store.put(Message("widened", b"3", 2))
        context = cast(
            "BrokerContext",
            SimpleNamespace(
                store=store,
                tables=tables,
                puts=SimpleNamespace(leave=None),
                now_ms=lambda: 1,
                tables_changed=lambda: changes.append(topics.version),
            ),
        )
        slave = Membership(before._member, None, before)
        slave.restore_topics(context)
        assert topics.find("new") is None
        leader = Membership(before._member, 2, slave)
        leader.restore_topics(context)
        # As where the broker's port was taken, and another one starts with the tables of before.
        topics.topics.pop("new")
        leader.restore_topics(context)
        assert topics.find("new") == TopicConfig("new", 4, 4)
        assert topics.find("widened") == TopicConfig("widened", 3, 3)
        assert topics.find("deleted") is None
        assert leader.tables_where == store.confirmed_where
        for waited_at in (before.tables_where - 1, leader.tables_where):
            context.puts.leave(waited_at, Destination("deleted", 7))
        assert topics.find("deleted") is None
        context.puts.leave(waits, Destination("new", 6))
        context.puts.leave(waits, Destination("only waited", 0))
        context.puts.leave(waits, Destination("new", 2))
        assert topics.find("new") == TopicConfig("new", 7, 7)
        assert topics.find("only waited") == TopicConfig("only waited", 1, 1)
        assert len(changes) == 2


def test_log_outside_the_store_is_rejected_with_a_remedy() -> None:
    member = {"enabled": True, "group": "g", "peers": "n0-127.0.0.1:1", "self_id": "n0"}
    with pytest.raises(ConfigError, match="make dledger-n0/data in the store a link"):
        DLedgerBrokerConfig(**member, data_path="/disk2/log")  # type: ignore[arg-type]


def bodies(folder: Path) -> set[bytes]:
    """Of all messages of the topic in a folder; none while its log is being cut."""
    try:
        with StoreReader.open(folder) as reader:
            return {message.plain_body for message in reader.messages(topics=["T"])}
    except (CorruptRecordError, StoreFormatError):
        return set()


def check_folder(folder: Path, wanted: set[bytes]) -> None:
    """A member's folder as it was left in good order: sound, and with all that was acknowledged."""
    assert [problem for problem in verify(folder) if problem.severity != "note"] == []
    with StoreReader.open(folder) as reader:
        found = Counter(message.body for message in reader.messages(order="queue", topics=["T"]))
        assert wanted <= set(found)
        body = max(wanted)
        (message,) = reader.query("T", f"k{body.decode()}")
        assert message.body == body
        assert reader.message_by_id(message.msg_id).body == body
