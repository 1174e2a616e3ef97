"""Executors in processes of their own, with nothing shared but the folder."""

import os
from pathlib import Path

import pytest

from pyledger import arrow
from pyledger import spark as pyledger_spark
from tests.spark.standalone import standalone
from tests.spark.test_offsets import write
from tests.spark.test_setup import run_bare

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1600)]

COPY = """
import sys
from pyledger import spark
spark.setup(quiet=True)
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master(sys.argv[2])
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
frame = session.read.format("pyledger").option("maxBytesPerPartition", "4096").load(sys.argv[1])
print("partitions", frame.rdd.getNumPartitions() > 2)
print("rows", frame.count())
rows = frame.select("body", "topic", "queueId")
writer = rows.write.format("pyledger").mode("append").option("mappedFileSizeCommitLog", "1048576")
writer.save(sys.argv[1] + "-copy")
session.stop()
"""


def check_a_copy(master: str, folder: Path) -> None:
    """Read a store and write its messages to another one, on a cluster."""
    store = folder / "store"
    write(store, 200)
    done = run_bare(COPY, store, folder, os.environ["PATH"], master)
    assert "partitions True" in done.stdout, done.stderr
    assert "rows 200" in done.stdout, done.stderr
    copied = arrow.scan(f"{store}-copy", columns=["body"]).read_all().column("body").to_pylist()
    assert sorted(copied) == sorted(arrow.scan(store, columns=["body"]).read_all().column("body").to_pylist())


def test_executors_of_processes_of_their_own(tmp_path: Path) -> None:
    check_a_copy("local-cluster[2,1,1024]", tmp_path)


@pytest.mark.skipif(
    "PYLEDGER_STANDALONE" not in os.environ, reason="two more daemons of Java: set PYLEDGER_STANDALONE=1"
)
def test_a_master_and_a_worker_on_loopback(tmp_path: Path) -> None:
    pyledger_spark.setup()
    with standalone(tmp_path) as master:
        check_a_copy(master, tmp_path)
