"""TLS between Java's clients and our bookies, and between our client and Java's bookies, in one cluster."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient
from tests.interop.bookie_machines import Machines, machines_of
from tests.interop.bookkeeper_peers import payload
from tests.net.identities import Identity, client_tls, make_identity
from tests.servers.bookkeeper.bookie_peer import PATIENT

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
OURS = """
[tls]
server_mode = "enforcing"
server_cert_path = "{0.cert}"
server_key_path = "{0.key}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def identity(folder: Path) -> Identity:
    return make_identity(folder, "bookie", "IP:127.0.0.1,DNS:localhost")


@pytest.fixture(scope="module")
def machines(folder: Path, identity: Identity) -> Iterator[Machines]:
    """Two bookies that speak TLS, one of each kind; ours speaks nothing else."""
    settings = {
        "tlsProviderFactoryClass": FACTORY,
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": identity.key,
        "tlsCertificatePath": identity.cert,
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": identity.cert,
    }
    with machines_of(folder) as found:
        found.start_java(*(word for pair in settings.items() for word in ("--set", "=".join(pair))))
        found.start_ours(OURS.format(identity))
        yield found


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_java_writes_and_reads(machines: Machines, identity: Identity, version: str) -> None:
    trust = {
        "tlsProviderFactoryClass": FACTORY,
        "clientTrustStoreType": "PEM",
        "clientTrustStore": identity.cert,
        "clientKeyStoreType": "PEM",
    }
    how = [word for pair in trust.items() for word in ("--client", "=".join(pair))]
    how += ["--password", "pw", *(["--v2"] if version == "v2" else [])]
    both = ("--e", 2, "--qw", 2, "--qa", 2, "--count", 30, "--size", "100,0,5000")
    *_, closed = machines.java.run("Write", *both, *how)
    ledger_id = int(closed["closed"])
    *_, read = machines.java.run("Read", "--ledger", ledger_id, *how)
    assert (read["read"], read["lac"]) == (30, 29)
    assert asyncio.run(read_by_us(machines, identity, ledger_id)) == [
        payload(at, (100, 0, 5000)[at % 3]) for at in range(30)
    ]


async def read_by_us(machines: Machines, identity: Identity, ledger_id: int) -> list[bytes]:
    async with AsyncLedgerClient(machines.address, config=PATIENT, tls=client_tls(identity)) as client:
        reader = await client.open(ledger_id, b"pw")
        return [entry.payload async for entry in reader.read()]


def test_we_write_and_read(machines: Machines, identity: Identity) -> None:
    async def play() -> None:
        tls = client_tls(identity)
        async with (
            AsyncLedgerClient(machines.address, config=PATIENT, tls=tls) as client,
            await client.create(
                ensemble_size=2, write_quorum_size=2, ack_quorum_size=2, password=b"pw"
            ) as writer,
        ):
            await writer.add_many(payload(at, 700) for at in range(50))
        found = await read_by_us(machines, identity, writer.ledger_id)
        assert found == [payload(at, 700) for at in range(50)]

    asyncio.run(play())
