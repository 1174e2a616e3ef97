"""Ledgers over TLS: a client asks a bookie for it in clear, and says nothing else before it has it."""

import asyncio
import ssl
from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient
from pyledger.config.net import TlsConfig
from pyledger.errors import AddFailedError, EntryReadError, LedgerPasswordError
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.servers.local.bookies import AsyncLocalBookies
from pyledger.wire.bookkeeper import version3
from tests.net.identities import Identity, client_tls, make_identity, server_tls
from tests.servers.bookkeeper.bookie_peer import PATIENT, Peer, entry_of

PAYLOADS = [b"%d" % at * (at % 50) for at in range(500)] + [bytes(1 << 20)]


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("tls"), "bookie", "IP:127.0.0.1")


async def group(folder: Path, tls: TlsConfig | None) -> AsyncLocalBookies:
    made = AsyncLocalBookies(folder, 3, tls=tls)
    await made.start()
    return made


async def written_and_read(address: str, tls: TlsConfig | None) -> None:
    async with AsyncLedgerClient(address, config=PATIENT, tls=tls) as client:
        async with await client.create(
            ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"pw"
        ) as writer:
            await writer.add_many(PAYLOADS)
        reader = await client.open(writer.ledger_id, b"pw")
        assert [entry.payload async for entry in reader.read()] == PAYLOADS  # in batches, by version 2
        assert await client.disk_of("bookie-1") is not None


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_ledgers_over_tls(tmp_path: Path, identity: Identity, mode: str) -> None:
    async def play() -> None:
        made = await group(tmp_path, server_tls(identity, mode))
        async with AsyncLedgerClient(made.address) as client:
            registered = (await client.bookies()).writable["bookie-1"]
            assert registered is not None
            assert registered.endpoints[0].extensions == ("tls",)
        await written_and_read(made.address, client_tls(identity))
        if mode == "permissive":
            await written_and_read(made.address, None)
        await made.close()

    asyncio.run(play())


def test_where_nothing_else_is_spoken(tmp_path: Path, identity: Identity) -> None:
    async def play() -> None:
        made = await group(tmp_path, server_tls(identity, "enforcing"))
        peer = await Peer.connect(made.bookies[0].address)
        assert (await peer.add(1, 0)).status is Status.EUA
        assert (await peer.read(1, 0)).status is Status.EUA
        await secured(peer, identity)
        assert (await peer.add(1, 0)).status is Status.EOK
        assert (await peer.read(1, 0)).entry == entry_of(1, 0)
        assert (await peer.ask(m.StartTlsRequest)).status is Status.EBADREQ, "it has it"
        await peer.close()
        direct = Peer(
            *await asyncio.open_connection(
                *made.bookies[0].address.split(":"), ssl=trusting(identity), server_hostname="127.0.0.1"
            )
        )
        assert (await direct.read(1, 0)).entry == entry_of(1, 0)
        await direct.close()
        async with AsyncLedgerClient(made.address, config=PATIENT) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2)
            with pytest.raises(LedgerPasswordError, match="TLS"):
                await writer.add(b"in clear")
            await writer.abandon()
        await made.close()

    asyncio.run(play())


def trusting(identity: Identity) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=identity.cert)


async def secured(peer: Peer, identity: Identity) -> None:
    assert (await peer.ask(m.StartTlsRequest)).status is Status.EOK
    await peer.writer.start_tls(trusting(identity), server_hostname="127.0.0.1")


def test_plain_bytes_after_the_tls_request_are_rejected(tmp_path: Path, identity: Identity) -> None:
    async def play() -> None:
        made = await group(tmp_path, server_tls(identity))
        peer = await Peer.connect(made.bookies[0].address)
        question = version3.encode_request(m.StartTlsRequest(txn_id=1))
        peer.writer.write(len(question).to_bytes(4, "big") + question + b"\x00\x00\x00\x20\x0a")
        while await peer.frame():
            pass  # it may be answered; then the connection ends
        await peer.close()
        other = await Peer.connect(made.bookies[0].address)
        assert (await other.ask(m.StartTlsRequest)).status is Status.EOK
        other.writer.write(b"this is no handshake" * 10)
        while await other.reader.read(1 << 10):
            pass  # an alert, at most
        await other.close()
        await made.close()

    asyncio.run(play())


def test_a_client_that_requires_tls_sends_nothing_without_it(tmp_path: Path, identity: Identity) -> None:
    async def play() -> None:
        made = await group(tmp_path, None)
        async with AsyncLedgerClient(made.address, tls=client_tls(identity)) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2)
            with pytest.raises(AddFailedError):
                await writer.add(b"secret")
            await writer.abandon()
            with pytest.raises(EntryReadError):
                await client.open(writer.ledger_id, recover=False)
        assert all(not bookie.rules.ledgers for bookie in made.bookies)
        await made.close()

    asyncio.run(play())
