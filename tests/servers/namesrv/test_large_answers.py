"""Answers about all topics and brokers: their content, and that other clients need not wait for them."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.route import BrokerIdentity, QueueRoute, Registration
from pyledger.model.topic import DataVersion, Permission
from pyledger.net.remoting.large_answers import LargeAnswers
from pyledger.protocol.namesrv.route_table import RouteTable
from pyledger.servers.namesrv.topic_list import topic_list
from pyledger.wire.remoting.bodies.topic_config import TopicList
from tests.net.conftest import Run
from tests.servers.broker.peers import make_request
from tests.servers.namesrv.peers import name_server, peer, topics_of

UNIT, SUBSCRIPTION = 1, 2
TOPICS = 30_000
LISTS: dict[RequestCode, dict[str, str]] = {
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
    RequestCode.GET_TOPICS_BY_CLUSTER: {"cluster": "c0"},
    RequestCode.GET_UNIT_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {},
}


def fill(table: RouteTable, brokers: int, topics: int, flags: int = 0) -> None:
    """Register brokers of two clusters that have topics in common, one in ten with flags."""
    for number in range(brokers):
        identity = BrokerIdentity(f"c{number % 2}", f"b{number}", f"10.0.0.{number}:1", 0)
        held = {
            f"topic-{at}": QueueRoute(f"b{number}", 4, 4, Permission(6), 0 if at % 10 else flags)
            for at in range(number * topics // 4, number * topics // 4 + topics)
        }
        table.register(Registration(identity, held, DataVersion()), f"channel {number}", 0)


def names_of(table: RouteTable, wanted: Any) -> tuple[str, ...]:
    """The names of topics of which some queues are wanted."""
    names = {name for part in table.topics() for name in part}
    routes = {name: table.route(name) for name in names}
    return tuple(sorted(name for name, one in routes.items() if one is not None and wanted(one)))


def test_lists_agree_with_the_routes(run: Run, tmp_path: Path) -> None:
    wanted = [
        lambda _: True,
        lambda route: any(one.cluster == "c0" for one in route.brokers),
        lambda route: route.queues[0].sys_flag & UNIT,
        lambda route: route.queues[0].sys_flag & SUBSCRIPTION,
        lambda route: route.queues[0].sys_flag == SUBSCRIPTION,
    ]

    async def main() -> None:
        for flags in (0, UNIT, SUBSCRIPTION, UNIT | SUBSCRIPTION):
            async with name_server(tmp_path) as server, peer(server) as client:
                fill(server.routes, 3, 2_500, flags)
                for (code, fields), one in zip(LISTS.items(), wanted, strict=True):
                    answer = await client.request(make_request(code, **fields))
                    expected = TopicList(topic_list=names_of(server.routes, one)).encode()
                    assert bytes(answer.body) == expected
                server.routes.delete_topic("topic-0")
                answer = await client.request(make_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
                expected = TopicList(topic_list=tuple(topics_of(server))).encode()
                assert bytes(answer.body) == expected
                answer = await client.request(
                    make_request(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="unknown")
                )
                assert bytes(answer.body) == b'{"topicList":[]}'

    run(main())


@pytest.mark.parametrize("code", LISTS)
def test_others_are_answered_while_one_is_made(run: Run, tmp_path: Path, code: RequestCode) -> None:
    async def main() -> None:
        async with name_server(tmp_path) as server, peer(server) as client, peer(server) as other:
            fill(server.routes, 2, TOPICS)
            task = asyncio.create_task(client.request(make_request(code, **LISTS[code])))
            answered = 0
            while not task.done():
                answer = await other.request(make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="absent"))
                assert answer.code == ResponseCode.TOPIC_NOT_EXIST
                answered += 1
            assert task.result().code == ResponseCode.SUCCESS
            assert answered >= TOPICS // 2_500

    run(main())


def test_requests_for_the_same_answer_share_it(run: Run) -> None:
    async def main() -> None:
        table, made = RouteTable(), 0
        answers = LargeAnswers(lambda: table.generation)

        def make() -> Awaitable[bytes]:
            nonlocal made
            made += 1
            return topic_list([[f"made {made}"]])

        async def ask(count: int) -> set[bytes]:
            return set(await asyncio.gather(*(answers.body("key", make) for _ in range(count))))

        assert await ask(50) == {b'{"topicList":["made 1"]}'}
        assert await ask(50) == {b'{"topicList":["made 1"]}'}
        table.generation += 1
        first = asyncio.create_task(answers.body("key", make))
        await asyncio.sleep(0)
        # It has begun; later requests must not get an older state.
        table.generation += 1
        assert await ask(50) == {b'{"topicList":["made 3"]}'}
        assert await first == b'{"topicList":["made 2"]}'

    run(main())
