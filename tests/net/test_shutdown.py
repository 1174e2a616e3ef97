"""The end of servers and clients: what was taken is finished, clients get GO_AWAY."""

import asyncio

import pytest

from pyledger.config.net import NetConfig
from pyledger.errors import ListenError, RemotingConnectError, RemotingSendRequestError
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from tests.net.conftest import Run
from tests.net.peers import ECHO, address, calling, echo, raw, serving, until

GO_AWAY = 1500


def request(**fields: str) -> RemotingCommand:
    return RemotingCommand.request(ECHO, ext_fields=fields)


def test_close_finishes_requests_being_processed(run: Run) -> None:
    async def main() -> None:
        begun, gate = asyncio.Event(), asyncio.Event()

        async def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            begun.set()
            await gate.wait()
            return command.response(0, body=bytes(4 << 20))

        server = RemotingServer(handler)
        await server.start()
        async with calling() as client:
            call = asyncio.ensure_future(client.call(address(server), request(), 10_000))
            await begun.wait()
            closing = asyncio.ensure_future(server.close(10_000))
            await asyncio.sleep(0)
            async with calling() as late:
                with pytest.raises(RemotingConnectError):
                    await late.call(address(server), request(), 1_000)
            gate.set()
            assert len((await call).body) == 4 << 20
            await closing
            await until(lambda: not client.connections)

    run(main())


def test_close_drops_requests_that_take_too_long(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        begun = asyncio.Event()
        stuck = asyncio.get_running_loop().create_future()

        async def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            begun.set()
            await stuck
            return None

        server = RemotingServer(handler)
        await server.start()
        async with calling() as client:
            call = asyncio.ensure_future(client.call(address(server), request(), 10_000))
            await begun.wait()
            await server.close(grace_ms=50)
            with pytest.raises(RemotingSendRequestError):
                await call
        stuck.cancel()
        await asyncio.sleep(0)
        await server.close()

    run(main())
    assert caplog.text.count("unfinished requests dropped") == 1


def test_close_writes_what_is_queued_for_a_slow_reader(run: Run) -> None:
    async def main() -> None:
        server = RemotingServer(lambda _, command: command.response(0, body=bytes(4 << 20)))
        await server.start()
        async with raw(server.port, receive_bytes=8192) as peer:
            await peer.send(encode_frame(request()))
            await until(lambda: server.connections and server.connections[0].queued_bytes)
            closing = asyncio.ensure_future(server.close(10_000))
            assert len((await peer.receive()).body) == 4 << 20
            assert await peer.ended()
            await closing

    run(main())


def test_go_away_is_sent_to_peers_that_know_it(run: Run) -> None:
    async def main() -> None:
        config = NetConfig(shutdown_gracefully=True)
        server = RemotingServer(echo, config=config)
        await server.start()
        async with raw(server.port) as new, raw(server.port) as old:
            for peer in (new, old):
                assert (await peer.request(request())).code == 0
            closing = asyncio.ensure_future(server.close())
            await until(lambda: server.connections[0].endpoint.going_away)
            command = request()
            command.version = 476
            answer = await new.request(command)
            assert (answer.code, answer.remark) == (GO_AWAY, "please go away")
            command.version = 475
            assert (await old.request(command)).code == 0
            assert not closing.done()
        # Once all have gone there is nothing to wait for.
        await closing

    run(main())


class Fickle:
    """Answers GO_AWAY to the first `times` requests, then serves."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.opaques: list[int] = []
        self.peers: list[str] = []

    def __call__(self, connection: Connection, command: RemotingCommand) -> Answer:
        self.opaques.append(command.opaque)
        self.peers.append(connection.remote_address)
        if self.left:
            self.left -= 1
            return command.response(GO_AWAY, "please go away")
        return command.response(0)


async def outcome_of(
    client: RemotingClient, where: str, *, started: bool
) -> RemotingCommand | RemotingSendRequestError:
    """Return the response to a request on an open connection, or its error."""
    await client.connect(where)
    try:
        return await (client.start if started else client.call)(where, request(), 5_000)
    except RemotingSendRequestError as error:
        return error


@pytest.mark.parametrize("started", [False, True])
def test_client_that_gets_go_away_sends_once_more_on_a_new_connection(run: Run, started: bool) -> None:
    async def main() -> None:
        fickle = Fickle(1)
        async with serving(fickle) as server, calling() as client:
            outcome = await outcome_of(client, address(server), started=started)
            assert isinstance(outcome, RemotingCommand)
            assert outcome.code == 0
            assert len(set(fickle.opaques)) == 2, "the second try has an opaque of its own"
            assert len(set(fickle.peers)) == 2, "and a connection of its own"

    run(main())


@pytest.mark.parametrize("started", [False, True])
def test_client_that_gets_go_away_twice_fails(run: Run, started: bool) -> None:
    async def main() -> None:
        fickle = Fickle(99)
        async with serving(fickle) as server, calling() as client:
            outcome = await outcome_of(client, address(server), started=started)
            assert isinstance(outcome, RemotingSendRequestError)
            assert len(fickle.opaques) == 2

    run(main())


@pytest.mark.parametrize("started", [False, True])
def test_go_away_can_be_handled_less(run: Run, started: bool) -> None:
    async def main() -> None:
        fickle = Fickle(99)
        async with serving(fickle) as server:
            async with calling(config=NetConfig(retry_on_go_away=False)) as client:
                outcome = await outcome_of(client, address(server), started=started)
                assert isinstance(outcome, RemotingSendRequestError)
            async with calling(config=NetConfig(reconnect_on_go_away=False)) as client:
                outcome = await outcome_of(client, address(server), started=started)
                assert isinstance(outcome, RemotingCommand)
                assert outcome.code == GO_AWAY
        assert len(fickle.opaques) == 2

    run(main())


def test_port_in_use_and_unknown_host_are_errors_with_a_remedy(run: Run) -> None:
    async def main() -> None:
        async with serving() as server:
            with pytest.raises(ListenError, match=f"127.0.0.1:{server.port}.*choose another address"):
                await RemotingServer(echo, port=server.port).start()
            with pytest.raises(ListenError, match=r"no.such.host.invalid:0"):
                await RemotingServer(echo, host="no.such.host.invalid").start()

    run(main())


def test_closed_client_fails_its_calls_and_makes_no_new_ones(run: Run) -> None:
    async def main() -> None:
        async with serving(lambda _connection, _request: None) as server:
            client = RemotingClient()
            call = asyncio.ensure_future(client.call(address(server), request(), 10_000))
            await until(lambda: client.connections and client.connections[0].in_flight)
            started = client.start("127.0.0.1:1", request(), 10_000)
            await client.close()
            for one in (call, started):
                with pytest.raises(RemotingSendRequestError):
                    await one
            with pytest.raises(RemotingConnectError, match="this client is closed"):
                await client.call(address(server), request(), 1_000)
            await client.close()

    run(main())
