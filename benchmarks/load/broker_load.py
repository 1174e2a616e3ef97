"""A light load for a broker: the same frames for any broker, from a native program over one connection.

    python -m benchmarks.load.broker_load 127.0.0.1:10911 --pid 4711

prints, for each kind of load, the rate and the processor time that process 4711, the broker, took for one
message. Any broker of RocketMQ's remoting protocol will do: it has to create topics and groups on first use,
or to know `bench_load` with queue 0 and the group `bench_load_group`. Needs a C compiler.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.load.frames import BATCH, FrameSource
from pyledger.model.remoting_codes import ResponseCode
from pyledger.wire.remoting.command import SerializeType, decode
from pyledger.wire.remoting.framing import FrameDecoder

SOURCE = Path(__file__).with_name("frame_load.c")
COMPILER = os.environ.get("CC", "cc")
KINDS = {"sync": 1, "senders": 64, "async": 1_024, "batch": 64, "pull": 64}
"""Requests in flight, by kind of load."""
FRAMES_BYTES = 8 << 20
"""The frames of a load are sent again and again; so large are they together."""
PULL_FRAMES = 2_000
DISPATCH_TIMEOUT_S = 30


@cache
def program() -> Path:
    """The compiled load, made once a process."""
    if shutil.which(COMPILER) is None:
        raise FileNotFoundError(f"no C compiler: {COMPILER}")
    built = Path(tempfile.mkdtemp(prefix="frame_load-")) / "frame_load"
    subprocess.run([COMPILER, "-O2", "-o", str(built), str(SOURCE)], check=True)
    return built


@dataclass(frozen=True)
class BrokerLoad:
    """Loads for one running broker."""

    host: str
    port: int
    pid: int
    source: FrameSource
    frames_bytes: int = FRAMES_BYTES

    def run(self, kind: str, *, warm_up_s: float, seconds: float, rate: int = 0) -> dict[str, Any]:
        """One kind of load, every message of which is counted; what it cost.

        Args:
            kind: One of `KINDS`. A pull reads what others have stored.
            warm_up_s: Seconds before the measured ones.
            seconds: How long to measure.
            rate: Requests due each second, whatever comes back; 0: as fast as answers come.
        """
        begin = self.queue_end()
        if kind == "pull":
            count = min(begin // BATCH, PULL_FRAMES)
            frames, units = self.source.pulls(begin - count * BATCH, count), 1
        elif kind == "batch":
            frames, units = self.source.batches(self._frame_count(BATCH)), BATCH
        else:
            frames, units = self.source.sends(self._frame_count(1)), 1
        found = self._drive(frames, kind, warm_up_s, seconds, rate)
        assert found["failed"] == 0, found
        assert found["answered"] == found["sent"] > 0, found
        messages = found["records"] if kind == "pull" else found["counted"] * units
        if kind != "pull":
            self.wait_until_stored(begin + found["sent"] * units)
        return found | {
            "kind": kind,
            "header": self.source.serialize.name,
            "messages": messages,
            "per_second": messages / found["seconds"],
            "broker_cpu_us": found["cpu_us"] / max(1, messages),
        }

    def fill(self, messages: int) -> None:
        """Store at least so many messages."""
        end = self.queue_end() + messages
        while self.queue_end() < end:
            self.run("async", warm_up_s=0, seconds=0.1)

    def _frame_count(self, messages: int) -> int:
        return max(16, self.frames_bytes // (messages * (len(self.source.body) + 256)))

    def _drive(
        self, frames: Iterable[bytes], kind: str, warm_up_s: float, seconds: float, rate: int
    ) -> dict[str, Any]:
        with tempfile.NamedTemporaryFile() as file:
            file.writelines(frames)
            file.flush()
            command = [program(), self.host, self.port, file.name, "--pid", self.pid, "--rate", rate]
            command += ["--in-flight", KINDS[kind], "--warm-up", warm_up_s, "--seconds", seconds]
            done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def queue_end(self) -> int:
        """End offset of the queue; 0 while nobody has sent to its topic."""
        decoder = FrameDecoder(1 << 20)
        with socket.create_connection((self.host, self.port)) as peer:
            peer.sendall(self.source.end_asked())
            while not (frames := decoder.feed(peer.recv(1 << 16))):
                pass
        answer = decode(frames[0])
        return int(answer.ext_fields["offset"]) if answer.code == ResponseCode.SUCCESS else 0

    def wait_until_stored(self, end: int) -> None:
        """Everything that was acknowledged can be read, and nothing else."""
        deadline = time.monotonic() + DISPATCH_TIMEOUT_S
        while (found := self.queue_end()) < end:
            assert time.monotonic() < deadline, f"the queue ends at {found} instead of {end}"
            time.sleep(0.05)
        assert found == end


def main() -> None:
    """Drive a running broker, each kind of load in turn."""
    parser = argparse.ArgumentParser(description="Measure what a broker takes for each message.")
    parser.add_argument("address", help="HOST:PORT of the broker")
    parser.add_argument("--pid", type=int, required=True, help="the broker's process")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of a round, after half as long to warm up")
    parser.add_argument("--rate", type=int, default=0, help="requests a second; tells latencies")
    parser.add_argument("--body", type=int, default=256, help="bytes of a message's body")
    parser.add_argument("--header", choices=[one.name for one in SerializeType], default="JSON")
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    body = (bytes(range(256)) * (options.body // 256 + 1))[: options.body]
    source = FrameSource("bench_load", body, SerializeType[options.header])
    load = BrokerLoad(host, int(port), options.pid, source)
    for _ in range(options.rounds):
        for kind in options.kinds:
            seconds = options.seconds
            print(json.dumps(load.run(kind, warm_up_s=seconds / 2, seconds=seconds, rate=options.rate)))


if __name__ == "__main__":
    main()
