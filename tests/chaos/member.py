"""A member of a group in a process of its own, with a clock that may run wrong.

    python -m tests.chaos.member ID PEERS FOLDER RATE HEART_BEAT_MS

Its clock runs RATE times as fast as the machine's, and SIGUSR1 sets it two seconds ahead.
"""

import asyncio
import signal
import sys

from pyledger.clock import SystemClock
from pyledger.config.dledger import UPSTREAM_TIMES, DLedgerConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.servers.dledger.server import DLedgerServer

JUMP_MS = 2000
SIZES = DLedgerStoreConfig(data_file_size_bytes=1 << 16, index_file_size_bytes=1 << 12)


class WrongClock(SystemClock):
    """The machine's clock, faster or slower, and set by jumps."""

    def __init__(self, rate: float) -> None:
        self.rate, self.ahead_ms = rate, 0

    def monotonic_ms(self) -> int:
        return int(super().monotonic_ms() * self.rate) + self.ahead_ms

    def jump(self) -> None:
        self.ahead_ms += JUMP_MS


async def work(self_id: str, peers: str, folder: str, rate: float, heart_beat_ms: int) -> None:
    clock = WrongClock(rate)
    times = {
        "heart_beat_time_interval_ms": heart_beat_ms,
        "max_heart_beat_leak": 3,
        "heart_beat_jitter_ms": heart_beat_ms // 2,
    }
    if heart_beat_ms >= UPSTREAM_TIMES["heart_beat_time_interval_ms"]:
        times = UPSTREAM_TIMES  # Java's nodes are in the group
    config = DLedgerConfig(**times)  # type: ignore[arg-type]
    server = DLedgerServer("g", self_id, peers, folder, config=config, store=SIZES, clock=clock)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, clock.jump)
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await server.start()
    print("READY", flush=True)
    assert server.ended is not None
    ends = [asyncio.ensure_future(one.wait()) for one in (stopped, server.ended)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for one in ends:
        one.cancel()
    await server.close()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:4], float(sys.argv[4]), int(sys.argv[5])))
