"""Links between the members of a group, each way of each with a delay, in a process of their own.

    python -m benchmarks.peers.links DELAY_MS HOST:PORT...

Prints for each address, as one JSON list, where it is reached through the link.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.peers.brokers import program_environment
from pyledger.net.loop import run
from tests.chaos.links import Link


@contextmanager
def links_to(targets: Sequence[str], delay_ms: float) -> Iterator[list[str]]:
    """Addresses that lead to `targets`, until the end of the block."""
    words = [sys.executable, "-m", "benchmarks.peers.links", str(delay_ms), *targets]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=program_environment()
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.kill()


async def serve(delay_ms: float, targets: Sequence[str]) -> None:
    """Forward until stdin ends, as it does with the benchmark."""
    links = [Link(target, delay_s=delay_ms / 1000) for target in targets]
    for link in links:
        await link.start()
    print(json.dumps([link.address for link in links]), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    run(serve(float(sys.argv[1]), sys.argv[2:]))
