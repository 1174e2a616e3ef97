"""What a kill costs: a broker is killed with SIGKILL while it takes messages, and loses none that it took.

Starts `pyledger serve` as a process, sends messages of 256 bytes in batches, kills the process in the
middle, starts it again, sends the rest, and consumes everything. Each message is counted: all that was
acknowledged must be there, and twice only what was sent again because its acknowledgement did not come. Run
it with `make smoke`.
"""

import argparse
import asyncio
import logging
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyledger import AsyncProducer, AsyncPullConsumer, Message, PyLedgerError
from pyledger.client import ClientConfig

TOPIC = "smoke"
BODY_BYTES = 256
BATCH = 32
SENDERS = 8
PAUSE_S = 0.05


class Node:
    """`pyledger serve` as a process that can be killed and started again."""

    def __init__(self, folder: Path, *, sync_flush: bool) -> None:
        self.folder = folder
        self.ports = free_ports(2)
        self._options = ["--sync-flush"] if sync_flush else []
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """Where its name server listens."""
        return f"127.0.0.1:{self.ports[0]}"

    def start(self) -> float:
        """Start it; returns the seconds until it is ready."""
        begin = time.perf_counter()
        listen, broker_listen = (f"127.0.0.1:{port}" for port in self.ports)
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "pyledger", "serve", "--store", str(self.folder),
                "--listen", listen, "--broker-listen", broker_listen, "--log-level", "error", *self._options,
            ],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("READY"):
            sys.exit("the broker did not start")
        return time.perf_counter() - begin

    def kill(self) -> None:
        """Let it do nothing more, not even close its files."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@dataclass
class Sent:
    """What became of what was sent."""

    count: int
    numbers: Iterator[int] = field(init=False)
    acknowledged: int = 0
    unsure: set[int] = field(default_factory=set)
    """Messages that were sent again: the first attempt may be stored, too."""
    half: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.numbers = iter(range(0, self.count, BATCH))


def body_of(number: int) -> bytes:
    """The body of a message; its number stands in front."""
    return b"%012d" % number + b"x" * (BODY_BYTES - 12)


async def send_all(producer: AsyncProducer, sent: Sent) -> None:
    """Send batches until there are none left; each until it is acknowledged."""
    for first in sent.numbers:
        numbers = range(first, min(first + BATCH, sent.count))
        messages = [Message(TOPIC, body_of(number)) for number in numbers]
        while True:
            try:
                await producer.send(messages)
                break
            except PyLedgerError:
                sent.unsure.update(numbers)
                await asyncio.sleep(PAUSE_S)
        sent.acknowledged += len(numbers)
        if sent.acknowledged * 2 >= sent.count:
            sent.half.set()


async def consume_all(address: str) -> Counter[int]:
    """How often each message is there."""
    found: Counter[int] = Counter()
    async with AsyncPullConsumer("smoke", address) as consumer:

        async def read(queue: object) -> None:
            at, end = 0, await consumer.max_offset(queue)
            while at < end:
                page = await consumer.pull(queue, at, count_max=1024)
                found.update(int(message.body[:12]) for message in page.messages)
                assert page.next_offset > at, f"{queue} does not go on at {at} of {end}"
                at = page.next_offset

        await asyncio.gather(*(read(queue) for queue in await consumer.queues(TOPIC)))
    return found


async def kill_in_the_middle(node: Node, sent: Sent) -> float:
    """Kill the broker when half is acknowledged; the seconds that the new one needs until it serves."""
    await sent.half.wait()
    node.kill()
    return await asyncio.to_thread(node.start)


async def play(folder: Path, count: int, *, sync_flush: bool) -> bool:
    """Send, kill, send on, consume, count; whether nothing is lost."""
    node, sent = Node(folder, sync_flush=sync_flush), Sent(count)
    print(f"ready in {node.start() * 1000:.0f} ms, flush {'sync' if sync_flush else 'async'}")
    try:
        begin = time.perf_counter()
        async with AsyncProducer("smoke", client=ClientConfig(name_servers=node.address)) as producer:
            senders = [send_all(producer, sent) for _ in range(SENDERS)]
            restart_s, *_ = await asyncio.gather(kill_in_the_middle(node, sent), *senders)
        elapsed_s = time.perf_counter() - begin
        print(f"{count:,} messages acknowledged, {count / elapsed_s:,.0f}/s with a kill and a restart")
        print(f"killed in the middle, ready again after {restart_s * 1000:.0f} ms")
        begin = time.perf_counter()
        found = await consume_all(node.address)
        elapsed_s = time.perf_counter() - begin
        print(f"{found.total():,} messages consumed, {found.total() / elapsed_s:,.0f}/s")
    finally:
        node.kill()
    lost = count - len(found)
    twice = {number for number, times in found.items() if times > 1}
    print(f"lost {lost:,}; stored twice {len(twice):,}, sent again without an answer {len(sent.unsure):,}")
    return not lost and twice <= sent.unsure


def main() -> None:
    """Play both ways of flushing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--flush", choices=["sync", "async", "both"], default="both")
    options = parser.parse_args()
    logging.getLogger("pyledger").setLevel(logging.ERROR)  # that the broker is away is the point of it
    kinds = ["sync", "async"] if options.flush == "both" else [options.flush]
    for kind in kinds:
        folder = Path(tempfile.mkdtemp(prefix="pyledger-smoke-"))
        try:
            good = asyncio.run(play(folder / "store", options.messages, sync_flush=kind == "sync"))
        finally:
            shutil.rmtree(folder)
        if not good:
            sys.exit("a message that was acknowledged is lost, or one is stored twice without a reason")


if __name__ == "__main__":
    main()
