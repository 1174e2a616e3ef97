"""What peers can make of a broker's tables: nothing by what is refused, a limited amount by what succeeds."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import TopicConfig
from pyledger.servers.broker.processors import client_manage
from pyledger.servers.broker.server import Broker
from pyledger.servers.broker.table_file import TableFile
from pyledger.wire.remoting.bodies.heartbeat import Heartbeat, ProducerEntry
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.bodies.offsets import ConsumerOffsetTable
from pyledger.wire.remoting.bodies.topic_config import SubscriptionGroupTable, TopicConfigTable
from pyledger.wire.remoting.command import RemotingCommand
from tests.net.conftest import Run
from tests.servers.broker.peers import (
    COMMIT,
    WITH_SUBSCRIPTION,
    broker,
    heartbeat,
    make_request,
    peer,
    pull,
    send,
)
from tests.servers.broker.test_pop import pop


def commit(group: str, topic: str = "T", queue_id: int = 0, offset: int = 1) -> RemotingCommand:
    """A consumer's commit."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    return make_request(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)


def sent_back(group: str, offset: int) -> RemotingCommand:
    """A consumer's message that comes back."""
    fields = {"offset": offset, "group": group, "delayLevel": 0}
    return make_request(RequestCode.CONSUMER_SEND_MSG_BACK, **fields)


REFUSED = {
    "commit, no topic": commit("new", "absent"),
    "commit, no queue": commit("new", "T", 4000),
    "commit, no offset": commit("new", "T", offset=-1),
    "pull, no topic": pull("absent", consumer_group="new"),
    "pull, no queue": pull("T", 4000, consumer_group="new"),
    "pull, no subscription": pull("T", flags=0, consumer_group="new"),
    "pull, bad subscription": pull("T", subscription="a |", expression_type="SQL92", consumer_group="new"),
    "pop, no topic": pop("absent", consumerGroup="new"),
    "pop, no queue": pop("T", consumerGroup="new", queueId=4000),
    "pop, bad subscription": pop("T", consumerGroup="new", expType="SQL92", exp="a |"),
    "send back, no message": sent_back("new", 1 << 40),
    "send, no queue": send("new", queue_id=4000),
    "send, no group": send("%RETRY%a b", default_topic="none"),
    "send, retry batch": send("%RETRY%new", batch=True, code=RequestCode.SEND_BATCH_MESSAGE),
    "leave": make_request(RequestCode.UNREGISTER_CLIENT, clientID="c", consumerGroup="new"),
}


def names_in(one: Broker) -> tuple[set[str], set[str]]:
    return set(one.context.tables.topics.topics), set(one.context.tables.groups.groups)


@pytest.mark.parametrize("road", REFUSED)
def test_rejected_request_creates_nothing(run: Run, tmp_path: Path, road: str) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            assert (await client.request(send("T"))).code == ResponseCode.SUCCESS
            before = names_in(one)
            answer = await client.request(REFUSED[road])
            assert answer.code != ResponseCode.SUCCESS or road == "leave"
            assert names_in(one) == before
            assert not one.context.tables.consumers.pulled

    run(main())


