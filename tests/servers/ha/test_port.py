"""The port for slaves: who is let in, what a connection may cost, and what a slave is believed."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyledger.clock import SystemClock
from pyledger.config.ha import HaConfig
from pyledger.config.net import TlsConfig
from pyledger.config.store import StoreConfig
from pyledger.errors import ConfigError
from pyledger.model.message import Message
from pyledger.protocol.ha.admission import Admission
from pyledger.protocol.ha.master import REPORT
from pyledger.protocol.ha.slave import FRAME_HEADER
from pyledger.servers.ha.service import HaService
from pyledger.servers.local.rocketmq import LocalRocketMQ
from pyledger.store.messages.store_engine import StoreEngine
from tests.net.conftest import Run
from tests.net.identities import Identity, client_tls, make_identity, server_tls
from tests.servers.ha.link import first_bytes
from tests.servers.ha.pair import SMALL, brokers, caught_up, replication, same_view, until
from tests.servers.ha.test_links import service_of
from tests.servers.ha.test_pairs import send_many

ACL = '[[users]]\nusername = "root"\npassword = "change-me-long"\nuserType = "Super"\n'


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("local"), "local", "IP:127.0.0.1,DNS:slave-1.example.org")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("other"), "other", "IP:127.0.0.1,DNS:client.example.org")


@asynccontextmanager
async def serving(
    folder: Path, *, known: bool = True, tls: TlsConfig | None = None, access: bool = False, **ha: Any
) -> AsyncIterator[HaService]:
    """A master's service with 100 messages for the length of a block."""
    with StoreEngine.open(folder, StoreConfig(**SMALL)) as store:
        for number in range(100):
            store.put(Message("T", b"a body that not everybody may read %d" % number))
        config = HaConfig(**{"role": "sync_master", "slave_timeout_ms": 3_600_000, **ha})
        service = HaService(
            store,
            config,
            SystemClock().monotonic_ms,
            lambda _: asyncio.sleep(0, result=known),
            access_control=access,
            tls=tls,
        )
        await service.start("127.0.0.1", 0)
        try:
            yield service
        finally:
            await service.close()


def test_a_broker_without_slaves_opens_no_port_for_them(run: Run, tmp_path: Path) -> None:
    """A single master, a slave, a development server."""

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            assert service_of(await pair.start(0, "single_master")).port == 0
        node = LocalRocketMQ(tmp_path / "dev")
        await node.start()
        try:
            assert node._broker is not None
            assert service_of(node._broker).port == 0
        finally:
            await node.close()

    run(main())


@pytest.mark.parametrize(
    ("ha", "opened"),
    [
        ({}, False),
        ({"allowed_slaves": "10.1.2.3"}, True),
        ({"allowed_slaves": "127.0.0.0/8"}, True),
    ],
)
def test_with_access_control_this_machine_is_no_proof(
    run: Run, tmp_path: Path, ha: dict[str, str], opened: bool
) -> None:
    """Neither is it that a name server knows the address: whoever reaches one can register there."""

    async def main() -> None:
        async with serving(tmp_path, access=True, **ha) as service:
            assert bool(service.port) is opened
            got = await first_bytes(service.port) if opened else b""
            assert bool(got) is (ha.get("allowed_slaves") == "127.0.0.0/8")

    run(main())


@pytest.mark.parametrize("access", [False, True])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_slaves_prove_themselves_by_a_certificate(
    run: Run, tmp_path: Path, local: Identity, stranger: Identity, mode: str, access: bool
) -> None:
    async def main() -> None:
        both = tmp_path / "both.crt"
        both.write_text(Path(local.cert).read_text() + Path(stranger.cert).read_text())
        tls = server_tls(local, mode, server_trust_cert_path=str(both))
        names = {"slave_certificates": "slave-1.example.org;slave-2.example.org"}
        async with serving(tmp_path / "store", tls=tls, access=access, **names) as service:
            named = client_tls(local, client_cert_path=local.cert, client_key_path=local.key)
            other = client_tls(local, client_cert_path=stranger.cert, client_key_path=stranger.key)
            assert await first_bytes(service.port, named)
            assert await first_bytes(service.port, other) == b""
            assert await first_bytes(service.port, client_tls(local)) == b""
            assert await first_bytes(service.port) == b""

    run(main())


