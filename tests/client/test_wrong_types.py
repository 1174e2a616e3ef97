"""Values of a wrong type in messages, queues and entries: the error names the field and what to give."""

from typing import Any

import pytest

from pyledger.client import AsyncAdmin, AsyncLitePullConsumer, AsyncProducer, AsyncPullConsumer
from pyledger.errors import ConfigError, IllegalMessageError
from pyledger.model.message import Message
from tests.client.peers import cluster
from tests.net.conftest import Run

FIELDS: dict[str, Any] = {
    "tags": 5,
    "keys": ["a", "b"],
    "properties": "a=b",
    "flag": None,
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_message_with_a_field_of_another_type_is_not_sent(run: Run, name: str) -> None:
    async def main() -> None:
        async with cluster("broker-a") as peers, AsyncProducer("G", peers.address) as producer:
            wrong = Message("Orders", b"one", **{name: FIELDS[name]})
            for given in (wrong, [Message("Orders", b"one"), wrong]):
                with pytest.raises(IllegalMessageError, match=rf"message\.{name}: .* is of type"):
                    await producer.send(given)
                with pytest.raises(IllegalMessageError, match=rf"message\.{name}: "):
                    producer.submit(given)

    run(main())


@pytest.mark.parametrize("given", [5, "text", b"text", ["text"], object()])
def test_what_is_no_message_is_not_sent(run: Run, given: Any) -> None:
    async def main() -> None:
        async with cluster("broker-a") as peers, AsyncProducer("G", peers.address) as producer:
            for call in (producer.send, producer.request, producer.send_oneway):
                with pytest.raises(IllegalMessageError, match=r"is of type .*; give a Message"):
                    await call(given)
            with pytest.raises(IllegalMessageError, match=r"is of type .*; give a Message"):
                producer.submit(given)

    run(main())


@pytest.mark.parametrize("name", ["queue", "select", "sharding_key"])
def test_an_argument_of_a_send_with_another_type_is_named(run: Run, name: str) -> None:
    async def main() -> None:
        async with cluster("broker-a") as peers, AsyncProducer("G", peers.address) as producer:
            wrong: dict[str, Any] = {name: 5}
            with pytest.raises(ConfigError, match=f"^{name}: 5 is of type int"):
                await producer.send(Message("Orders", b"one"), **wrong)

    run(main())


def test_what_is_no_queue_or_topic_is_named(run: Run) -> None:
    async def main() -> None:
        name: Any = "Orders"
        async with (
            cluster("broker-a") as peers,
            AsyncPullConsumer("P", peers.address) as puller,
            AsyncLitePullConsumer("L", peers.address) as poller,
            AsyncAdmin(peers.address) as admin,
        ):
            for call in (
                puller.pull(name, 0), puller.commit(name, 0), puller.max_offset(name), poller.seek(name, 0),
                poller.seek_to_begin(name), poller.committed_offset(name), poller.assign(name),
                admin.create_topic(name), admin.create_group(name),
            ):  # fmt: skip
                with pytest.raises(ConfigError, match="is of type str; give a value of type"):
                    await call
            with pytest.raises(ConfigError, match="queues: 'Orders' is of type str"):
                poller.pause_queues([name])

    run(main())