def test_groups_are_created_up_to_a_limit(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with broker(tmp_path) as first, peer(first) as client:
            assert (await client.request(send("T"))).code == ResponseCode.SUCCESS
            room = len(first.context.tables.groups.groups) + 3
        async with broker(tmp_path, delivery={"auto_created_groups_max": room}) as one, peer(one) as client:
            groups = one.context.tables.groups
            for name in ("one", "two", "three"):
                assert (await client.request(commit(name))).code == ResponseCode.SUCCESS
            for request in (
                commit("four"),
                pull("T", consumer_group="four"),
                pop("T", consumerGroup="four"),
                sent_back("four", 0),
                send("%RETRY%four"),
            ):
                answer = await client.request(request)
                assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, answer
            await client.request(heartbeat("c", "T"))
            assert len(groups.groups) == room
            assert "%RETRY%four" not in one.context.tables.topics.topics
            # Those that stand go on, and an operator makes others.
            assert (await client.request(commit("one", offset=0))).code == ResponseCode.SUCCESS
            assert groups.update(SubscriptionGroup("five"), 0) is None
            assert (await client.request(commit("five"))).code == ResponseCode.SUCCESS

    run(main())
    assert caplog.text.count("no group is created by its use any more") == 1


def test_topics_are_created_up_to_a_limit(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            assert (await client.request(send("one"))).code == ResponseCode.SUCCESS
            count = len(one.context.tables.topics.topics)
        async with broker(tmp_path, delivery={"auto_created_topics_max": count}) as one, peer(one) as client:
            assert (await client.request(send("two"))).code == ResponseCode.TOPIC_NOT_EXIST
            assert (await client.request(send("one"))).code == ResponseCode.SUCCESS
            assert len(one.context.tables.topics.topics) == count

    run(main())


def test_offsets_are_kept_up_to_a_limit(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path, delivery={"consumer_offsets_max": 2}) as one, peer(one) as client:
            assert (await client.request(send("T"))).code == ResponseCode.SUCCESS
            offsets = one.context.tables.offsets
            for queue_id in range(2):
                assert (await client.request(commit("g", "T", queue_id))).code == ResponseCode.SUCCESS
            answer = await client.request(commit("g", "T", 2))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "consumer_offsets_max" in (answer.remark or "")
            await client.request(pull("T", 3, consumer_group="g", sys_flag=WITH_SUBSCRIPTION | COMMIT))
            assert (await client.request(commit("g", "T", 0, 7))).code == ResponseCode.SUCCESS
            assert offsets.offsets["T", "g"] == {0: 7, 1: 1}
            offsets.delete_group("g")
            assert (await client.request(commit("g", "T", 2))).code == ResponseCode.SUCCESS

    run(main())


def test_a_connection_joins_a_limited_number_of_groups(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_manage, "GROUPS_OF_CONNECTION_MAX", 10)

    def joining(client_id: str, *numbers: int) -> RemotingCommand:
        entries = tuple(ProducerEntry(group_name=f"p{number}") for number in numbers)
        said = Heartbeat(client_id=client_id, producer_data_set=entries)
        return RemotingCommand.request(RequestCode.HEART_BEAT, body=said.encode())

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            producers = one.context.tables.producers
            for number in range(10):
                answer = await client.request(joining(f"c{number}", number))
                assert answer.code == ResponseCode.SUCCESS
            assert (await client.request(joining("c", *range(10)))).code == ResponseCode.SUCCESS
            assert (await client.request(joining("c", 10))).code == ResponseCode.SYSTEM_ERROR
            assert len(producers.groups) == 10
            assert set(producers.by_client_id) == {"c"}, "names that it does not use any more"

    run(main())


TABLES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigTable,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupTable,
    RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetTable,
}


@pytest.mark.parametrize("code", TABLES)
def test_whole_tables_are_made_in_a_thread(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    encode, threads = Body.encode, list[int]()

    def noted(body: Body, **options: bool) -> bytes:
        if isinstance(body, TABLES[code]):
            threads.append(threading.get_ident())
        return encode(body, **options)

    monkeypatch.setattr(Body, "encode", noted)

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as client:
            tables = one.context.tables
            for number in range(300):
                tables.topics.topics[f"t{number}"] = TopicConfig(f"t{number}", 1, 1)
                tables.groups.groups[f"g{number}"] = SubscriptionGroup(f"g{number}")
                tables.offsets.adopt(f"g{number}", f"t{number % 50}", 0, number)
            body = TABLES[code].decode((await client.request(make_request(code))).body)
            assert threads
            assert threading.get_ident() not in threads, "the event loop's"
            if isinstance(body, TopicConfigTable):
                assert body.topic_config_table.keys() == tables.topics.topics.keys()
            elif isinstance(body, SubscriptionGroupTable):
                assert body.subscription_group_table.keys() == tables.groups.groups.keys()
            elif isinstance(body, ConsumerOffsetTable):
                assert body.offset_table["t7@g7"] == {0: 7}
                assert sum(map(len, body.group_topic_map.values())) == len(body.offset_table) == 300
            # The same again is not made again; what has changed is in the next one.
            await client.request(make_request(code))
            assert len(threads) == 1
            tables.offsets.commit("g7", "t7", 0, 8, 0)
            again = TABLES[code].decode((await client.request(make_request(code))).body)
            if isinstance(again, ConsumerOffsetTable):
                assert again.offset_table["t7@g7"] == {0: 8}

    run(main())


class Slow:
    """A table that takes long to be written, in processor time."""

    def __init__(self) -> None:
        self.edition = 0
        self.written: list[int] = []
        self.ended_s = self.cost_s = 0.0
        self.rests: list[float] = []
        """After each write but the last, in times of its cost."""

    def write(self, _folder: Path) -> None:
        if self.written:
            self.rests.append((time.monotonic() - self.ended_s) / self.cost_s)
        begun_s = time.thread_time()
        while time.thread_time() - begun_s < 0.05:
            pass
        self.written.append(self.edition)
        self.ended_s, self.cost_s = time.monotonic(), time.thread_time() - begun_s


def test_a_table_rests_between_writes(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        table = Slow()
        file = TableFile(tmp_path, lambda: table.edition, lambda: table)
        for _ in range(3):
            table.edition += 1
            await file.save()
        assert min(table.rests) > 3.5

        async def change() -> None:
            table.edition += 1
            await file.save()

        await asyncio.gather(*(change() for _ in range(20)))
        assert table.written[-1] == table.edition
        assert len(table.written) == 4, "those that wait share a write"

    run(main())
