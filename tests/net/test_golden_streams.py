"""What real clients sent, replayed at a server of ours that answers as the recorded servers did."""

import asyncio
import socket
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.net.endpoint import Answer
from pyledger.net.loop import loop_factory
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.request_table import HandlerTable
from pyledger.wire.remoting.command import RemotingCommand, decode
from tests.golden.remoting_frames import RecordedFrame, recorded_frames
from tests.net.conftest import Run
from tests.net.peers import raw, serving, until

LENGTH_BYTES = 4


def sessions() -> dict[tuple[str, int], list[RecordedFrame]]:
    """Recorded frames by case and connection."""
    found: dict[tuple[str, int], list[RecordedFrame]] = {}
    for one in recorded_frames():
        found.setdefault((one.case, one.described["connection"]), []).append(one)
    return found


def summary(command: RemotingCommand) -> tuple[object, ...]:
    fields = tuple(command.ext_fields.items())
    return command.code, command.opaque, command.remark, fields, bytes(command.body)


async def replay(frames: list[RecordedFrame], random: Random) -> None:
    opener = frames[0].described["from"]
    sent = [one for one in frames if one.described["from"] == opener]
    answers = {
        one.described["opaque"]: decode(one.data[LENGTH_BYTES:])
        for one in frames
        if one.described["from"] != opener and one.described["flag"] & 1
    }
    handled: list[int] = []

    async def later(answer: RemotingCommand) -> Answer:
        return answer

    def handler(_connection: Connection, request: RemotingCommand) -> object:
        handled.append(request.opaque)
        answer = answers.get(request.opaque)
        # Some are answered at once, some by a task, some held and never answered, as recorded.
        return later(answer) if answer is not None and random.random() < 0.3 else answer

    async with serving(handler) as server, raw(server.port) as peer:  # type: ignore[arg-type]
        stream = b"".join(one.data for one in sent)
        at = 0
        while at < len(stream):
            size = random.choice((1, 3, 100, 5_000, 100_000))
            await peer.send(stream[at : at + size])
            await asyncio.sleep(0)
            at += size
        wanted = [one.described["opaque"] for one in sent if not one.described["flag"] & 1]
        await until(lambda: len(handled) == len(wanted))
        assert handled == wanted
        expected = Counter(summary(answers[opaque]) for opaque in wanted if opaque in answers)
        received: Counter[tuple[object, ...]] = Counter()
        while received.total() < expected.total():
            received[summary(await peer.receive())] += 1
        assert received == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_recordings_end_their_connection_at_most(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(recorded_frames()), min_size=1, max_size=5))
    stream = bytearray(b"".join(one.data for one in chosen))
    for at in data.draw(st.lists(st.integers(0, len(stream) - 1), max_size=8)):
        stream[at] = data.draw(st.integers(0, 255))

    async def main() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        async with asyncio.timeout(100), serving(HandlerTable()) as server:
            async with raw(server.port) as peer:
                await peer.send(bytes(stream))
                peer.socket.shutdown(socket.SHUT_WR)
                while await asyncio.get_running_loop().sock_recv(peer.socket, 1 << 16):
                    pass
            async with raw(server.port) as other:
                assert (await other.request(RemotingCommand.request(1))).code == 3
        assert not problems

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


@pytest.mark.parametrize("serialize", ["json", "binary"])
def test_recorded_clients_are_served(run: Run, serialize: str) -> None:
    chosen = [frames for (case, _), frames in sessions().items() if case.startswith(serialize)]
    assert len(chosen) > 50

    async def main() -> None:
        random = Random(7)
        for frames in chosen:
            await replay(frames, random)

    run(main())
