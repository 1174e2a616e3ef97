"""Executors in processes of their own, with nothing shared but the folder."""

import os
from pathlib import Path

import pytest

from pyledger import arrow
from tests.spark.test_positions import write
from tests.spark.test_setup import run_bare

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1600)]

COPY = """
import sys
from pyledger import spark
spark.setup(quiet=True)
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local-cluster[2,1,1024]")
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


def test_a_cluster_reads_and_writes_a_shared_folder(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, 200)
    done = run_bare(COPY, store, tmp_path, os.environ["PATH"], timeout_s=1500)
    assert "partitions True" in done.stdout, done.stderr
    assert "rows 200" in done.stdout, done.stderr
    copied = arrow.scan(f"{store}-copy", columns=["body"]).read_all().column("body").to_pylist()
    assert sorted(copied) == sorted(arrow.scan(store, columns=["body"]).read_all().column("body").to_pylist())
