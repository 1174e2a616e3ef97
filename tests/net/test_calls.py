"""Calls between a server and a client over real sockets."""

import asyncio
import socket

import pytest

from pyledger.config.net import NetConfig
from pyledger.errors import (
    InvariantError,
    MalformedMessageIdError,
    RemotingConnectError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from pyledger.net.endpoint import Answer
from pyledger.net.remoting.connection import UNEXPECTED_REMARK, Connection
from pyledger.net.remoting.request_table import HandlerTable
from pyledger.wire.remoting.command import RemotingCommand, SerializeType, encode_frame
from tests.net.conftest import Run
from tests.net.peers import ECHO, address, calling, echo, raw, serving, until


def request(body: bytes = b"", **fields: str) -> RemotingCommand:
    return RemotingCommand.request(ECHO, ext_fields=fields, body=body)


def hold(_connection: Connection, _request: RemotingCommand) -> Answer:
    return None


@pytest.mark.parametrize("serialize", list(SerializeType))
def test_call_gets_the_answer_to_its_own_request(run: Run, serialize: SerializeType) -> None:
    async def main() -> None:
        async with serving() as server, calling() as client:

            async def one(number: int) -> None:
                command = request(b"x" * number * 100, n=str(number))
                command.serialize = serialize
                answer = await client.call(address(server), command, 5_000)
                assert answer.ext_fields == {"n": str(number)}
                assert len(answer.body) == number * 100

            await asyncio.gather(*[one(number) for number in range(200)])
            assert len(client.connections) == 1
            assert not client.connections[0].in_flight

    run(main())


def test_answers_may_come_in_any_order(run: Run) -> None:
    async def main() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []

        def handler(connection: Connection, command: RemotingCommand) -> Answer:
            held.append((connection, command))
            if len(held) == 3:
                for peer, one in reversed(held):
                    peer.send(one.response(0, one.ext_fields["n"]))
            return None

        async with serving(handler) as server, calling() as client:
            calls = [client.call(address(server), request(n=str(n)), 5_000) for n in range(3)]
            assert [one.remark for one in await asyncio.gather(*calls)] == ["0", "1", "2"]

    run(main())


def test_awaitable_handlers_run_side_by_side(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Barrier(5)

        async def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            await gate.wait()
            return command.response(0, command.ext_fields["n"])

        async with serving(handler) as server, calling() as client:
            calls = [client.call(address(server), request(n=str(n)), 5_000) for n in range(5)]
            assert [one.remark for one in await asyncio.gather(*calls)] == ["0", "1", "2", "3", "4"]

    run(main())


def test_server_calls_its_client(run: Run) -> None:
    async def main() -> None:
        opened: list[Connection] = []
        async with serving(on_open=opened.append) as server, calling(echo) as client:
            await client.connect(address(server))
            await until(lambda: opened)
            answer = await opened[0].call(request(b"down", k="v"), 5_000)
            assert (bytes(answer.body), answer.ext_fields) == (b"down", {"k": "v"})

    run(main())


def test_failing_handler_answers_code_1_and_shows_only_errors_of_ours(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            raise MalformedMessageIdError("no such thing")

        async def later(_connection: Connection, command: RemotingCommand) -> Answer:
            raise ValueError("nor such")

        table = HandlerTable()
        table.register(1, handler)
        table.register(2, later)
        async with serving(table) as server, calling() as client:
            for code, remark in ((1, "MalformedMessageIdError: 'no such thing'"), (2, UNEXPECTED_REMARK)):
                answer = await client.call(address(server), RemotingCommand.request(code), 5_000)
                assert (answer.code, (answer.remark or "")[: len(remark)]) == (1, remark)
            # One-way: nothing comes back, and the connection lives on.
            await client.call_oneway(address(server), RemotingCommand.request(1), 5_000)
            answer = await client.call(address(server), RemotingCommand.request(3), 5_000)
            assert (answer.code, answer.remark) == (3, " request type 3 not supported")

    run(main())
    assert caplog.text.count("request failed") == 1


def test_requests_that_fail_one_after_another_have_one_traceback(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async def later(_connection: Connection, command: RemotingCommand) -> Answer:
            raise ValueError("no such thing")

        table = HandlerTable()
        table.register(2, later)
        async with serving(table) as server:
            for _ in range(3):
                async with calling() as client:
                    command = RemotingCommand.request(2)
                    calls = [client.call(address(server), command, 5_000) for _ in range(100)]
                    assert {one.remark for one in await asyncio.gather(*calls)} == {UNEXPECTED_REMARK}
            assert caplog.text.count("Traceback") == 1

    run(main())
    assert caplog.text.count("request failed peer=") == 1
    assert caplog.text.count("request failed again") == 1
    assert "count=299" in caplog.text


def test_handler_table_rejects_while_its_check_is_true(run: Run) -> None:
    async def main() -> None:
        busy = True
        table = HandlerTable()
        table.register(ECHO, echo, reject=lambda: busy)
        async with serving(table) as server, calling() as client:
            answer = await client.call(address(server), request(), 5_000)
            assert answer.code == 2
            assert answer.remark == "[REJECTREQUEST]system busy, start flow control for a while"
            busy = False
            assert (await client.call(address(server), request(), 5_000)).code == 0

    run(main())


def test_own_mistake_is_not_sent_to_the_peer(run: Run) -> None:
    async def main() -> None:
        problems: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context["exception"]))

        def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            raise InvariantError("two and two are five")

        async with serving(handler) as server, calling() as client:
            with pytest.raises(RemotingSendRequestError):
                await client.call(address(server), request(), 5_000)
        assert [type(one) for one in problems] == [InvariantError]

    run(main())


def test_oneway_gets_no_answer_even_if_the_handler_makes_one(run: Run) -> None:
    async def main() -> None:
        seen: list[bytes] = []

        def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            seen.append(bytes(command.body))
            return command.response(0)

        async with serving(handler) as server, raw(server.port) as peer:
            oneway = RemotingCommand.request(ECHO, body=b"first", oneway=True)
            second = request(b"second")
            second.opaque = 77
            await peer.send(encode_frame(oneway))
            answer = await peer.request(second)
            assert answer.opaque == 77
            assert seen == [b"first", b"second"]

    run(main())


def test_flood_of_oneway_requests_arrives_whole_and_bounded(run: Run) -> None:
    async def main() -> None:
        count, size, high = 20_000, 300, 256 << 10
        arrived = 0
        most_queued = 0

        def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            nonlocal arrived
            arrived += 1
            return command.response(0)

        config = NetConfig(write_high_water_mark_bytes=high, write_low_water_mark_bytes=high // 4)
        async with serving(handler) as server, calling(config=config) as client:
            connection = await client.connect(address(server))
            for _ in range(count):
                await client.call_oneway(address(server), request(b"x" * size), 10_000)
                most_queued = max(most_queued, connection.queued_bytes)
            await until(lambda: arrived == count)
            assert most_queued < high + 2 * size + 1000
            assert connection.endpoint.oneway_permits.free == config.client_oneway_permits

    run(main())


def test_calls_of_more_than_the_backlog_wait_until_they_can_be_queued(run: Run) -> None:
    async def main() -> None:
        config = NetConfig(
            write_high_water_mark_bytes=1 << 20,
            write_low_water_mark_bytes=256 << 10,
            write_backlog_max_bytes=4 << 20,
        )
        async with serving() as server, calling(config=config) as client:
            calls = [client.call(address(server), request(bytes(1 << 20)), 30_000) for _ in range(60)]
            for answer in await asyncio.gather(*calls):
                assert len(answer.body) == 1 << 20

    run(main())


def test_request_beyond_the_backlog_is_rejected_and_others_are_answered(run: Run) -> None:
    async def main() -> None:
        config = NetConfig(write_backlog_max_bytes=4 << 20)
        async with serving() as server, calling(config=config) as client:
            connection = await client.connect(address(server))
            responses = []
            while connection.queued_bytes < 2 << 20:
                responses.append(client.start(address(server), request(bytes(1 << 20)), 30_000))
            with pytest.raises(RemotingTooMuchRequestError, match="write_backlog_max_bytes"):
                connection.call_oneway(request(bytes(4 << 20)))
            with pytest.raises(RemotingTooMuchRequestError, match="write_backlog_max_bytes"):
                await connection.call(request(bytes(4 << 20)), 30_000)
            assert connection.endpoint.oneway_permits.free == config.client_oneway_permits
            for response in responses:
                assert len((await response).body) == 1 << 20
            assert connection.endpoint.async_permits.free == config.client_async_permits
            assert not connection.closed

    run(main())


def test_late_answer_times_out_and_is_dropped(run: Run) -> None:
    async def main() -> None:
        held: list[tuple[Connection, RemotingCommand]] = []

        def handler(connection: Connection, command: RemotingCommand) -> Answer:
            if "hold" not in command.ext_fields:
                return command.response(0)
            held.append((connection, command))
            return None

        config = NetConfig(close_socket_on_timeout=False)
        async with serving(handler) as server, calling(config=config) as client:
            with pytest.raises(RemotingTimeoutError, match="within 50 ms"):
                await client.call(address(server), request(hold="1"), 50)
            peer, late = held[0]
            peer.send(late.response(0, "too late"))
            assert (await client.call(address(server), request(), 5_000)).remark is None
            assert len(client.connections) == 1

    run(main())


def test_timeout_on_a_silent_connection_closes_it(run: Run) -> None:
    async def main() -> None:
        closed: list[Connection] = []
        async with serving(hold) as server, calling(on_close=closed.append) as client:
            with pytest.raises(RemotingTimeoutError):
                await client.call(address(server), request(), 150)
            await until(lambda: closed)
            assert not client.connections

    run(main())


def test_timeout_on_a_talking_connection_leaves_it_open(run: Run) -> None:
    async def main() -> None:
        def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            return None if "hold" in command.ext_fields else command.response(0)

        async with serving(handler) as server, calling() as client:
            late = asyncio.ensure_future(client.call(address(server), request(hold="1"), 150))
            while not late.done():
                await client.call(address(server), request(), 5_000)
            assert isinstance(late.exception(), RemotingTimeoutError)
            assert len(client.connections) == 1

    run(main())


def test_call_without_permit_waits_its_time_and_fails(run: Run) -> None:
    async def main() -> None:
        config = NetConfig(client_async_permits=2, close_socket_on_timeout=False)
        async with serving(hold) as server, calling(config=config) as client:
            two = [asyncio.ensure_future(client.call(address(server), request(), 5_000)) for _ in range(2)]
            await until(lambda: client.connections and len(client.connections[0].in_flight) == 2)
            with pytest.raises(RemotingTooMuchRequestError, match="2 calls are in flight"):
                await client.call(address(server), request(), 50)
            with pytest.raises(RemotingTooMuchRequestError, match="client_async_permits"):
                client.start(address(server), request(), 1_000).result()
            # A cancelled call gives its permit to the next in line.
            third = asyncio.ensure_future(client.call(address(server), request(), 5_000))
            await asyncio.sleep(0)
            two[0].cancel()
            await until(lambda: len(client.connections[0].in_flight) == 2)
            for one in (two[1], third):
                one.cancel()
            await asyncio.gather(*two, third, return_exceptions=True)
            assert client.connections[0].endpoint.async_permits.free == 2

    run(main())


def test_started_request_completes_with_its_response_or_the_error(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, calling() as client:
            # The first connects, the second uses that connection.
            for number in range(2):
                response = await client.start(address(server), request(n=str(number)), 5_000)
                assert response.ext_fields == {"n": str(number)}
            with pytest.raises(RemotingConnectError):
                await client.start("127.0.0.1:1", request(), 5_000)

    run(main())


def test_lost_connection_fails_its_calls_and_the_next_call_connects_again(run: Run) -> None:
    async def main() -> None:
        def handler(connection: Connection, command: RemotingCommand) -> Answer:
            if "cut" in command.ext_fields:
                connection.abort()
            return command.response(0)

        async with serving(handler) as server, calling() as client:
            with pytest.raises(RemotingSendRequestError):
                await client.call(address(server), request(cut="1"), 5_000)
            assert (await client.call(address(server), request(), 5_000)).code == 0

    run(main())


@pytest.mark.parametrize("where", ["127.0.0.1:1", "127.0.0.1", "127.0.0.1:x", ":9", "no.such.host.invalid:9"])
def test_connect_error_names_the_address(run: Run, where: str) -> None:
    async def main() -> None:
        async with calling() as client:
            with pytest.raises(RemotingConnectError) as caught:
                await client.call(where, request(), 5_000)
            assert caught.value.address == where

    run(main())


def test_connect_to_a_host_that_does_not_answer_is_given_up_in_time(run: Run) -> None:
    async def main() -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            # Whoever comes after the queue of the listener is full gets no answer at all.
            first = [socket.socket() for _ in range(4)]
            for one in first:
                one.setblocking(False)
                one.connect_ex(deaf.getsockname())
            where = f"127.0.0.1:{deaf.getsockname()[1]}"
            async with calling(config=NetConfig(connect_timeout_ms=200)) as client:
                calls = [client.call(where, request(), 5_000) for _ in range(3)]
                for error in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(error, RemotingConnectError)
                    assert "within 200 ms" in str(error)
                with pytest.raises(RemotingConnectError, match="no answer within"):
                    await client.call(where, request(), 50)
            for one in first:
                one.close()

    run(main())


def test_handler_table_and_connection_remember_the_peer(run: Run) -> None:
    async def main() -> None:
        peers: list[Connection] = []
        async with serving(on_close=peers.append) as server, raw(server.port) as peer:
            command = request()
            command.version, command.language = 399, 9
            await peer.request(command)
            host, port = peer.socket.getsockname()
            (connection,) = server.connections
            assert connection.remote_address == f"{host}:{port}"
            assert (connection.version, connection.language) == (399, 9)
            assert not connection.closed
            peer.socket.close()
            await until(lambda: peers)
            assert peers == [connection]
            assert connection.closed

    run(main())
