"""Which name server a client asks, and when it turns to another."""

from random import Random

import pytest

from pyledger.config.net import NetConfig
from pyledger.errors import RemotingConnectError
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import Connection, Handler
from pyledger.net.remoting.name_servers import NameServerList, parse_addresses
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.remoting.command import RemotingCommand
from tests.net.conftest import Run
from tests.net.peers import ECHO, address, calling, serving, until


def test_list_is_shuffled_and_rotates() -> None:
    known = [f"ns{number}:9876" for number in range(8)]
    servers = NameServerList(Random(1))
    assert servers.rotation() == []
    assert servers.update(known)
    assert not servers.update(reversed(known)), "the same list in another order is no news"
    assert sorted(servers.addresses) == known
    assert list(servers.addresses) != known
    firsts = [servers.rotation()[0] for _ in range(16)]
    assert sorted(firsts[:8]) == known, "each is first once"
    assert firsts[:8] == firsts[8:]
    rotation = servers.rotation()
    assert sorted(rotation) == known
    assert servers.update(["one:1", "one:1"])
    assert servers.addresses == ("one:1",)


def test_different_clients_begin_at_different_servers() -> None:
    firsts = set()
    for seed in range(50):
        servers = NameServerList(Random(seed))
        servers.update(["a:1", "b:1", "c:1"])
        firsts.add(servers.rotation()[0])
    assert firsts == {"a:1", "b:1", "c:1"}


def test_list_text() -> None:
    assert parse_addresses(" a:1; b:2 ;;") == ["a:1", "b:2"]
    assert parse_addresses("") == []


def named(name: str) -> Handler:
    def handler(_connection: Connection, command: RemotingCommand) -> Answer:
        return command.response(0, name)

    return handler


def test_client_keeps_its_name_server_until_it_fails(run: Run) -> None:
    async def main() -> None:
        config = NetConfig(name_server_scan_ms=20)
        async with calling(config=config, random=Random(2)) as client:
            first, second = RemotingServer(named("1")), RemotingServer(named("2"))
            await first.start()
            await second.start()
            with pytest.raises(RemotingConnectError, match="none is known"):
                await client.call(None, RemotingCommand.request(ECHO), 1_000)
            client.update_name_servers([address(first), address(second)])
            answers = [await client.call(None, RemotingCommand.request(ECHO), 5_000) for _ in range(10)]
            chosen = {answer.remark for answer in answers}
            assert len(chosen) == 1
            # Meanwhile the other one is connected as well.
            await until(lambda: len(client.connections) == 2)
            by_name = {"1": first, "2": second}
            (name,) = chosen
            assert client.name_server == address(by_name[str(name)])
            await by_name.pop(str(name)).close()
            await until(lambda: len(client.connections) == 1)
            ((other, server),) = by_name.items()
            assert (await client.call(None, RemotingCommand.request(ECHO), 5_000)).remark == other
            assert client.name_server == address(server)
            await server.close()
            await until(lambda: not client.connections)
            with pytest.raises(RemotingConnectError):
                await client.call(None, RemotingCommand.request(ECHO), 1_000)

    run(main())


def test_client_leaves_a_name_server_that_left_the_list(run: Run) -> None:
    async def main() -> None:
        async with serving(named("1")) as first, serving(named("2")) as second, calling() as client:
            client.update_name_servers([address(first)])
            assert (await client.call(None, RemotingCommand.request(ECHO), 5_000)).remark == "1"
            client.update_name_servers([address(second)])
            assert client.name_server is None
            assert (await client.call(None, RemotingCommand.request(ECHO), 5_000)).remark == "2"

    run(main())


def test_name_server_that_comes_back_is_connected_again(run: Run) -> None:
    async def main() -> None:
        async with calling(config=NetConfig(name_server_scan_ms=20)) as client:
            server = RemotingServer(named("1"))
            await server.start()
            port = server.port
            client.update_name_servers([address(server)])
            await until(lambda: client.connections)
            await server.close()
            await until(lambda: not client.connections)
            async with serving(named("again"), port=port):
                await until(lambda: client.connections)
                assert (await client.call(None, RemotingCommand.request(ECHO), 5_000)).remark == "again"

    run(main())
