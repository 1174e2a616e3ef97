"""How many calls of remoting pass between two processes, and what does one cost the server?

A server in another process answers requests of 256 bytes with their body. `client` uses our client; `frames`
sends frames that are encoded already over a blocking socket and only counts what comes back, so that the
server is what is measured. `server_cpu_us` is the server's processor time for one request.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.processor_time import cpu_seconds
from pyledger.net.deferred import Deferred
from pyledger.net.loop import loop_factory
from pyledger.net.remoting.client import RemotingClient
from pyledger.wire.remoting.command import RemotingCommand, SerializeType, encode_frame

GROUP = "remoting: calls to an echo server"
BODY = bytes(range(256))
FIELDS = {"topic": "bench", "queueId": "3", "producerGroup": "group", "bornTimestamp": "1700000000000"}
IN_FLIGHT = 1_024


@dataclass(frozen=True)
class EchoServer:
    """A running server process."""

    process: "subprocess.Popen[str]"
    port: int

    def cpu_seconds(self) -> float:
        """Processor time that it has used, user and system."""
        return cpu_seconds(self.process.pid)


@pytest.fixture(params=["asyncio", "uvloop"], ids="loop={}".format)
def server(request: pytest.FixtureRequest) -> Iterator[EchoServer]:
    """A server on either event loop."""
    if request.param == "uvloop" and loop_factory() is asyncio.new_event_loop:
        pytest.skip("uvloop is not installed")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peers.echo_server", request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    with process:
        yield EchoServer(process, int(process.stdout.readline()))
        process.communicate()


def command() -> RemotingCommand:
    return RemotingCommand.request(310, ext_fields=FIELDS, body=BODY)


async def in_turn(port: int, count: int) -> int:
    client = RemotingClient()
    done = 0
    for _ in range(count):
        done += (await client.call(f"127.0.0.1:{port}", command(), 10_000)).body == BODY
    await client.close()
    return done


async def at_once(port: int, count: int) -> int:
    client = RemotingClient()
    address = f"127.0.0.1:{port}"
    await client.connect(address)
    finished = asyncio.get_running_loop().create_future()
    done, left = 0, count

    def start() -> None:
        nonlocal left
        left -= 1
        client.start(address, command(), 10_000).add_done_callback(answered)

    def answered(response: Deferred[RemotingCommand]) -> None:
        nonlocal done
        done += response.result().body == BODY
        if left:
            start()
        elif done == count:
            finished.set_result(None)

    for _ in range(min(IN_FLIGHT, count)):
        start()
    await finished
    await client.close()
    return done


def frames_at_once(port: int, count: int, serialize: SerializeType) -> int:
    one = command()
    one.serialize = serialize
    frame = encode_frame(one)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(frame)
        answer_bytes = 4 + int.from_bytes(peer.recv(4, socket.MSG_WAITALL))
        peer.recv(answer_bytes - 4, socket.MSG_WAITALL)
        buffer = bytearray(1 << 20)
        sent, received_bytes = 1, answer_bytes
        while sent < count:
            size = min(IN_FLIGHT // 2, count - sent)
            peer.sendall(frame * size)
            sent += size
            while received_bytes < (sent - IN_FLIGHT // 2) * answer_bytes:
                received_bytes += peer.recv_into(buffer)
        while received_bytes < count * answer_bytes:
            received_bytes += peer.recv_into(buffer)
    return received_bytes // answer_bytes


def measure(rounds: Rounds, server: EchoServer, act: object, count: int) -> None:
    begin = server.cpu_seconds()
    rounds.run(lambda: server.port, act, units=count, expected=count)  # type: ignore[arg-type]
    repeats = 6 if rounds.full else 1
    rounds.note(server_cpu_us=(server.cpu_seconds() - begin) * 1e6 / (repeats * count))


@pytest.mark.benchmark(group=GROUP)
def bench_client_in_turn(rounds: Rounds, server: EchoServer) -> None:
    count = 5_000 if rounds.full else 50
    measure(rounds, server, lambda port: run(in_turn(port, count)), count)


@pytest.mark.benchmark(group=GROUP)
def bench_client_1024_in_flight(rounds: Rounds, server: EchoServer) -> None:
    count = 50_000 if rounds.full else 2_000
    measure(rounds, server, lambda port: run(at_once(port, count)), count)


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize("serialize", list(SerializeType), ids=lambda one: f"header={one.name}")
def bench_frames_1024_in_flight(rounds: Rounds, server: EchoServer, serialize: SerializeType) -> None:
    count = 100_000 if rounds.full else 2_000
    measure(rounds, server, lambda port: frames_at_once(port, count, serialize), count)


def run(main: "asyncio.coroutines.Coroutine[None, None, int]") -> int:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
