"""A Spark write as a process that is to be killed: it stages the rows of two tasks and publishes them.

    python -m tests.chaos.publisher STORE JOB NUMBER BATCH EVENT

Calls that the commit makes are counted. At call EVENT it prints a line, and whoever reads that may kill it;
in the end it prints the number of calls. BATCH is -1 for a write that is no stream's.
"""

import itertools
import os
import sys
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark_pyledger.commit import publish
from pyspark_pyledger.staging import stage_rows, staging_folder
from pyspark_pyledger.write_options import WriteOptions

ROWS_PER_TASK = 300
ROWS_PER_BATCH = 60
FILE_BYTES = 1 << 18
TOPIC = "orders"


def body(number: int, row: int) -> bytes:
    """Of one row of a write: batches of them are long enough for the way past the log's mapping."""
    return b"%d:%d:" % (number, row) + b"x" * (row * 379 % 4000)


def task_rows(number: int, task: int) -> pa.Table:
    """Every third row has a key, and so a queue of its own choice."""
    rows = range(task * ROWS_PER_TASK, (task + 1) * ROWS_PER_TASK)
    keys = [f"k{row}" if row % 3 == 0 else None for row in rows]
    return pa.table({"body": [body(number, row) for row in rows], "keys": pa.array(keys, pa.string())})


def main(path: str, job: str, number: int, batch_id: int | None, event: int) -> None:
    options = WriteOptions(path, topic=TOPIC, log_file_size_bytes=FILE_BYTES)
    folder = staging_folder(path, job)
    staged = [
        stage_rows(folder, task_rows(number, task).to_batches(ROWS_PER_BATCH), TOPIC) for task in range(2)
    ]
    calls = itertools.count()

    def count(frame: FrameType, *_: Any) -> None:
        if "pyspark_pyledger" in frame.f_code.co_filename and next(calls) == event:
            os.write(1, b"now\n")

    sys.setprofile(count)
    publish(options, job, batch_id, staged)
    sys.setprofile(None)
    os.write(1, b"%d\n" % next(calls))


if __name__ == "__main__":
    store, job, number, batch, event = sys.argv[1:]
    main(store, job, int(number), None if batch == "-1" else int(batch), int(event))
