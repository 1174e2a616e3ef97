"""Connections to bookies: answers in any order, silence, breaks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from pyledger.net.bookie_client import BookieClient, Codec

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
