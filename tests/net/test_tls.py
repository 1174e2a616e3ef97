"""TLS modes of a server against plain and TLS clients; certificates and host names."""

import asyncio
import ssl
from pathlib import Path

import pytest

from pyledger.config.fields import build
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import ConfigError, PyLedgerError
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection
from pyledger.wire.remoting.command import RemotingCommand
from tests.net.conftest import Run
from tests.net.identities import Identity, client_tls, make_identity, server_tls
from tests.net.peers import ECHO, calling, echo, raw, serving, until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def local(folder: Path) -> Identity:
    return make_identity(folder, "local", "IP:127.0.0.1,DNS:localhost", password="se cret")


@pytest.fixture(scope="module")
def elsewhere(folder: Path) -> Identity:
    return make_identity(folder, "elsewhere", "DNS:broker.example.org")


@pytest.fixture(scope="module")
def member(folder: Path) -> Identity:
    return make_identity(folder, "member", "DNS:member.example.org")


async def answered(port: int, tls: TlsConfig | None, host: str = "127.0.0.1") -> bool:
    """Whether a client gets an answer."""
    async with calling(tls=tls) as client:
        try:
            command = RemotingCommand.request(ECHO, body=b"x" * 100_000)
            answer = await client.call(f"{host}:{port}", command, 5_000)
        except PyLedgerError:
            return False
        return len(answer.body) == 100_000


@pytest.mark.parametrize(
    ("mode", "plain_ok", "tls_ok"),
    [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)],
)
def test_modes(run: Run, local: Identity, mode: str, plain_ok: bool, tls_ok: bool) -> None:
    async def main() -> None:
        async with serving(tls=server_tls(local, mode)) as server:
            assert await answered(server.port, None) is plain_ok
            assert await answered(server.port, client_tls(local)) is tls_ok
            # Each once more: what one client tried has no effect on the next.
            assert await answered(server.port, None) is plain_ok

    run(main())


def test_permissive_without_certificate_speaks_plain_only(run: Run, local: Identity) -> None:
    async def main() -> None:
        async with serving(tls=TlsConfig()) as server:
            assert await answered(server.port, None)
            assert not await answered(server.port, client_tls(local))

    run(main())


def test_client_checks_authority_and_host_name(run: Run, local: Identity, elsewhere: Identity) -> None:
    async def main() -> None:
        async with serving(tls=server_tls(elsewhere)) as server:
            port = server.port
            assert not await answered(port, client_tls(local)), "signed by nobody we trust"
            assert not await answered(port, client_tls(None)), "nor by an authority of the system"
            assert not await answered(port, client_tls(elsewhere)), "made out to another host"
            assert await answered(port, client_tls(elsewhere, client_check_host_name=False))
            assert await answered(port, client_tls(None, client_auth_server=False))
            assert await answered(port, client_tls(None, test_mode=True))
        async with serving(tls=server_tls(local)) as server:
            assert await answered(server.port, client_tls(local), "localhost")

    run(main())


def test_server_requires_a_certificate(
    run: Run, local: Identity, member: Identity, elsewhere: Identity
) -> None:
    def with_identity(identity: Identity) -> TlsConfig:
        return client_tls(local, client_cert_path=identity.cert, client_key_path=identity.key)

    async def main() -> None:
        trust = {"server_trust_cert_path": member.cert}
        async with serving(tls=server_tls(local, server_need_client_auth="require", **trust)) as server:
            assert await answered(server.port, with_identity(member))
            assert not await answered(server.port, with_identity(elsewhere))
            assert not await answered(server.port, client_tls(local))
        async with serving(tls=server_tls(local, server_need_client_auth="optional", **trust)) as server:
            assert await answered(server.port, client_tls(local))
            assert not await answered(server.port, with_identity(elsewhere))

    run(main())


