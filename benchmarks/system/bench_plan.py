"""How long does the plan of a read take over the files of a hundred brokers, and how much memory?

The files of a log are sparse, all but the last of each broker: a plan looks at names, lengths and the ends of
queues, and maps only the files at which it looks. What Spark's driver gets, the pickled partitions, is
made too. The plan runs in a process of its own, whose largest resident set counts.
"""

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark_pyledger.options import parse_read_options
from pyspark_pyledger.partitions import LedgerPartition
from pyspark_pyledger.planning import TASKS_MAX, plan_folders

from benchmarks.load.rounds import Rounds
from pyledger.store.messages.message_store import MessageStore
from tests.core.log.log_files import RecordFields

FILE_BYTES = 1 << 30
QUEUES = 4
RECORDS = 1_000
"""In the last file of each broker; the others are empty, and nobody looks."""


def make_broker(folder: Path, file_count: int) -> None:
    """A store whose log has so many files, after a clean exit."""
    log = folder / "commitlog"
    log.mkdir(parents=True)
    last = file_count * FILE_BYTES
    with (log / f"{last:020d}").open("wb") as file:
        place = last
        for number in range(RECORDS):
            fields = RecordFields(queue_id=number % QUEUES, queue_offset=number // QUEUES)
            place += file.write(fields.encode(place))
        file.truncate(FILE_BYTES)
    with MessageStore.open(folder, index_enabled=False):
        pass
    for number in range(1, file_count):
        with (log / f"{number * FILE_BYTES:020d}").open("wb") as file:
            file.truncate(FILE_BYTES)


@pytest.fixture(scope="module")
def brokers(scale: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A folder of broker folders, and the number of their log files."""
    broker_count, file_count = (100, 10_240) if scale == "full" else (2, 40)
    home = tmp_path_factory.mktemp("brokers")
    for number in range(broker_count):
        make_broker(home / f"broker-{number:03d}", file_count)
    yield home, broker_count * file_count
    shutil.rmtree(home)


@pytest.mark.benchmark(group="Spark plan")
@pytest.mark.parametrize("topic", [None, "orders"], ids=["topic=all", "topic=one"])
def bench_plan(rounds: Rounds, brokers: tuple[Path, int], topic: str | None) -> None:
    home, file_count = brokers
    options = {"path": str(home)} | ({} if topic is None else {"topic": topic})

    def act() -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, json.dumps(options)],
            stdout=subprocess.PIPE,
            check=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return dict(json.loads(done.stdout))

    found = rounds.benchmark.pedantic(act, rounds=1)
    assert found["bytes_planned"] >= (file_count - len(list(home.iterdir()))) * FILE_BYTES
    assert found["partitions"] <= 1.1 * TASKS_MAX
    rounds.note(files=file_count, **found)


def main(options: str) -> None:
    parsed = parse_read_options(json.loads(options))
    begin = time.perf_counter()
    parts = plan_folders(parsed)
    pickled = sum(len(pickle.dumps(LedgerPartition(part))) for part in parts)
    facts = {
        "seconds": time.perf_counter() - begin,
        "partitions": len(parts),
        "pickled_bytes": pickled,
        "bytes_planned": sum(part.size_bytes for part in parts),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1])
