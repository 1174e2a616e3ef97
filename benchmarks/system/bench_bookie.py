"""How fast does a bookie take entries, each on disk before its answer?

One client, the same for both: a socket that sends adds of 256 B that were encoded before and counts answers.
Java's bookie has `journalFlushWhenQueueEmpty`, without which a lone add waits for 2 ms. They alternate on
one machine and one disk. `cpu_us` is the processor time of the bookie's process for one add.
"""

import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.processor_time import cpu_seconds
from pyledger.metadata.cluster import locate
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.wire.bookkeeper import version3
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_entry
from tests.interop.bookkeeper_peers import free_port, java_cluster

ROUNDS = 3
PAYLOAD = bytes(range(256))
KEY = master_key(b"")
DIGEST = EntryDigest(DigestType.CRC32C)
LENGTH_BYTES = 4
RECEIVE_BYTES = 1 << 18


def frames(ledger_id: int, count: int) -> list[bytes]:
    """Adds with their lengths."""
    made = []
    for entry_id in range(count):
        entry = pack_entry(DIGEST, ledger_id, entry_id, entry_id - 1, 256 * (entry_id + 1), PAYLOAD)
        body = version3.encode_request(
            m.AddRequest(txn_id=entry_id, ledger_id=ledger_id, entry_id=entry_id, master_key=KEY, entry=entry)
        )
        made.append(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    return made


class Loader:
    """Sends adds and counts answers; all of them must be good."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        self._ledger = 0

    def one_by_one(self, count: int) -> float:
        """Median of the time from a request to its answer (microseconds)."""
        self._ledger += 1
        taken = []
        for frame in frames(self._ledger, count):
            begin = time.perf_counter_ns()
            self._socket.sendall(frame)
            while not self._answers():
                pass
            taken.append(time.perf_counter_ns() - begin)
        return statistics.median(taken) / 1000

    def many(self, count: int, outstanding: int) -> float:
        """Adds a second with so many in flight."""
        self._ledger += 1
        sent, done, ready = 0, 0, frames(self._ledger, count)
        begin = time.perf_counter()
        while done < count:
            room = min(outstanding - (sent - done), count - sent)
            if room:
                self._socket.sendall(b"".join(ready[sent : sent + room]))
                sent += room
            done += self._answers()
        return count / (time.perf_counter() - begin)

    def _answers(self) -> int:
        """How many answers came with the next bytes."""
        data = self._left + self._socket.recv(RECEIVE_BYTES)
        at = count = 0
        while len(data) - at >= LENGTH_BYTES:
            end = at + LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES])
            if end > len(data):
                break
            if not count:
                answer = version3.decode_response(memoryview(data)[at + LENGTH_BYTES : end])
                assert answer.status is m.Status.EOK
            at, count = end, count + 1
        self._left = data[at:]
        return count

    def close(self) -> None:
        self._socket.close()


async def format_cluster(metadata: str) -> None:
    async with locate(metadata) as cluster:
        await cluster.format()


@contextmanager
def our_bookie(folder: Path) -> Iterator[tuple[int, int]]:
    """Port and process id."""
    port, metadata = free_port(), f"sqlite:{folder / 'metadata.db'}"
    asyncio.run(format_cluster(metadata))
    where = ("--listen", f"127.0.0.1:{port}", "--metadata", metadata)
    words = ("serve", folder, *where, "--log-level", "error")
    command = [sys.executable, "-m", "pyledger", "bookie", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("READY")
            yield port, process.pid
        finally:
            process.terminate()


def measure(port: int, pid: int, *, full: bool) -> dict[str, Any]:
    """One round with one bookie."""
    lone, many, outstanding = (2_000, 200_000, 1000) if full else (20, 200, 50)
    loader = Loader(port)
    try:
        loader.many(many // 4, outstanding)  # so that Java has compiled what matters
        p50_us = loader.one_by_one(lone)
        before = cpu_seconds(pid)
        per_second = loader.many(many, outstanding)
        return {
            "p50_us": p50_us,
            "per_second": per_second,
            "cpu_us": 1e6 * (cpu_seconds(pid) - before) / many,
        }
    finally:
        loader.close()


@pytest.mark.java
@pytest.mark.benchmark(group="bookie: adds of 256 B to one bookie, ours and Java's, synced")
def bench_add(rounds: Rounds, tmp_path: Path) -> None:
    def compare() -> dict[str, dict[str, list[float]]]:
        found: dict[str, dict[str, list[float]]] = {"ours": {}, "java": {}}
        with java_cluster(tmp_path / "java", bookies=1) as cluster, our_bookie(tmp_path / "ours") as ours:
            (java,) = cluster.bookies
            words = [str(word) for word in java.args]  # type: ignore[union-attr]
            peers = {"ours": ours, "java": (int(words[words.index("--port") + 1]), java.pid)}
            for _ in range(ROUNDS if rounds.full else 1):
                for name, (port, pid) in peers.items():
                    for what, value in measure(port, pid, full=rounds.full).items():
                        found[name].setdefault(what, []).append(value)
        return found

    for name in ("java", "ours"):
        (tmp_path / name).mkdir()
    results = rounds.benchmark.pedantic(compare, rounds=1)
    middle = {who: {k: statistics.median(v) for k, v in one.items()} for who, one in results.items()}
    assert middle["ours"]["per_second"] > 0
    ratios = {f"ratio_{k}": middle["ours"][k] / (middle["java"][k] or 1) for k in middle["ours"]}
    rounds.note(**middle, **ratios)
