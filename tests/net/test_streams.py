"""What peers may do to a connection: cut frames, not read, stay silent, send rubbish, come in numbers."""

import asyncio
import resource
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.config.net import NetConfig
from pyledger.model.remoting_codes import RequestCode
from pyledger.net.endpoint import Answer, Frame
from pyledger.net.loop import loop_factory
from pyledger.net.outbox import SEND_BUFFERS_MAX, Outbox
from pyledger.net.remoting.connection import UNEXPECTED_REMARK, Connection
from pyledger.wire.remoting.command import RemotingCommand, encode_frame
from pyledger.wire.remoting.headers.send import SendMessageRequestHeader
from pyledger.wire.remoting.native_codec import DecodedRequest
from tests.net.conftest import Run
from tests.net.peers import ECHO, RawPeer, address, calling, echo, raw, serving, until


def frame(opaque: int, body: bytes = b"", **fields: str) -> bytes:
    command = RemotingCommand.request(ECHO, ext_fields=fields, body=body)
    command.opaque = opaque
    return encode_frame(command)


def test_frames_may_come_byte_by_byte(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw(server.port) as peer:
            peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            data = frame(1, b"one") + frame(2, b"two")
            for position in range(len(data)):
                await peer.send(data[position : position + 1])
                await asyncio.sleep(0)
            answers = [await peer.receive() for _ in range(2)]
            assert [(one.opaque, bytes(one.body)) for one in answers] == [(1, b"one"), (2, b"two")]

    run(main())


def test_many_frames_at_once_are_all_answered(run: Run) -> None:
    async def main() -> None:
        async with serving() as server, raw(server.port) as peer:
            await peer.send(b"".join(frame(number, b"b" * number) for number in range(1_000)))
            for number in range(1_000):
                answer = await peer.receive()
                assert (answer.opaque, len(answer.body)) == (number, number)

    run(main())


@pytest.mark.parametrize("size", [1 << 20, (16 << 20) - 300])
def test_large_frames_pass_whole(run: Run, size: int) -> None:
    async def main() -> None:
        body = bytes(range(256)) * (size // 256)
        async with serving() as server, calling() as client:
            command = RemotingCommand.request(ECHO, body=body)
            answer = await client.call(address(server), command, 30_000)
            assert answer.body == body

    run(main())


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x01\x00\x00\x00",  # announces 16 MiB
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
        b"\x00\x00\x00\x08\x00\x00\x00\x63{}{}",  # header longer than the frame
        b"\x00\x00\x00\x08\x05\x00\x00\x02{}  ",  # unknown serialize type
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",
    ],
)
def test_bad_frame_closes_its_connection_only(
    run: Run, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as server, raw(server.port) as bad, raw(server.port) as good:
            await good.request(RemotingCommand.request(ECHO))
            await bad.send(rubbish)
            assert await bad.ended()
            assert (await good.request(RemotingCommand.request(ECHO))).code == 0

    with caplog.at_level("WARNING", logger="pyledger"):
        run(main())
    assert [record.getMessage().split(" peer=")[0] for record in caplog.records] == ["frame rejected"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=64) | st.just(frame(5)), min_size=1, max_size=6))
def test_any_bytes_get_answers_or_a_closed_connection(parts: list[bytes]) -> None:
    async def main() -> None:
        problems: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        async with asyncio.timeout(100), serving() as server:
            async with raw(server.port) as peer:
                await peer.send(b"".join(parts))
                peer.socket.shutdown(socket.SHUT_WR)
                try:
                    while True:
                        assert (await peer.receive()).is_response
                except ConnectionError:
                    pass
            async with raw(server.port) as after:
                assert (await after.request(RemotingCommand.request(ECHO))).code == 0
        assert not problems

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def test_peer_that_does_not_read_is_not_read_from(run: Run) -> None:
    async def main() -> None:
        handled = 0
        part = bytes(64 << 10)

        def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            nonlocal handled
            handled += 1
            return command.response(0, body=part)

        config = NetConfig(write_high_water_mark_bytes=512 << 10, write_low_water_mark_bytes=64 << 10)
        count = 1_000
        async with serving(handler, config=config) as server, raw(server.port, receive_bytes=8192) as peer:
            await peer.send(b"".join(frame(number) for number in range(count)))
            await until(lambda: server.connections and server.connections[0].congested)
            (connection,) = server.connections
            for _ in range(50):
                await asyncio.sleep(0)
                assert connection.queued_bytes <= (512 << 10) + len(part) + 1000
            assert handled < count
            # Somebody else is served meanwhile, and the slow one gets everything once it reads.
            async with raw(server.port) as other:
                assert (await other.request(RemotingCommand.request(ECHO))).code == 0
            for number in range(count):
                answer = await peer.receive()
                assert answer.opaque == number
                assert len(answer.body) == len(part)
            assert handled == count + 1

    run(main())


