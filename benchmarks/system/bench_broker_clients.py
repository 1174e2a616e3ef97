"""How fast is RocketMQ's own Java client with our broker, and with its own? They run alternately.

Client and broker share the machine, and the client takes the greater part of it: a broker that costs nothing
would raise these rates by half, not more.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.load.rounds import Rounds
from benchmarks.peers.brokers import JAVA_VERSION, RunningBroker, java_broker, our_broker
from tests.interop.peers import run_alone

pytestmark = pytest.mark.java

JAVA = f"java-{JAVA_VERSION}"
ROUNDS = 2


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, scale: str) -> Iterator[dict[str, RunningBroker]]:
    """Both, warm."""
    folder = tmp_path_factory.mktemp("brokers")
    with ExitStack() as stack:
        started = {
            "pyledger": stack.enter_context(our_broker(folder / "ours")),
            JAVA: stack.enter_context(java_broker(folder / "java")),
        }
        if scale == "full":
            for broker in started.values():
                for mode in ("async", "batch"):
                    client(broker, mode, "warm_up", "--warmup", 0, "--seconds", 4)
        yield started


def client(broker: RunningBroker, mode: str, topic: str, *options: object) -> dict[str, float]:
    """One run of the Java client; it fails unless every message was stored, or read."""
    where = ("--namesrv", broker.name_server, "--mode", mode, "--topic", topic)
    *_, summary = run_alone(JAVA_VERSION, "Bench", *where, *options)
    return summary


@pytest.mark.benchmark(group="broker: RocketMQ's Java client")
@pytest.mark.parametrize("mode", ["sync", "async", "batch", "drain"], ids="mode={}".format)
def bench_java_client(rounds: Rounds, brokers: dict[str, RunningBroker], mode: str) -> None:
    best = dict.fromkeys(brokers, 0.0)
    length = ("--warmup", 2, "--seconds", 4) if rounds.full else ("--warmup", 0, "--seconds", 1)
    counts: dict[str, int] = {}
    if mode == "drain":
        for name, broker in brokers.items():
            # What the last warm-up sent is not all that a drain is for: fill a topic of its own.
            length_s = 5 if rounds.full else 1
            filled = client(broker, "batch", "drain", "--warmup", 0, "--seconds", length_s)
            counts[name] = int(filled["stored"])

    def act() -> int:
        done = 0
        for number in range(ROUNDS if rounds.full else 1):
            for name, broker in brokers.items():
                options: tuple[object, ...] = length
                if mode == "drain":
                    options = ("--group", f"drain_{number}", "--count", counts[name])
                summary = client(broker, mode, mode, *options)
                assert summary["stored"] > 0
                best[name] = max(best[name], summary["perSecond"])
                done += 1
        return done

    assert rounds.benchmark.pedantic(act, rounds=1) == (ROUNDS if rounds.full else 1) * len(brokers)
    rounds.note(per_second=best["pyledger"], java_per_second=best[JAVA], ratio=best["pyledger"] / best[JAVA])
