"""The driver of a Spark write is killed while it publishes: every job is there once, or not at all."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark_pyledger import commit

from pyledger import arrow
from pyledger.store.messages.store_engine import StoreEngine
from tests.chaos.publisher import ROWS_PER_TASK, body

ROOT = Path(__file__).parents[2]
ROWS = 2 * ROWS_PER_TASK
KILLS = 6


def publish(store: Path, job: str, number: int, batch_id: int = -1, event: int = -1) -> int:
    """Run a publisher and kill it at a call; return the number of its calls, 0 if it was killed."""
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT / "spark_ext", ROOT)))
    arguments = [str(store), job, str(number), str(batch_id), str(event)]
    publisher = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.publisher", *arguments],
        stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=path),
    )  # fmt: skip
    assert publisher.stdout is not None
    with publisher, publisher.stdout as output:
        line = b""
        for line in output:
            if line == b"now\n":
                publisher.send_signal(signal.SIGKILL)
        killed = publisher.wait(300) == -signal.SIGKILL
    assert killed or publisher.returncode == 0
    return 0 if killed else int(line)


def rows_of_jobs(store: Path) -> dict[int, Counter[int]]:
    """How often each row of each job is seen, every body whole; the rows of a queue in their order."""
    seen: dict[int, Counter[int]] = {}
    last: dict[tuple[int, int], int] = {}
    if not (store / "commitlog").exists():
        return seen
    for batch in arrow.scan(store, columns=["queueId", "body"]):
        for queue_id, found in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number, row = (int(word) for word in found.split(b":")[:2])
            assert found == body(number, row)
            assert last.get((queue_id, number), -1) < row
            last[queue_id, number] = row
            seen.setdefault(number, Counter())[row] += 1
    return seen


def assert_whole(store: Path, numbers: set[int]) -> None:
    """These jobs are there and no others, each row once."""
    seen = rows_of_jobs(store)
    assert set(seen) == numbers
    for rows in seen.values():
        assert rows == Counter(range(ROWS))


def unfinished(store: Path) -> set[int]:
    """Jobs that have begun to publish: whoever writes next finishes them."""
    return {int(journal.stem.split("-")[1]) for journal in (store / "spark").glob("job-*.json")}


def test_a_write_whose_driver_is_killed_is_there_once_or_not_at_all(tmp_path: Path) -> None:
    chance = random.Random(9)
    calls = publish(tmp_path, "job-0", 0)
    whole = {0}
    for number in range(1, KILLS + 1):
        publish(tmp_path, f"job-{number}", number, event=chance.randrange(calls))
        seen = rows_of_jobs(tmp_path)
        assert all(set(rows.values()) == {1} for rows in seen.values()), "a row is there twice"
        whole |= set(seen) | unfinished(tmp_path)
        if number % 2 == 0:  # else the next one finds what this one left, and is killed as well
            left = unfinished(tmp_path)
            with StoreEngine.open(tmp_path) as store:
                assert len(commit.finish_others(store)) == len(left)
            assert_whole(tmp_path, whole)


@pytest.mark.slow
def test_a_batch_whose_driver_is_killed_is_sent_again_until_it_is_there_once(tmp_path: Path) -> None:
    chance = random.Random(10)
    calls = publish(tmp_path, "sink", 0, batch_id=0)
    for number in range(1, KILLS // 2 + 1):
        for _ in range(2):
            publish(tmp_path, "sink", number, batch_id=number, event=chance.randrange(calls))
        assert publish(tmp_path, "sink", number, batch_id=number)
        assert_whole(tmp_path, set(range(number + 1)))
