"""What does a broker take for each message? Frames that are encoded already, from a light native load.

Our broker and RocketMQ's run alternately and receive the same frames. `broker_cpu_us` is the processor time
of the broker for one message, user and system.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from benchmarks.load.broker_load import BATCH, KINDS
from benchmarks.load.frames import FrameSource
from benchmarks.load.rounds import Rounds
from benchmarks.peers.brokers import JAVA_VERSION, RunningBroker, java_broker, our_broker

JAVA = f"java-{JAVA_VERSION}"
MESSAGES_BEFORE_PULL = 64_000
Brokers = Callable[[str], RunningBroker]
pytestmark = pytest.mark.usefixtures("native_load")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, scale: str) -> Iterator[Brokers]:
    """Each broker is started when it is first asked for, warmed up, and runs to the end of the module."""
    with ExitStack() as stack:

        @cache
        def started(name: str) -> RunningBroker:
            folder = tmp_path_factory.mktemp(name.replace(".", "-"))
            broker = stack.enter_context((java_broker if name == JAVA else our_broker)(folder))
            if scale == "full":
                for kind in ("async", "batch"):
                    broker.load(FrameSource("warm_up"), full=True).run(kind, warm_up_s=0, seconds=4)
            return broker

        yield started


def both(*names: str) -> pytest.MarkDecorator:
    impls = [pytest.param(name, marks=[pytest.mark.java] if name == JAVA else []) for name in names]
    return pytest.mark.parametrize("impl", impls, ids="impl={}".format)


def run_kind(rounds: Rounds, broker: RunningBroker, source: FrameSource, kind: str, **options: Any) -> Any:
    """One run of a load; the figures stand in `extra_info`."""
    load = broker.load(source, full=rounds.full)
    warm_up_s, seconds = (1.0, 3.0) if rounds.full else (0.0, 0.1)
    if kind == "pull":
        missing = (MESSAGES_BEFORE_PULL if rounds.full else BATCH * 4) - load.queue_end()
        if missing > 0:
            load.fill(missing)
    options = {"warm_up_s": warm_up_s, "seconds": seconds} | options
    found = rounds.benchmark.pedantic(load.run, args=(kind,), kwargs=options, rounds=1)
    assert found["messages"] > 0
    rounds.note(**found)
    return found


@pytest.mark.benchmark(group="broker: the same frames, 256 B")
@pytest.mark.parametrize("kind", list(KINDS), ids="kind={}".format)
@both("pyledger", JAVA)
def bench_load(rounds: Rounds, brokers: Brokers, kind: str, impl: str) -> None:
    run_kind(rounds, brokers(impl), FrameSource(f"load_{kind}"), kind)


@pytest.mark.benchmark(group="broker: latency at half of the maximum rate, 256 B")
@both("pyledger", JAVA)
def bench_latency(rounds: Rounds, brokers: Brokers, impl: str) -> None:
    broker, source = brokers(impl), FrameSource("latency")
    seconds = 60 if impl == "pyledger" else 10
    load = broker.load(source, full=rounds.full)
    highest = load.run("async", warm_up_s=0.0, seconds=2.0 if rounds.full else 0.1)
    rate = int(highest["per_second"] / 2)
    found = run_kind(
        rounds, broker, source, "async", seconds=seconds if rounds.full else 0.2, rate=max(1, rate)
    )
    rounds.note(rate=rate)
    assert found["p50_us"] <= found["p999_us"] <= found["max_us"]


@pytest.mark.benchmark(group="broker: pull by copy and without")
@pytest.mark.parametrize("body_bytes", [1 << 10, 64 << 10], ids="body={}B".format)
@pytest.mark.parametrize("by_heap", ["true", "false"], ids="heap={}".format)
def bench_pull_copies(
    rounds: Rounds, tmp_path_factory: pytest.TempPathFactory, by_heap: str, body_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("copies")
    source = FrameSource("copies", bytes(body_bytes))
    with our_broker(folder, f"transferMsgByHeap={by_heap}") as broker:
        broker.load(source, full=rounds.full).fill(2_000 if rounds.full else BATCH)
        run_kind(rounds, broker, source, "pull")
