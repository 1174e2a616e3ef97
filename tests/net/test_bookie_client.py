"""Connections to bookies: answers in any order, silence, breaks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from pyledger.net.bookkeeper.bookie_client import BookieClient, BookieConnection, Codec, RequestBatch
from pyledger.protocol.bookkeeper.messages import AddResponse, Status
from pyledger.wire.bookkeeper.request_frames import ADDED, AnswerFrames, Version3
from pyledger.wire.bookkeeper.version3 import encode_response

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
FRAME = b"\x00\x00\x00\x05"


def decode(frame: memoryview) -> tuple[int, bytes]:
    return frame[0], bytes(frame)


def run(serve: Serve, scenario: Callable[[BookieClient, str], Awaitable[None]]) -> None:
    async def whole() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = BookieClient(Codec(decode), frame_max_bytes=1 << 20, connect_timeout_ms=60_000)
        try:
            await scenario(client, address)
        finally:
            await client.close()
            server.close()

    asyncio.run(whole())


def ask(client: BookieClient, address: str, key: int, timeout_ms: float = 60_000) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    client.send(address, key, (FRAME, bytes([key]) * 5), timeout_ms, future.set_result)
    assert not future.done()
    return future


async def reversed_pairs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            first, second = await reader.readexactly(9), await reader.readexactly(9)
            writer.write(second + first)
    writer.close()


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def cutting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(9)
    writer.transport.abort()


async def babbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(9)
    writer.write(b"\x7f\xff\xff\xff")
    await reader.read()
    writer.close()


def test_answers_come_in_any_order() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        answers = await asyncio.gather(*(ask(client, address, key) for key in range(20)))
        assert answers == [bytes([key]) * 5 for key in range(20)]

    run(reversed_pairs, scenario)


def test_silence_ends() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        patient = ask(client, address, 1)
        assert await ask(client, address, 2, timeout_ms=1) is None
        assert not patient.done()

    run(mute, scenario)


def test_who_waits_is_told_of_a_break() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        for _ in range(2):  # a new connection is made each time
            assert await asyncio.gather(ask(client, address, 1), ask(client, address, 2)) == [None, None]

    run(cutting, scenario)


def test_a_frame_that_is_none_ends_the_connection() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        assert await ask(client, address, 1) is None

    run(babbling, scenario)


def test_nobody_listens() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        assert await ask(client, "127.0.0.1:1", 1) is None
        assert await ask(client, "no address", 1) is None
        await client.close()
        assert await ask(client, address, 1) is None

    run(mute, scenario)


RUN = 12
COUNT_BYTES = 4


def answering(*order: tuple[int, Status]) -> Serve:
    """A bookie that takes `RUN` bytes and answers adds of these numbers, in this order; then it is gone."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(RUN)
        for number, status in order:
            body = encode_response(AddResponse(txn_id=number, status=status, ledger_id=1, entry_id=number))
            writer.write(len(body).to_bytes(COUNT_BYTES, "big") + body)
        await writer.drain()
        writer.close()

    return serve


def ask_for_a_run(serve: Serve) -> tuple[list[int], dict[int, Any]]:
    """What a run of adds 10 … 21 is told: those that were stored in order, and others one by one."""
    stored: list[int] = []
    others: dict[int, Any] = {}

    async def whole() -> None:
        over = asyncio.Event()

        def told() -> None:
            if len(stored) + len(others) == RUN:
                over.set()

        def done(number: int, count: int) -> None:
            stored.extend(range(number, number + count))
            told()

        def one(number: int, answer: Any) -> None:
            assert number not in others
            others[number] = answer
            told()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        codec = Codec(Version3.decode, AnswerFrames, ADDED)
        client = BookieClient(codec, frame_max_bytes=1 << 20, connect_timeout_ms=60_000)
        connection: BookieConnection = await client._connect(address)
        late_at = asyncio.get_running_loop().time() + 60
        connection.send_run(RequestBatch(10, 10 + RUN, late_at, done, one), bytes(RUN))
        assert not stored
        assert not others
        await over.wait()
        await client.close()
        server.close()

    asyncio.run(whole())
    return stored, others


def test_a_run_of_adds_is_answered() -> None:
    good = [(number, Status.EOK) for number in range(10, 10 + RUN)]
    assert ask_for_a_run(answering(*good)) == ([number for number, _ in good], {})


def test_a_run_is_one_no_more_after_an_answer_out_of_turn() -> None:
    order = [10, 11, 15, 12, 13, 14, *range(16, 10 + RUN)]
    stored, others = ask_for_a_run(answering(*((number, Status.EOK) for number in order)))
    assert stored == [10, 11]
    assert others == dict.fromkeys(range(12, 10 + RUN), ADDED)


def test_bad_answers_and_silence_in_a_run_are_told_one_by_one() -> None:
    order = [(10, Status.EOK), (11, Status.EREADONLY), (12, Status.EOK), (99, Status.EOK)]
    stored, others = ask_for_a_run(answering(*order))
    assert stored == [10]
    assert others.pop(11).status is Status.EREADONLY
    assert others.pop(12) is ADDED
    assert others == dict.fromkeys(range(13, 10 + RUN))


def test_a_run_on_a_connection_that_is_gone() -> None:
    async def gone(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    assert ask_for_a_run(gone) == ([], dict.fromkeys(range(10, 10 + RUN)))


def test_what_waits_for_a_connection_is_bounded() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        big, answers = bytes(1 << 20), list[asyncio.Future[Any]]()
        for key in range(100):
            answers.append(asyncio.get_running_loop().create_future())
            client.send(address, key, (FRAME, big), 60_000, answers[-1].set_result)
        assert await answers[-1] is None
        assert sum(one.done() for one in answers) in range(30, 40)
        await client.close()
        assert await asyncio.gather(*answers) == [None] * 100

    run(mute, scenario)
