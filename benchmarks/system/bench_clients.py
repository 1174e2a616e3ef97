"""How fast are our clients with our broker, which runs in a process of its own on the same machine?

Messages have 256 bytes; each case counts what was stored or consumed. `client_cpu_us` and `broker_cpu_us` are
the processor time of the two processes for one message. `send` is one call after the other: with threads,
each wakes the event loop and is woken by it. A batch request has 32 messages, and 32 requests are in flight.
A drain gives each listener up to 32 messages, or 1,024 with `pull=1024`, and reads their bodies.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.processor_time import cpu_seconds
from pyledger.client import AsyncProducer, AsyncPushConsumer, Message, Producer, ReceivedMessage
from pyledger.net.loop import loop_factory

GROUP = "clients: messages to and from our broker"
TOPIC = "bench_clients"
BODY = bytes(range(256))
BATCH_COUNT = 32
LARGE_BATCH_COUNT = 1_000
LARGE_PULLS: dict[str, Any] = {"pull_batch_count": 1024, "cached_count_max": 20_000, "span_max": 60_000}


@dataclass(frozen=True)
class Server:
    """A running name server and broker."""

    process: "subprocess.Popen[str]"
    address: str

    def cpu_seconds(self) -> float:
        """Processor time that it has used, user and system."""
        return cpu_seconds(self.process.pid)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A broker with an empty store."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peers.dev_server", str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    with process:
        yield Server(process, process.stdout.readline().strip())
        process.communicate()


def measure(rounds: Rounds, server: Server, act: Callable[[Server], int], count: int) -> None:
    """Run a case; note what a message takes of both processes."""
    broker_s, client_s = server.cpu_seconds(), time.process_time()
    rounds.run(lambda: server, act, units=count, expected=count)
    messages = count * (6 if rounds.full else 1)
    rounds.note(
        broker_cpu_us=(server.cpu_seconds() - broker_s) * 1e6 / messages,
        client_cpu_us=(time.process_time() - client_s) * 1e6 / messages,
    )


def run(main: Coroutine[None, None, int]) -> int:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


async def send_in_turn(server: Server, count: int) -> int:
    async with AsyncProducer("bench", server.address) as producer:
        return len({(await producer.send(Message(TOPIC, BODY))).offset_msg_id for _ in range(count)})


def send_in_turn_with_threads(server: Server, count: int) -> int:
    with Producer("bench", server.address) as producer:
        return len({producer.send(Message(TOPIC, BODY)).offset_msg_id for _ in range(count)})


async def send_many(server: Server, count: int) -> int:
    async with AsyncProducer("bench", server.address, sends_in_flight_max=1024) as producer:
        results = await producer.send_many(Message(TOPIC, BODY) for _ in range(count))
        return len({result.offset_msg_id for result in results})


async def send_batches(server: Server, count: int, size: int = BATCH_COUNT) -> int:
    """The messages are made before; making one takes longer than sending it."""
    batch = [Message(TOPIC, BODY) for _ in range(size)]
    async with AsyncProducer("bench", server.address, sends_in_flight_max=32) as producer:
        results = await producer.send_many([batch] * (count // size))
        return sum(result.offset_msg_id.count(",") + 1 for result in results)


async def drain(server: Server, group: str, count: int, options: dict[str, Any]) -> int:
    """Consume all that a group has not seen; every message has a unique key of its own."""
    got = body_bytes = 0
    done = asyncio.Event()

    async def listen(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal got, body_bytes
        got += len(messages)
        for message in messages:
            body_bytes += len(message.body)
        if got >= count:
            done.set()

    consumer = AsyncPushConsumer(
        group, server.address, batch_listener=listen, consume_from="first_offset", **options
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await done.wait()
    assert body_bytes == got * len(BODY)
    return got


@pytest.mark.benchmark(group=GROUP)
def bench_send_in_turn(rounds: Rounds, server: Server) -> None:
    count = 5_000 if rounds.full else 50
    measure(rounds, server, lambda to: run(send_in_turn(to, count)), count)


@pytest.mark.benchmark(group=GROUP)
def bench_send_in_turn_with_threads(rounds: Rounds, server: Server) -> None:
    count = 5_000 if rounds.full else 50
    measure(rounds, server, lambda to: send_in_turn_with_threads(to, count), count)


@pytest.mark.benchmark(group=GROUP)
def bench_send_1024_in_flight(rounds: Rounds, server: Server) -> None:
    count = 200_000 if rounds.full else 2_000
    measure(rounds, server, lambda to: run(send_many(to, count)), count)


@pytest.mark.benchmark(group=GROUP)
def bench_send_batches_of_32(rounds: Rounds, server: Server) -> None:
    count = 32 * 25_000 if rounds.full else 3_200
    measure(rounds, server, lambda to: run(send_batches(to, count)), count)


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize("pull", [32, 1024], ids="pull={}".format)
def bench_drain(rounds: Rounds, server: Server, pull: int) -> None:
    """The time includes joining the group; each round does it with a group of its own."""
    count = 1_000_000 if rounds.full else 5_000
    run(send_batches(server, count, LARGE_BATCH_COUNT))
    options: dict[str, Any] = {"batch_count_max": pull, **(LARGE_PULLS if pull > BATCH_COUNT else {})}
    groups = iter(range(100))
    measure(rounds, server, lambda to: run(drain(to, f"drain{next(groups)}", count, options)), count)
