"""How many rows a second become Arrow columns?

One thread, files in the page cache, 256-byte bodies. `columns=default` are all nine, bodies and properties
included, and every body CRC is checked; `columns=queueOffset` is one narrow one, for which records are walked
but not digested. Opening the reader, which finds the consistent end, is included in `open=yes` only.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.load.filling import QUEUES, Filled
from benchmarks.load.rounds import Rounds
from pyledger import arrow
from pyledger.store.reading.reader import StoreReader

CASES: dict[str, tuple[str, ...]] = {
    "default": arrow.DEFAULT_COLUMNS,
    "no-properties": arrow.DEFAULT_COLUMNS[:-1],
    "queueOffset": ("queueOffset",),
}


def total_of(batches: Any) -> tuple[int, int]:
    """Rows, and the sum of their queue offsets; batches are let go one by one, as a consumer does."""
    rows = total = 0
    for batch in batches:
        rows += batch.num_rows
        total += int(np.frombuffer(batch.column("queueOffset").buffers()[1], np.int64, batch.num_rows).sum())
    return rows, total


def expected_of(filled: Filled) -> tuple[int, int]:
    each = [len(range(queue, filled.messages, QUEUES)) for queue in range(QUEUES)]
    return filled.messages, sum(count * (count - 1) // 2 for count in each)


@pytest.mark.parametrize("plan", ["log", "queue"], ids="plan={}".format)
@pytest.mark.parametrize("columns", CASES, ids="columns={}".format)
def bench_scan(rounds: Rounds, filled: Filled, columns: str, plan: Any) -> None:
    rounds.benchmark.group = f"Arrow scan, columns={columns}"
    with StoreReader.open(filled.path) as reader:
        rounds.run(
            lambda: arrow.scan(reader, columns=CASES[columns], plan=plan),
            total_of,
            units=filled.messages,
            expected=expected_of(filled),
        )


@pytest.mark.benchmark(group="Arrow scan, columns=queueOffset")
def bench_scan_with_open(rounds: Rounds, filled: Filled) -> None:
    rounds.run(
        lambda: filled.path,
        lambda path: total_of(arrow.scan(path, columns=["queueOffset"])),
        units=filled.messages,
        expected=expected_of(filled),
    )


@pytest.mark.benchmark(group="Arrow scan, columns=default")
def bench_copy_of_batch(rounds: Rounds, filled: Filled) -> None:
    """Arrow's own copy of one batch, again and again: what moving the same columns costs at least."""
    with StoreReader.open(filled.path) as reader:
        batch = next(iter(arrow.scan(reader)))
        times = max(1, filled.messages // batch.num_rows)
        indices = pa.array(range(batch.num_rows))

        def act(source: Any) -> int:
            return sum(source.take(indices).num_rows for _ in range(times))

        units = times * batch.num_rows
        rounds.run(lambda: batch, act, units=units, expected=units, rounds=3)