def test_with_tls_enforced_plain_slaves_need_a_permission_that_names_them(
    run: Run, tmp_path: Path, local: Identity
) -> None:
    async def main() -> None:
        tls = server_tls(local, "enforcing")
        async with serving(tmp_path / "a", tls=tls) as service:
            assert await first_bytes(service.port) == b""
            assert await first_bytes(service.port, client_tls(local))
        async with serving(tmp_path / "b", tls=tls, allowed_slaves="127.0.0.1") as service:
            assert await first_bytes(service.port)
            assert await first_bytes(service.port, client_tls(local))
        async with serving(tmp_path / "c", tls=tls, known=False) as service:
            assert await first_bytes(service.port, client_tls(local)) == b""

    run(main())


def test_our_slave_follows_over_tls(run: Run, tmp_path: Path, local: Identity) -> None:
    async def main() -> None:
        tls = replace(
            server_tls(local, server_trust_cert_path=local.cert),
            client_enabled=True,
            client_trust_cert_path=local.cert,
            client_cert_path=local.cert,
            client_key_path=local.key,
        )
        named = {"slave_certificates": "local"}
        async with brokers(tmp_path, tls=tls) as pair:
            master = await pair.start(0, "sync_master", ha=named)
            slave = await pair.start(1, "slave")
            await until(lambda: service_of(master).transfer.push_offset == 0)
            answers = await asyncio.gather(*(send_many(master, 20, 9_000) for _ in range(10)))
            assert {one.code for some in answers for one in some} == {0}
            await same_view(master, slave)
            # And when it has to come from far behind.
            await slave.close()
            master.store.put(Message("T", b"last"))
            for _ in range(8):
                await send_many(master, 60, 9_000, properties={"WAIT": "false"})
            slave = await pair.start(1, "slave")
            await same_view(master, slave)

    run(main())


