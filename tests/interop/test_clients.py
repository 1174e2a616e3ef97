"""Our clients with RocketMQ's own servers, of both versions."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from pyledger.client import AsyncProducer, AsyncPushConsumer, Message, Producer, ReceivedMessage
from pyledger.model import names
from tests.client.scenarios import BASIC, FURTHER, Scenario, settle, timed_messages_wait, until
from tests.interop.cases import Place, bodies, once
from tests.interop.peers import RocketMQ
from tests.interop.side_by_side import Outcomes, chosen, side_by_side

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

SCENARIOS: dict[str, Scenario] = {one.__name__: one for one in (*BASIC, *FURTHER)}


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    rocketmq: RocketMQ,
    java_namesrv: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Outcomes]:
    """All scenarios with the servers of one version."""
    folder = tmp_path_factory.mktemp("offsets")

    def run(name: str) -> None:
        scenario = SCENARIOS[name]
        if scenario is timed_messages_wait and rocketmq.version.startswith("4."):
            pytest.skip("timer messages came with 5.0")
        asyncio.run(scenario(java_namesrv, name[:4] + rocketmq.version.replace(".", ""), str(folder)))

    chosen_names = chosen(request, "scenario", rocketmq=rocketmq.version)
    with side_by_side({name: partial(run, name) for name in chosen_names}) as found:
        yield found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_our_client(outcomes: Outcomes, scenario: str) -> None:
    outcomes.require(scenario)


def test_java_consumes_what_we_send(rocketmq: RocketMQ, java_namesrv: str) -> None:
    wanted = {}
    with Producer("senders", java_namesrv) as producer:
        for number in range(3):
            message = Message(
                "Sent", b"%d" % number, tags="A", keys=f"k{number}", properties={"colour": "red"}
            )
            wanted[producer.send(message).unique_key] = (1, "A", f"k{number}")
        batch = producer.send([Message("Sent", b"b%d" % number, tags="B") for number in range(4)])
        wanted |= dict.fromkeys(batch.unique_key.split(","), (2, "B", None))
        wanted[producer.send(Message("Sent", b"z" * 5000)).unique_key] = (5000, None, None)
    lines = Place(rocketmq, java_namesrv, "Sent").consume(len(wanted))
    received = [line for line in lines if line["event"] == "message"]
    assert {line["uniq"]: (line["size"], line["tags"], line["keys"]) for line in received} == wanted
    assert len(received) == len(wanted)
    assert {line["properties"]["colour"] for line in received if line["keys"]} == {"red"}


def test_java_replies_to_our_requests(rocketmq: RocketMQ, java_namesrv: str) -> None:
    place = Place(rocketmq, java_namesrv, "Asked")
    with Producer("askers", java_namesrv) as producer:
        producer.send(Message("Asked", b"m-0"))
        replier = rocketmq.start("Consume", *place.group(4, "--reply"))
        replier.until("ready")
        for number in range(3):
            reply = producer.request(Message("Asked", b"ask-%d" % number), timeout_ms=60_000)
            assert reply.body == b"re:ask-%d" % number
    assert bodies(replier.end()) == once(1) + once(3, "ask")


def test_we_reply_to_javas_requests(rocketmq: RocketMQ, java_namesrv: str) -> None:
    place = Place(rocketmq, java_namesrv, "AskedByJava")
    requested: Counter[bytes] = Counter()

    async def main() -> None:
        async with AsyncProducer("repliers", java_namesrv) as producer:

            async def listener(message: ReceivedMessage) -> None:
                requested[message.body] += 1
                if names.REPLY_TO_CLIENT in message.properties:
                    await producer.reply(message, b"re:" + message.body)

            await producer.send(Message(place.topic, b"first"))
            consumer = AsyncPushConsumer(
                "answering", java_namesrv, listener=listener, consume_from="first_offset"
            )
            consumer.subscribe(place.topic)
            async with consumer:
                await until(lambda: bool(requested), "the first message")
                options = ("--mode", "request", "--prefix", "ask", "--timeout", 60)
                lines = await asyncio.to_thread(place.produce, 3, *options)
                assert bodies(lines, "reply") == once(3, "re:ask")
                await settle()

    asyncio.run(main())
    assert requested == Counter([b"first", b"ask-0", b"ask-1", b"ask-2"])
