"""How fast does a DLedger group take entries, and how soon has it a leader again?

Members are processes on loopback, their disks one disk; the client is a process of its own. Compare within
a case: its members ran alternately on the same machine. `nodes_cpu_us` is the processor time of all members
for one entry.
"""

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.dledger_groups import PATIENT, RunningGroup, java_group, our_group
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.protocol.dledger.messages import TermState
from pyledger.store.dledger.store import DLedgerStore
from tests.interop.dledger_peers import require_kit

ROUNDS = 3
PER = 256
BATCHES_IN_FLIGHT = 32


def better(found: dict[str, dict[str, Any]], name: str, one: dict[str, Any]) -> None:
    """Keep the faster of two rounds."""
    if name not in found or one["per_second"] > found[name]["per_second"]:
        found[name] = one


def loads(group: RunningGroup, seconds: float, in_flight: int) -> dict[str, dict[str, Any]]:
    """One entry a request: one at a time, many in flight; and many entries a request."""
    return {
        "one": group.load(seconds, in_flight=1),
        "many": group.load(seconds, in_flight=in_flight),
        "batches": group.load(seconds, per=PER, in_flight=BATCHES_IN_FLIGHT),
    }


@pytest.mark.benchmark(group="dledger: appends to three members, 256 B; without their flushes; to one member")
def bench_append(rounds: Rounds, tmp_path: Path) -> None:
    seconds, in_flight = (4.0, 1024) if rounds.full else (0.1, 64)
    kinds: dict[str, dict[str, Any]] = {
        "three": {},
        "unflushed": {"flush_before_ack": False},
        "single": {"size": 1},
    }

    def compare() -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        with ExitStack() as stack:
            for number in range(ROUNDS if rounds.full else 1):
                for kind, settings in kinds.items():
                    group = stack.enter_context(
                        our_group(tmp_path / f"{kind}{number}", **PATIENT, **settings)
                    )
                    for load, one in loads(group, seconds, in_flight).items():
                        better(found, f"{kind}_{load}", one)
                    stack.pop_all().close()
        return found

    found = rounds.benchmark.pedantic(compare, rounds=1)
    rates = {name: one["per_second"] for name, one in found.items()}
    assert min(rates.values()) > 0
    rounds.note(
        **found,
        ratio_flushed_many=rates["three_many"] / rates["unflushed_many"],
        ratio_three_to_one_batches=rates["three_batches"] / rates["single_batches"],
    )


@pytest.mark.benchmark(group="dledger: appends over links without and with a delay of 2 ms, 256 B")
def bench_delay(rounds: Rounds, tmp_path: Path) -> None:
    seconds, in_flight = (4.0, 1024) if rounds.full else (0.1, 64)

    def compare() -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for number in range(ROUNDS if rounds.full else 1):
            for delay_ms in (0, 2):
                with our_group(tmp_path / f"{delay_ms}_{number}", delay_ms=delay_ms, **PATIENT) as group:
                    better(found, f"delay_{delay_ms}_ms", group.load(seconds, in_flight=in_flight))
        return found

    found = rounds.benchmark.pedantic(compare, rounds=1)
    rates = [found[f"delay_{delay_ms}_ms"]["per_second"] for delay_ms in (0, 2)]
    assert min(rates) > 0
    rounds.note(**found, ratio_delayed=rates[1] / rates[0])


@pytest.mark.java
@pytest.mark.benchmark(group="dledger: appends to our members and to Java's, 256 B")
def bench_append_java(rounds: Rounds, tmp_path: Path) -> None:
    require_kit()
    seconds, in_flight = (8, 1024) if rounds.full else (1, 64)

    def compare() -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for number in range(ROUNDS if rounds.full else 1):
            with our_group(tmp_path / f"o{number}", **PATIENT) as ours:
                better(found, "java_client_our_group", ours.java_load(seconds, in_flight=in_flight))
                for load, one in loads(ours, seconds / 2, in_flight).items():
                    better(found, f"our_client_our_group_{load}", one)
            for batch in (False, True):
                with java_group(tmp_path / f"j{number}{batch}", batch=batch) as java:
                    java.append(b"wake")
                    name = f"java_client_java_group_{'batch' if batch else 'single'}_push"
                    better(found, name, java.java_load(seconds, in_flight=in_flight))
        return found

    found = rounds.benchmark.pedantic(compare, rounds=1)
    rates = {name: one["per_second"] for name, one in found.items()}
    best = max(rate for name, rate in rates.items() if "java_group" in name)
    rounds.note(
        **found,
        ratio_java_client=rates["java_client_our_group"] / best,
        ratio_our_client=rates["our_client_our_group_many"] / best,
        ratio_our_batches=rates["our_client_our_group_batches"] / best,
    )


@pytest.mark.benchmark(group="dledger: kill -9 of the leader until the next append is acknowledged")
def bench_fail_over(rounds: Rounds, tmp_path: Path) -> None:
    trials = 20 if rounds.full else 1
    gaps: list[float] = []

    def act() -> int:
        for trial in range(trials):
            with our_group(tmp_path / str(trial)) as group:
                leader = group.append(b"before")
                begin = time.perf_counter()
                group.kill(leader)
                assert group.append(b"after") != leader
                gaps.append(time.perf_counter() - begin)
        return len(gaps)

    assert rounds.benchmark.pedantic(act, rounds=1) == trials
    rounds.note(median_s=statistics.median(gaps), worst_s=max(gaps))


@pytest.mark.benchmark(group="dledger: start-up, and three members that have nothing to do")
def bench_idle(rounds: Rounds, tmp_path: Path) -> None:
    seconds = 10.0 if rounds.full else 0.1

    def act() -> dict[str, float]:
        begin = time.perf_counter()
        with our_group(tmp_path) as group:
            ready_s = time.perf_counter() - begin
            group.append(b"first")
            led_s = time.perf_counter() - begin - ready_s
            time.sleep(seconds / 2)  # what a start leaves to be done, such as files made ahead
            before = group.cpu_seconds()
            time.sleep(seconds)
            return {
                "ready_s": ready_s,
                "first_append_after_ready_s": led_s,
                "cpu_percent_of_three": 100 * (group.cpu_seconds() - before) / seconds,
                "resident_mib_most": max(group.resident_kib()) / 1024,
            }

    rounds.note(**rounds.benchmark.pedantic(act, rounds=1))


@pytest.mark.benchmark(group="dledger: reopen a log, every checksum verified")
def bench_reopen(rounds: Rounds, tmp_path: Path) -> None:
    size = (1 << 30) if rounds.full else (4 << 20)
    config = DLedgerStoreConfig()
    per, body = 1024, bytes(256)
    with DLedgerStore.open(tmp_path / "dledger-n0", config) as store:
        store.save_term_state(TermState(1, None))
        while store.end_position + per * (len(body) + 48) < size:
            store.append_bodies(1, [body] * per)
        entries = store.end_index + 1
    (tmp_path / "dledger-n0" / "lock").unlink(missing_ok=True)

    def act(_: None) -> int:
        with DLedgerStore.open(tmp_path / "dledger-n0", config) as store:
            assert store.recovered.sealed_count == entries
            return store.end_index + 1

    rounds.run(lambda: None, act, units=entries, expected=entries, rounds=3)