def test_requests_of_a_peer_that_does_not_read_stay_in_the_kernel(run: Run) -> None:
    async def main() -> None:
        def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            return command.response(0, body=command.body)

        async with serving(handler) as server, raw(server.port, receive_bytes=8192) as peer:
            chunk = frame(1, bytes((256 << 10) - 200))
            taken_bytes = 0
            for _ in range(1_000):
                try:
                    taken_bytes += peer.socket.send(memoryview(chunk)[taken_bytes % len(chunk) :])
                except BlockingIOError:
                    await asyncio.sleep(0)
            # The buffers of both sockets, and what the server may have to write.
            assert taken_bytes < 40 << 20

    run(main())


def test_connection_with_too_much_to_write_is_aborted(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        # Answers to held requests are not throttled by reading less: the hard limit bounds them.
        config = NetConfig(
            write_high_water_mark_bytes=1 << 20,
            write_low_water_mark_bytes=1 << 20,
            write_backlog_max_bytes=4 << 20,
        )
        async with (
            serving(lambda _connection, _request: None, config=config) as server,
            raw(server.port, receive_bytes=8192) as peer,
        ):
            await peer.send(frame(1))
            await until(lambda: server.connections)
            (connection,) = server.connections
            for _ in range(1_000):
                connection.send(RemotingCommand(0, flag=1, body=bytes(1 << 20)))
                assert connection.queued_bytes <= (5 << 20) + 1000
            assert connection.closed
            await until(lambda: not server.connections)

    run(main())
    assert caplog.text.count("peer does not read") == 1


def test_requests_being_processed_are_bounded(run: Run) -> None:
    async def main() -> None:
        gate, running, most = asyncio.Event(), 0, 0

        async def handler(_connection: Connection, command: RemotingCommand) -> Answer:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
            return command.response(0)

        async with serving(handler, config=NetConfig(requests_max=10)) as server, raw(server.port) as peer:
            await peer.send(b"".join(frame(number) for number in range(100)))
            await until(lambda: running == 10)
            for _ in range(20):
                await asyncio.sleep(0)
            gate.set()
            assert {(await peer.receive()).opaque for _ in range(100)} == set(range(100))
            assert most == 10

    run(main())


def test_views_are_sent_as_they_are_and_kept_until_written(run: Run) -> None:
    async def main() -> None:
        mapped = bytearray(bytes(range(256)) * (32 << 10))  # 8 MiB
        half = len(mapped) // 2

        def handler(connection: Connection, command: RemotingCommand) -> Answer:
            view = memoryview(mapped)
            answer = command.response(0, body=b"head")
            connection.send(answer, [view[:100], view[100:half], view[half:]])
            return None

        async with serving(handler) as server, raw(server.port, receive_bytes=8192) as peer:
            await peer.send(frame(3))
            await until(lambda: server.connections and server.connections[0].queued_bytes)
            # A bytearray with an exported view cannot change its size: the views are still held.
            with pytest.raises(BufferError):
                mapped.append(0)
            answer = await peer.receive()
            assert answer.opaque == 3
            assert answer.body == b"head" + bytes(mapped)
            await until(lambda: not server.connections[0].queued_bytes)
            mapped.append(0)

    run(main())


class Pipe:
    """A transport that says when it is blocked, over a real pair of sockets."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.rest = b""
        self.outbox = Outbox(self, self.near)  # type: ignore[arg-type]

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.rest += data
        self.outbox.blocked = True

    def drain(self) -> bytes:
        got = self.far.recv(1 << 22) + self.rest
        self.rest, self.outbox.blocked = b"", False
        return got


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40).map(lambda n: n**4), max_size=40), st.integers(0, SEND_BUFFERS_MAX * 2))
def test_outbox_writes_every_byte_once_and_in_order(sizes: list[int], small: int) -> None:
    pipe = Pipe()
    with pipe.near, pipe.far:
        parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
        parts += [bytes([number % 7, 9]) for number in range(small)]
        for part in parts:
            pipe.outbox.put(memoryview(part))
        wanted = b"".join(parts)
        assert pipe.outbox.queued_bytes == len(wanted)
        got = bytearray()
        while len(got) < len(wanted):
            pipe.outbox.flush()
            got += pipe.drain()
        assert got == wanted
        assert pipe.outbox.queued_bytes == 0
        assert pipe.outbox.written_bytes == len(wanted)


def test_idle_connection_is_closed_and_a_busy_one_is_not(run: Run) -> None:
    async def main() -> None:
        async with (
            serving(config=NetConfig(server_idle_seconds=1)) as server,
            raw(server.port) as idle,
            raw(server.port) as busy,
        ):
            await busy.request(RemotingCommand.request(ECHO))
            closed = asyncio.ensure_future(idle.ended())
            while not closed.done():
                await busy.request(RemotingCommand.request(ECHO))
            assert closed.result()
            assert len(server.connections) == 1

    run(main())


def test_peer_that_stopped_reading_for_good_is_closed_and_its_views_are_freed(run: Run) -> None:
    async def main() -> None:
        mapped = bytearray(32 << 20)

        def handler(connection: Connection, command: RemotingCommand) -> Answer:
            connection.send(command.response(0), [memoryview(mapped)])
            return None

        config = NetConfig(server_idle_seconds=1)
        async with (
            serving(handler, config=config) as server,
            raw(server.port, receive_bytes=8192) as peer,
        ):
            await peer.send(frame(1))
            await until(lambda: server.connections)
            await until(lambda: not server.connections)
            mapped.append(0)

    run(main())


def test_broken_connection_in_the_middle_of_a_write_is_only_closed(run: Run) -> None:
    async def main() -> None:
        async with serving(lambda _, command: command.response(0, body=bytes(8 << 20))) as server:
            for _ in range(5):
                async with raw(server.port, receive_bytes=8192) as peer:
                    await peer.send(frame(1) * 3)
                    await until(lambda: server.connections and server.connections[0].queued_bytes)
                    # Closing with unread bytes resets the connection.
                await until(lambda: not server.connections)

    run(main())


def test_connections_beyond_the_limit_are_closed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with (
            serving(config=NetConfig(connections_max=2)) as server,
            raw(server.port) as first,
            raw(server.port) as second,
        ):
            for peer in (first, second):
                await peer.request(RemotingCommand.request(ECHO))
            for _ in range(3):
                async with raw(server.port) as third:
                    assert await third.ended()
            first.socket.close()
            await until(lambda: len(server.connections) == 1)
            async with raw(server.port) as fourth:
                assert (await fourth.request(RemotingCommand.request(ECHO))).code == 0

    run(main())
    assert caplog.text.count("too many connections") == 1


def test_server_without_file_descriptors_waits_and_goes_on(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        async with serving() as server, raw(server.port) as before:
            await before.request(RemotingCommand.request(ECHO))
            with socket.socket() as plain:
                plain.setblocking(False)
                # A new descriptor is the lowest that is free, so none is free below this one.
                resource.setrlimit(resource.RLIMIT_NOFILE, (plain.fileno() + 1, hard))
                try:
                    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", server.port))
                    await until(lambda: "cannot accept" in caplog.text)
                    assert (await before.request(RemotingCommand.request(ECHO))).code == 0
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                assert (await RawPeer(plain).request(RemotingCommand.request(ECHO))).code == 0
        assert caplog.text.count("cannot accept") == 1, "it does not spin"

    run(main())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_thousand_idle_connections_cost_little_memory(run: Run) -> None:
    count = 1_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * count + 200:
        pytest.skip("too few file descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count + 200), hard))

    async def main() -> int:
        async with serving() as server:
            async with raw(server.port) as first:
                await first.request(RemotingCommand.request(ECHO))
            before = resident_bytes()
            peers: list[socket.socket] = []
            try:
                for _ in range(count):
                    peer = socket.socket()
                    peer.setblocking(False)
                    peers.append(peer)
                    await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", server.port))
                    one = RawPeer(peer)
                    assert (await one.request(RemotingCommand.request(ECHO, body=bytes(2000)))).code == 0
                assert len(server.connections) == count
                return resident_bytes() - before
            finally:
                for peer in peers:
                    peer.close()

    try:
        grown = run(main())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert grown < 20_000 * count


@pytest.mark.parametrize("later", [False, True])
def test_batches_are_answered_first_and_the_handler_gets_what_they_leave(run: Run, later: bool) -> None:
    async def main() -> None:
        seen: list[str] = []

        def answer_batch(
            _connection: Connection, frames: list[Frame], at: int
        ) -> tuple[bytes | asyncio.Future[bytes] | None, int]:
            answers, taken = b"", 0
            for request in frames[at:]:
                if not isinstance(request, DecodedRequest) or (taken and request.topic != "mine"):
                    break
                seen.append(request.topic)
                if request.topic == "broken":
                    raise RuntimeError("out of order")
                if request.topic != "mine":
                    break
                taken += 1
                if not request.is_oneway:
                    answers += encode_frame(RemotingCommand(0, flag=1, remark="batch", opaque=request.opaque))
            if not later or not taken:
                return answers, taken
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.01, future.set_result, answers)
            return future, taken

        async with serving(echo, answer_batch=answer_batch) as server, raw(server.port) as peer:
            topics = ("mine", "other", "broken")
            for number, topic in enumerate(topics):
                await peer.send(send_frame(number, topic))
            run = send_frame(4, "mine", oneway=True) + send_frame(6, "mine") + send_frame(7, "mine")
            await peer.send(frame(3) + run + frame(5))
            answers = {one.opaque: one for one in [await peer.receive() for _ in range(7)]}
            assert answers[0].remark == "batch"
            assert answers[1].ext_fields["topic"] == "other"
            assert (answers[2].code, answers[2].remark) == (1, UNEXPECTED_REMARK)
            assert answers.keys() == {0, 1, 2, 3, 5, 6, 7}
            assert seen == [*topics, "mine", "mine", "mine"]

    run(main())


def send_frame(opaque: int, topic: str, *, oneway: bool = False) -> bytes:
    """A send with all its fields."""
    header = SendMessageRequestHeader(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="UNIQ_KEY\x01U\x02",
    )
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE, header, b"x", oneway=oneway)
    command.opaque = opaque
    return encode_frame(command)