def test_large_answers_reach_a_slow_tls_reader_whole(run: Run, local: Identity) -> None:
    async def main() -> None:
        part = bytes(range(256)) * 1024

        def handler(connection: Connection, command: RemotingCommand) -> Answer:
            connection.send(command.response(0), [memoryview(part)] * 8)
            return None

        config = NetConfig(write_high_water_mark_bytes=1 << 20)
        async with (
            serving(handler, tls=server_tls(local), config=config) as server,
            calling(tls=client_tls(local)) as client,
        ):
            where = f"127.0.0.1:{server.port}"
            calls = [client.call(where, RemotingCommand.request(ECHO), 20_000) for _ in range(20)]
            for answer in await asyncio.gather(*calls):
                assert answer.body == part * 8

    run(main())


def test_silent_plain_connection_of_a_permissive_server_is_kept(run: Run, local: Identity) -> None:
    async def main() -> None:
        async with serving(tls=server_tls(local)) as server, raw(server.port) as silent:
            async with raw(server.port) as other:
                assert (await other.request(RemotingCommand.request(ECHO))).code == 0
            assert (await silent.request(RemotingCommand.request(ECHO))).code == 0

    run(main())


def test_silent_connection_of_a_permissive_server_ends_idle(run: Run, local: Identity) -> None:
    async def main() -> None:
        config = NetConfig(server_idle_seconds=1)
        async with serving(tls=server_tls(local), config=config) as server, raw(server.port) as silent:
            assert await silent.ended()
            assert not server.connections

    run(main())


def test_handshake_that_stalls_is_aborted(run: Run, local: Identity) -> None:
    async def main() -> None:
        stalls = server_tls(local, handshake_timeout_ms=100)  # type: ignore[arg-type]
        config = NetConfig(connections_max=1)
        async with serving(tls=stalls, config=config) as server, raw(server.port) as peer:
            await peer.send(b"\x16\x03\x01")
            # A connection in its handshake counts.
            async with raw(server.port) as other:
                assert await other.ended()
            assert await peer.ended()
            assert await answered(server.port, client_tls(local))

    run(main())


def test_plain_frames_on_a_tls_connection_only_close_it(run: Run, local: Identity) -> None:
    async def main() -> None:
        async with serving(echo, tls=server_tls(local)) as server:
            context = ssl.create_default_context(cafile=local.cert)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == b""
            writer.close()
            await until(lambda: not server.connections)
            assert await answered(server.port, client_tls(local))

    run(main())


def test_certificates_that_cannot_be_read_are_config_errors(folder: Path, local: Identity) -> None:
    from pyledger.net.remoting.client import RemotingClient
    from pyledger.net.remoting.server import RemotingServer

    rubbish = folder / "rubbish.pem"
    rubbish.write_text("no certificate")
    for identity, named in (
        (Identity(str(folder / "missing"), local.key), "missing"),
        (Identity(str(rubbish), local.key), "rubbish.pem"),
        (Identity(local.cert, local.key, "wrong password"), "local.crt"),
        (Identity(local.cert, local.key), "local.crt"),
    ):
        with pytest.raises(ConfigError, match=named):
            RemotingServer(echo, tls=server_tls(identity))
    with pytest.raises(ConfigError, match="client_trust_cert_path"):
        RemotingClient(tls=client_tls(Identity(str(rubbish), "")))


@pytest.mark.parametrize(
    "options",
    [
        {"server_mode": "enforcing"},
        {"server_mode": "sometimes"},
        {"server_cert_path": "x"},
        {"client_key_path": "x"},
        {"server_need_client_auth": "require"},
    ],
)
def test_settings_that_cannot_work_are_rejected(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        TlsConfig(**options)  # type: ignore[arg-type]


def test_upstream_names_are_understood_and_passwords_are_not_shown() -> None:
    config = build(
        TlsConfig,
        {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": "c",
            "tls.server.keyPath": "k",
            "tls.server.keyPassword": "hunter2",
            "tls.enable": "true",
        },
    )
    assert (config.server_mode, config.server_key_password) == ("enforcing", "hunter2")
    assert config.client_enabled
    assert "hunter2" not in repr(config)
    with pytest.raises(ConfigError):
        NetConfig(write_low_water_mark_bytes=2, write_high_water_mark_bytes=1)
