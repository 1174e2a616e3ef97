"""Sends and pulls answered natively against the processors that they bypass: same records, same answers."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyledger.broker.server import Broker
from pyledger.wire.codes import RequestCode
from pyledger.wire.remoting import RemotingCommand, SerializeType
from tests.broker.peers import SUSPEND, WITH_SUBSCRIPTION, broker, heartbeat, peer, pull, send
from tests.broker.test_messages import bodies
from tests.net.conftest import Run

NAMES = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "MYDELAY", "CLUSTER", "POP_CK", "XWAIT", "a"]
)
VALUES = st.sampled_from(["A", "false", "true", "0", "k1 k2", "ü"])


async def sent(one: Broker, command: RemotingCommand) -> tuple[RemotingCommand, dict[str, Any] | None]:
    """The answer to a send, and the message as it is stored."""
    async with peer(one) as client:
        answer = await client.request(command)
    if answer.code:
        return answer, None
    offset = int(answer.ext_fields["msgId"][16:], 16)
    if one.store.config.flush_disk_type == "sync":
        # One that does not wait for its flush cannot be read before.
        assert one.store.wait_flushed(offset + 1, 10_000)
    found = one.store.message_at(offset)
    facts = (
        "topic",
        "queue_id",
        "body",
        "properties",
        "flag",
        "sys_flag",
        "reconsume_times",
        "born_timestamp",
    )
    return answer, {name: getattr(found, name) for name in facts}


def meaning(answer: RemotingCommand) -> tuple[Any, ...]:
    """What an answer says beside where the message stands."""
    fields = {k: v for k, v in answer.ext_fields.items() if k not in {"msgId", "queueOffset"}}
    return answer.code, answer.remark, fields, answer.opaque, answer.flag


def slowly(one: Broker) -> Any:
    """Switch the quick path off; returns what switches it on again."""
    quick, one._quick = one._quick, None
    return quick


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_quick_send_stores_and_answers_what_the_processor_would(run: Run, tmp_path: Path, flush: str) -> None:
    async def main() -> None:
        async with broker(tmp_path, store={"flush_disk_type": flush}) as one:
            await sent(one, send("T"))

            async def compare(command: RemotingCommand) -> None:
                quick = slowly(one)
                expected, stored = await sent(one, command)
                one._quick = quick
                answer, record = await sent(one, command)
                assert meaning(answer) == meaning(expected)
                assert record == stored

            for serialize in SerializeType:
                for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
                    command = send("T", b"x" * 300, code=code, flag=7, properties={"TAGS": "A", "ü": "ö"})
                    command.serialize, command.opaque = serialize, -5
                    await compare(command)
            await compare(send("T", queue_id=99))
            await compare(send("Unheard/of"))
            await compare(send("SCHEDULE_TOPIC_XXXX"))
            await compare(send("T", properties={"DELAY": "3"}))
            await compare(send("T", properties={"MYDELAY": "3", "WAIT": "false"}))
            await compare(send("T", b""))
            await compare(send("T", b"x" * (4 << 20)))

    run(main())


def test_any_properties_are_stored_alike(run: Run, tmp_path: Path) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(pairs=st.lists(st.tuples(NAMES, VALUES), max_size=6), closed=st.booleans())
    @example(pairs=[("UNIQ_KEY", "U"), ("DELAY", "0")], closed=False)
    def alike(pairs: list[tuple[str, str]], closed: bool) -> None:
        text = "\x02".join(f"{name}\x01{value}" for name, value in dict(pairs).items())
        drawn.append(text + "\x02" if closed and text else text)

    drawn: list[str] = []
    alike()

    async def main() -> None:
        async with broker(tmp_path) as one:
            await sent(one, send("T"))
            for text in drawn:
                command = send("T")
                command.ext_fields["i"] = text
                quick = slowly(one)
                expected, stored = await sent(one, command)
                one._quick = quick
                answer, record = await sent(one, command)
                assert (meaning(answer), record) == (meaning(expected), stored), text

    run(main())


def test_quick_pull_answers_what_the_processor_would(run: Run, tmp_path: Path) -> None:
    commands = [
        pull("T"),
        pull("T", 0, 1, max_msg_nums=1),
        pull("T", 0, 2),
        pull("T", 0, 3),
        pull("T", 0, 2, flags=WITH_SUBSCRIPTION | SUSPEND, hold_ms=20),
        pull("T", subscription="A"),
        pull("T", subscription="||"),
        pull("T", subscription="n > 1", expression_type="SQL92"),
        pull("T", 9),
        pull("Nowhere"),
        pull("T", flags=0, subscription=None, sub_version=5),
        pull("T", flags=0, subscription=None, sub_version=6),
        pull("T", flags=0, consumer_group="nobody", subscription=None),
    ]

    async def main() -> None:
        async with broker(tmp_path) as one, peer(one) as member, peer(one) as client:
            for n in range(2):
                await sent(one, send("T", b"m%d" % n, properties={"TAGS": "AB"[n], "n": str(n + 1)}))
            await member.request(heartbeat("c", "T", version=5))
            for command in commands:
                for serialize in SerializeType:
                    command.serialize = serialize
                    quick = slowly(one)
                    expected = await client.request(command)
                    one._quick = quick
                    answer = await client.request(command)
                    assert (answer.code, answer.remark, answer.ext_fields, bodies(answer)) == (
                        expected.code,
                        expected.remark,
                        expected.ext_fields,
                        bodies(expected),
                    ), command

    run(main())
