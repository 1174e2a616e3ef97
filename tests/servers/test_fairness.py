"""Every server: a small request does not wait for the large answers that other clients ask for."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig
from pyledger.model.remoting_codes import RequestCode
from pyledger.net.fair_queue import ITERATION_BYTES
from pyledger.net.remoting.server import RemotingServer
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.dledger.messages import GetEntriesRequest, MetadataRequest
from pyledger.protocol.dledger.response_codes import RequestCode as DLedgerCode
from pyledger.servers.namesrv.server import NameServer
from pyledger.wire.bookkeeper import version3
from pyledger.wire.dledger.bodies import encode_body
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from tests.net.peers import RawPeer, raw
from tests.servers.bookkeeper.bookie_peer import Peer, bookie
from tests.servers.broker.peers import broker, make_request, pull, send
from tests.servers.broker.peers import peer as broker_peer
from tests.servers.dledger.group import CALM, client, group_of

CLIENTS, REQUESTS = 20, 20
ROUND_TRIPS = 6
"""Iterations of the event loop that a request and its answer take here, where clients share the loop."""


class Served(NamedTuple):
    """A server with something large to ask for."""

    server: RemotingServer
    large: bytes
    small: bytes
    answer_bytes: int


@asynccontextmanager
async def a_bookie(folder: Path) -> AsyncIterator[Served]:
    async with bookie(folder) as server:
        peer = await Peer.connect(server.address)
        size_bytes = 4 << 20
        for entry_id, payload in enumerate((bytes(size_bytes), b"small")):
            await peer.add(1, entry_id, payload)
        await peer.close()
        large, small = (
            version3.encode_request(m.ReadRequest(ledger_id=1, entry_id=entry_id)) for entry_id in (0, 1)
        )
        yield Served(server._server, framed(large), framed(small), size_bytes)


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@asynccontextmanager
async def a_broker(folder: Path) -> AsyncIterator[Served]:
    async with broker(folder) as server:
        async with broker_peer(server) as peer:
            for _ in range(4):
                answer = await peer.request(send("T", bytes(60_000)))
                assert answer.code == 0
            large = pull("T")
            answer = await peer.request(large)
        assert len(answer.body) > 200_000
        yield Served(
            server._servers[0],
            encode_frame(large),
            encode_frame(RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)),
            len(answer.body),
        )


@asynccontextmanager
async def a_member(folder: Path) -> AsyncIterator[Served]:
    size_bytes = 1 << 20
    store = DLedgerStoreConfig(data_file_size_bytes=8 << 20, index_file_size_bytes=1 << 12)
    async with group_of(folder, 1, CALM, store=store) as group:
        one = await group.leader()
        async with client(group) as appending:
            appended = await appending.append(bytes(size_bytes))
        ids = {"group": "g", "remote_id": one}
        large = GetEntriesRequest(begin_index=appended.index, **ids)
        yield Served(
            group.members[one]._server,
            encode_frame(RemotingCommand.request(DLedgerCode.GET, body=encode_body(large))),
            encode_frame(
                RemotingCommand.request(DLedgerCode.METADATA, body=encode_body(MetadataRequest(**ids)))
            ),
            size_bytes * 4 // 3,
        )


@asynccontextmanager
async def a_name_server(folder: Path) -> AsyncIterator[Served]:
    server = NameServer(NamesrvConfig(port=0, admin_enabled=True, kv_config_path=str(folder / "kv.json")))
    await server.start()
    try:
        assert server._server is not None
        async with raw(server._server.port) as peer:
            for key in range(20):
                fields = {"namespace": "n", "key": key, "value": "x" * 20_000}
                assert (await peer.request(make_request(RequestCode.PUT_KV_CONFIG, **fields))).code == 0
            large = make_request(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
            answer = await peer.request(large)
        assert len(answer.body) > 400_000
        small = make_request(RequestCode.GET_KV_CONFIG, namespace="n", key="none")
        yield Served(server._server, encode_frame(large), encode_frame(small), len(answer.body))
    finally:
        await server.close()


SERVERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Served]]] = {
    "name server": a_name_server,
    "broker": a_broker,
    "member": a_member,
    "bookie": a_bookie,
}


async def answered(peer: RawPeer) -> None:
    """Take one frame; what it says matters to other tests."""
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4]):
        data = await loop.sock_recv(peer.socket, 1 << 16)
        assert data
        found += data


async def read_on(peer: RawPeer) -> None:
    while await asyncio.get_running_loop().sock_recv(peer.socket, 1 << 20):
        pass


def put_bytes(served: Served) -> int:
    return sum(one._outbox.put_bytes for one in served.server.connections)


@pytest.mark.parametrize("kind", SERVERS)
def test_large_answers_are_not_waited_for(kind: str, tmp_path: Path) -> None:
    """Counted is what others are given between a small request and its answer."""

    async def main() -> None:
        async with SERVERS[kind](tmp_path) as served, AsyncExitStack() as stack:
            light = await stack.enter_async_context(raw(served.server.port))
            peers = [await stack.enter_async_context(raw(served.server.port)) for _ in range(CLIENTS)]
            begun = put_bytes(served)
            all_bytes = CLIENTS * REQUESTS * served.answer_bytes
            for peer in peers:
                await peer.send(served.large * REQUESTS)
            readers = [asyncio.create_task(read_on(peer)) for peer in peers]
            most = waits = 0
            while (before := put_bytes(served)) - begun < all_bytes * 9 // 10:
                await light.send(served.small)
                await answered(light)
                if before - begun > CLIENTS * served.answer_bytes:  # each is known for what it asks
                    most, waits = max(most, put_bytes(served) - before), waits + 1
            assert waits > 3
            assert most <= ROUND_TRIPS * (ITERATION_BYTES + served.answer_bytes)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize("kind", SERVERS)
def test_no_responses_are_encoded_for_a_client_that_does_not_read(kind: str, tmp_path: Path) -> None:
    limits = NetConfig()

    async def main() -> None:
        async with SERVERS[kind](tmp_path) as served, AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(raw(served.server.port, 4096)) for _ in range(3)]
            for peer in peers:
                await peer.send(served.large * 100)
            light = await stack.enter_async_context(raw(served.server.port))
            queued = 0
            for _ in range(200):
                await light.send(served.small)
                await answered(light)
                queued = max(queued, *(one.queued_bytes for one in served.server.connections))
            assert queued <= limits.write_high_water_mark_bytes + 2 * served.answer_bytes
            assert queued > 0
            assert len(served.server.connections) == len(peers) + 1, "nobody is cut"

    asyncio.run(main())
