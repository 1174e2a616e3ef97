"""What does a broker take that has nothing to do, and how soon is it there?

`ready` is from starting the process to its READY line; the best of all starts counts, as anything slower is
the machine's. Memory is told as the kernel counts it: all that is resident, and of that what is the process's
own.
"""

import socket
import tempfile
import time
from pathlib import Path

import pytest

from benchmarks.load.frames import FrameSource
from benchmarks.load.rounds import Rounds
from benchmarks.peers.brokers import RunningBroker, our_broker, serving

KINDS = {"node": ("serve", "--broker-listen", "127.0.0.1:0"), "broker": ("broker",)}
IDLE_CONNECTIONS = 1_000
ANSWER_BYTES = 1 << 16


@pytest.mark.benchmark(group="broker: start-up")
@pytest.mark.parametrize("kind", list(KINDS), ids="kind={}".format)
def bench_ready(rounds: Rounds, tmp_path: Path, kind: str) -> None:
    words = (*KINDS[kind], "--listen", "127.0.0.1:0")
    starts = 10 if rounds.full else 1
    best_s = float("inf")

    def act() -> int:
        nonlocal best_s
        for _ in range(starts):
            with (
                tempfile.TemporaryDirectory(dir=tmp_path) as folder,
                serving(*words, "--store", f"{folder}/store") as (_, _, taken_s),
            ):
                best_s = min(best_s, taken_s)
        return starts

    assert rounds.benchmark.pedantic(act, rounds=1) == starts
    rounds.note(ready_ms=best_s * 1e3)


@pytest.mark.benchmark(group="broker: idle")
def bench_idle(rounds: Rounds, tmp_path: Path) -> None:
    seconds, connections = (10.0, IDLE_CONNECTIONS) if rounds.full else (0.1, 10)
    with our_broker(tmp_path) as broker:
        time.sleep(2 if rounds.full else 0)
        empty = broker.memory_kib()
        cpu_s = broker.cpu_seconds()
        rounds.benchmark.pedantic(time.sleep, args=(seconds,), rounds=1)
        cpu_percent = 100 * (broker.cpu_seconds() - cpu_s) / seconds
        peers = [answered_peer(broker) for _ in range(connections)]
        added = broker.memory_kib()["RssAnon"] - empty["RssAnon"]
        for peer in peers:
            peer.close()
    assert len(peers) == connections
    rounds.note(
        cpu_percent=cpu_percent,
        rss_mib=empty["VmRSS"] / 1024,
        anonymous_mib=empty["RssAnon"] / 1024,
        file_mib=empty["RssFile"] / 1024,
        connections=connections,
        connections_added_mib=added / 1024,
    )


def answered_peer(broker: RunningBroker) -> socket.socket:
    """A connection that has been answered once."""
    peer = socket.create_connection((broker.host, broker.port))
    peer.sendall(FrameSource("idle").end_asked())
    assert peer.recv(ANSWER_BYTES)
    return peer
