"""Popping in order at Java's broker and at ours: the same answers, and each goes on where the other left."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.wire.record.record import decode_records
from pyledger.wire.remoting.command import RemotingCommand
from tests.interop.peers import Peers, serving
from tests.interop.servers import SETTINGS, process
from tests.net.peers import RawPeer, raw
from tests.servers.broker.peers import make_request, send
from tests.servers.broker.test_pop import named, pop, popped
from tests.support.ports import free_ports

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

VERSION = "5.3.3"
LONG_MS = 3_600_000
SIZES = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "120000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
"""What `--small` says to Java's broker."""
Serve = Callable[[Path], Any]


@contextmanager
def javas(folder: Path) -> Iterator[int]:
    """Java's broker over the store in a folder; the port of the broker."""
    namesrv_port, port = free_ports(2)
    namesrv = f"127.0.0.1:{namesrv_port}"
    names = ("--name", "broker-a", "--namesrv", namesrv)
    where = ("--port", port, *names, "--store", folder / "store", "--small")
    with ExitStack() as stack:
        start = ("NameServer", "--port", namesrv_port, "--home", folder)
        stack.enter_context(serving(VERSION, *start, log=folder / "namesrv.log"))
        stack.enter_context(serving(VERSION, "Broker", *where, log=folder / "broker.log"))
        yield port


@contextmanager
def ours(folder: Path) -> Iterator[int]:
    """Our broker over the store in a folder."""
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in (SETTINGS | SIZES).items()))
    where = ("--config", str(conf), "--listen", "127.0.0.1:0", "--store", str(folder / "store"))
    with process("broker", *where, log=folder / "broker.log") as (started, address):
        yield int(address.rpartition(":")[2])
        started.terminate()
        started.wait()


def in_order(count: int = 2, hidden_ms: int = LONG_MS, **fields: Any) -> RemotingCommand:
    return pop(order="true", queueId=0, maxMsgNums=count, invisibleTime=hidden_ms, **fields)


def comparable(answer: RemotingCommand) -> tuple[object, ...]:
    """What does not differ from run to run in an answer."""
    if answer.code != ResponseCode.SUCCESS:
        return (answer.code,)
    names = ("reviveQid", "restNum", "startOffsetInfo", "msgOffsetInfo", "orderCountInfo")
    fields = tuple(answer.ext_fields.get(name) for name in names)
    return answer.code, *fields, *(one.body for one in decode_records(answer.body))


async def story(client: RawPeer, answers: list[object]) -> str:
    """Pop, acknowledge, give back; what was answered, and the handle of a message that stays popped."""

    async def request(command: RemotingCommand) -> RemotingCommand:
        answer = await client.request(command)
        answers.append(comparable(answer))
        return answer

    for number in range(6):
        await client.request(send("T", b"%d" % number, default_topic_queue_nums=1))
    first, second = [handle for _, handle in popped(await request(in_order(attemptId="a")))]
    await request(in_order(attemptId="b"))
    first, second = [handle for _, handle in popped(await request(in_order(attemptId="a")))]
    await request(make_request(RequestCode.ACK_MESSAGE, **named(second)))
    await request(make_request(RequestCode.ACK_MESSAGE, **named(first, offset=5)))
    await request(in_order())
    changed = await client.request(
        make_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **named(first, invisibleTime=0))
    )
    answers.append((changed.code, changed.ext_fields["reviveQid"]))
    first, second, third = [handle for _, handle in popped(await request(in_order(3)))]
    for handle in (first, second, third):
        await request(make_request(RequestCode.ACK_MESSAGE, **named(handle)))
    _, last = [handle for _, handle in popped(await request(in_order(2)))]
    await request(make_request(RequestCode.ACK_MESSAGE, **named(last)))
    return popped_first(last)


def popped_first(handle: str) -> str:
    """The handle of the message before."""
    *words, offset = handle.split(" ")
    return " ".join([*words, str(int(offset) - 1)])


async def goes_on(client: RawPeer, handle: str) -> list[object]:
    """What another broker answers on the same folder: locked, until the one that was left is done."""
    locked = await client.request(in_order())
    done = await client.request(make_request(RequestCode.ACK_MESSAGE, **named(handle)))
    return [comparable(locked), done.code, comparable(await client.request(in_order()))]


def call(port: int, request: Callable[[RawPeer], Any]) -> Any:
    async def main() -> Any:
        async with raw(port) as client:
            return await request(client)

    return asyncio.run(main())


def test_both_answer_alike_and_go_on_with_each_other(peers: Peers, tmp_path: Path) -> None:
    peers(VERSION)
    answers_of: dict[Serve, list[object]] = {javas: [], ours: []}
    for serve, other in ((javas, ours), (ours, javas)):
        folder = tmp_path / serve.__name__
        folder.mkdir()
        with serve(folder) as port:
            handle = call(port, lambda client, answers=answers_of[serve]: story(client, answers))
        with other(folder) as port:
            found = call(port, lambda client, left=handle: goes_on(client, left))
        locked = (ResponseCode.POLLING_TIMEOUT,)
        assert found == [locked, 0, (0, "999", "0", "0 0 5", "0 0 5", "0 0 0", b"5")]
    assert answers_of[ours] == answers_of[javas]