@pytest.mark.parametrize(
    ("text", "host", "named"),
    [
        ("10.0.0.2;10.1.0.0/16", "10.0.0.2", True),
        ("10.0.0.2;10.1.0.0/16", "10.1.200.3", True),
        ("10.0.0.2;10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("10.0.0.2;10.1.0.0/16", "10.0.0.3", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("", "127.0.0.1", False),
    ],
)
def test_addresses_and_networks_are_named(text: str, host: str, named: bool) -> None:
    assert Admission(HaConfig(allowed_slaves=text)).names_address(host) is named


def test_an_invalid_address_raises() -> None:
    with pytest.raises(ConfigError, match="allowed_slaves"):
        HaConfig(allowed_slaves="slave-1.example.org")


class Slave:
    """A slave that sends what a test gives it."""

    def __init__(self, service: HaService, receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect(("127.0.0.1", service.port))
        self.socket.setblocking(False)

    def report(self, offset: int) -> None:
        self.socket.send(REPORT.pack(offset))

    async def ended(self) -> bool:
        """Read to the end of the connection."""
        try:
            while await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16):
                pass
        except ConnectionError:
            pass
        self.socket.close()
        return True


@pytest.mark.parametrize("lie", [-1, -(1 << 63), (1 << 63) - 1, 1 << 40])
def test_an_absurd_first_report_ends_the_connection(run: Run, tmp_path: Path, lie: int) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            slave = Slave(service)
            slave.report(lie)
            assert await slave.ended()
            assert service.transfer.push_offset == -1

    run(main())


def test_a_slave_acknowledges_only_what_it_was_sent(run: Run, tmp_path: Path) -> None:
    """It is in touch, reads nothing, and says that it has what is put: no send is answered by that."""

    async def main() -> None:
        async with serving(tmp_path) as service:
            slave = Slave(service, 4096)
            slave.report(service.store.max_offset)
            await until(lambda: bool(service.transfer.acks))
            # What was put is not pushed yet, so nobody can have it.
            put = service.store.put(Message("T", bytes(1 << 19)))
            end = put.physical_offset + put.size_bytes
            answers: list[str] = []
            assert service.wait(end, answers.append) is None
            slave.report(end)
            assert await slave.ended()
            assert not answers
            assert service.transfer.waiting_count == 1

    run(main())


def test_a_slave_that_takes_nothing_is_let_go(run: Run, tmp_path: Path) -> None:
    """Reports alone keep no connection: what it does not take would keep files and a thread."""

    async def main() -> None:
        async with serving(tmp_path, silence_max_ms=400, heartbeat_interval_ms=50) as service:
            start = service.store.max_offset
            for _ in range(40):
                service.store.put(Message("T", bytes(1 << 19)))
            slave = Slave(service, 4096)
            slave.report(start)
            await until(lambda: bool(service.connections))
            (one,) = service.connections.values()
            while service.connections:
                with suppress(OSError):
                    slave.report(start)
                await asyncio.sleep(0.02)
            assert "took nothing" in one.machine.problem
            assert not service._hosts
            slave.socket.close()

    run(main())


def test_connections_that_come_and_go_hold_up_no_slave(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as service:
            for number in range(300):
                one = Slave(service)
                if number % 3:
                    one.report(number % 5 - 1)
                one.socket.close()
                await asyncio.sleep(0)
            await until(lambda: not service.connections and not service._tasks)
            assert not service._hosts
            got = await first_bytes(service.port)
            offset, size = FRAME_HEADER.unpack_from(got)
            assert (offset, size > 0) == (0, True)
            assert struct.unpack_from(">i", got, FRAME_HEADER.size)[0] > 0

    run(main())


SLAVES_USER = """
[[users]]
username = "slave"
password = "slaves-secret"
[[acls]]
subject = "User:slave"
[[acls.policies]]
entries = [{resource = ["Cluster:*", "Topic:*"], actions = ["Get"], decision = "Allow"}]
"""


def test_slave_signs_its_requests_to_a_master_with_access_control(run: Run, tmp_path: Path) -> None:
    """It copies tables, and compares its log when it comes again; refused, it says so and keeps its log."""
    users, less = tmp_path / "acl.toml", tmp_path / "less.toml"
    users.write_text(ACL + SLAVES_USER)
    less.write_text(ACL + SLAVES_USER.replace(', "Topic:*"', ""))
    for path in (users, less):
        path.chmod(0o600)
    named = {"allowed_slaves": "127.0.0.1"}

    async def main() -> None:
        async with brokers(tmp_path) as pair:
            master = await pair.start(0, "async_master", ha=named, acl_path=str(users))
            rules = {"acl_path": str(users), "acl_user": "slave"}
            for number in range(2):
                slave = await pair.start(1, "slave", **rules)
                await asyncio.to_thread(master.store.put, Message("T", b"%d" % number))
                await caught_up(master, slave)
                assert slave.context is not None
                await until(lambda parts=slave.context: parts.replication.sync.count > 0)
                assert replication(slave).sync.master_role == "ASYNC_MASTER"
                await slave.close()
            await master.close()
            await pair.start(0, "async_master", ha=named, acl_path=str(less))
            slave = await pair.start(1, "slave", **rules)
            await until(lambda: "no permission to Sub or Get" in replication(slave).ha_client.problem)
            assert slave.store.queue_range("T", 0).max_offset == 2
            with pytest.raises(ConfigError, match="no user 'nobody'"):
                await pair.start(2, "slave", acl_path=str(users), acl_user="nobody")

    run(main())
