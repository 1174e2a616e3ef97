"""What do many topics cost? A store of 10,000 topics with 8 queues each, a message in each queue.

`ready` is from starting the broker's process to its READY line. The rates are those of one topic, for a
broker with all the others and for one without.
"""

from pathlib import Path

import pytest

from benchmarks.load.frames import FrameSource
from benchmarks.load.rounds import Rounds
from benchmarks.peers.brokers import our_broker, serving
from pyledger.store.messages.message_store import MessageStore

QUEUES = 8
BODY = bytes(256)
pytestmark = pytest.mark.usefixtures("native_load")


def fill(folder: Path, topics: int) -> int:
    """A message in each queue of so many topics; how many."""
    with MessageStore.open(folder) as store:
        for topic in range(topics):
            for queue in range(QUEUES):
                store.appender(f"topic_{topic}", queue).put(BODY)
        store.dispatch()
        return len(store.queues())


@pytest.mark.benchmark(group="broker: many topics")
def bench_many_topics(rounds: Rounds, tmp_path: Path) -> None:
    topics, seconds = (10_000, 3.0) if rounds.full else (20, 0.1)
    assert fill(tmp_path / "many" / "store", topics) == topics * QUEUES
    ready: list[float] = []

    def act() -> int:
        words = ("broker", "--listen", "127.0.0.1:0", "--store", tmp_path / "many" / "store")
        with serving(*words) as (_, _, taken_s):
            ready.append(taken_s)
        return len(ready)

    assert rounds.benchmark.pedantic(act, rounds=1) == 1
    costs = {}
    for name in ("many", "one"):
        with our_broker(tmp_path / name) as broker:
            load = broker.load(FrameSource("alone"), full=rounds.full)
            found = load.run("async", warm_up_s=seconds / 3, seconds=seconds)
            costs[name] = found["broker_cpu_us"]
            rounds.note(
                **{f"{name}_per_second": found["per_second"], f"{name}_cpu_us": found["broker_cpu_us"]}
            )
    rounds.note(ready_s=min(ready), topics=topics, queues=topics * QUEUES)
