"""Connections to bookies: answers in any order, silence, breaks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from pyledger.net.bookkeeper.bookie_client import BookieClient, Codec, RequestBatch
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


async def disconnecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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


def test_pending_requests_end_when_the_connection_breaks() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        for _ in range(2):  # a new connection is made each time
            assert await asyncio.gather(ask(client, address, 1), ask(client, address, 2)) == [None, None]

    run(disconnecting, scenario)


def test_a_frame_that_is_none_ends_the_connection() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        assert await ask(client, address, 1) is None

    run(babbling, scenario)


def test_an_address_without_a_listener() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        assert await ask(client, "127.0.0.1:1", 1) is None
        assert await ask(client, "no address", 1) is None
        await client.close()
        assert await ask(client, address, 1) is None

    run(mute, scenario)


BATCH = 12
COUNT_BYTES = 4


def answering(*order: tuple[int, Status]) -> Serve:
    """A bookie that takes `BATCH` bytes and answers adds of these numbers, in this order; then it is gone."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(BATCH)
        for number, status in order:
            body = encode_response(AddResponse(txn_id=number, status=status, ledger_id=1, entry_id=number))
            writer.write(len(body).to_bytes(COUNT_BYTES, "big") + body)
        await writer.drain()
        writer.close()

    return serve


def send_a_batch(serve: Serve) -> list[tuple[int, int, Any]]:
    """What the batch of adds 10 … 21 gets: first number, count, answer, in this order."""
    found: list[tuple[int, int, Any]] = []

    async def whole() -> None:
        over = asyncio.Event()

        def done(number: int, count: int, answer: Any) -> None:
            found.append((number, count, answer))
            if sum(one[1] for one in found) == BATCH:
                over.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        codec = Codec(Version3.decode, AnswerFrames, ADDED)
        client = BookieClient(codec, frame_max_bytes=1 << 20, connect_timeout_ms=60_000)
        client.send_batch(address, RequestBatch(10, 10 + BATCH, done), bytes(BATCH), 60_000)
        assert not found
        await over.wait()
        await client.close()
        server.close()

    asyncio.run(whole())
    return found


def test_a_batch_of_adds_is_answered() -> None:
    good = [(number, Status.EOK) for number in range(10, 10 + BATCH)]
    found = send_a_batch(answering(*good))
    assert [(number, answer) for first, count, answer in found for number in range(first, first + count)] == [
        (number, ADDED) for number, _ in good
    ]


def test_answers_out_of_order_split_a_batch() -> None:
    order = [10, 11, 15, 12, 13, 14, *range(16, 10 + BATCH)]
    found = send_a_batch(answering(*((number, Status.EOK) for number in order)))
    answered_numbers = [number for first, count, _ in found for number in range(first, first + count)]
    assert answered_numbers == order
    assert all(answer is ADDED for _, _, answer in found)


def test_bad_answers_and_silence_concern_their_requests_alone() -> None:
    order = [(10, Status.EOK), (11, Status.EREADONLY), (12, Status.EOK), (99, Status.EOK)]
    first, bad, good, *silent = send_a_batch(answering(*order))
    assert first == (10, 1, ADDED)
    assert bad[:2] == (11, 1)
    assert bad[2].status is Status.EREADONLY
    assert good == (12, 1, ADDED)
    assert silent == [(13, 10 + BATCH - 13, None)]


def test_an_answer_to_the_last_of_a_batch_leaves_the_others() -> None:
    found = send_a_batch(answering((10 + BATCH - 1, Status.EREADONLY)))
    assert [one[:2] for one in found] == [(10 + BATCH - 1, 1), (10, BATCH - 1)]
    assert found[1][2] is None


def test_a_batch_on_a_connection_that_is_gone() -> None:
    async def gone(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    assert send_a_batch(gone) == [(10, BATCH, None)]


def test_a_batch_that_gets_no_answer_in_time() -> None:
    async def scenario(client: BookieClient, address: str) -> None:
        found: asyncio.Future[tuple[int, int, Any]] = asyncio.get_running_loop().create_future()
        batch = RequestBatch(1, 4, lambda *answer: found.set_result(answer))
        client.send_batch(address, batch, bytes(9), 1)
        assert await found == (1, 3, None)

    run(mute, scenario)


def test_a_batch_to_an_unreachable_bookie() -> None:
    async def scenario(client: BookieClient, _address: str) -> None:
        found: asyncio.Future[tuple[int, int, Any]] = asyncio.get_running_loop().create_future()
        client.send_batch("127.0.0.1:1", RequestBatch(1, 4, lambda *answer: found.set_result(answer)), b"", 1)
        assert await found == (1, 3, None)

    run(mute, scenario)


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
