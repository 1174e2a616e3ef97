"""One session for all benchmarks of Spark."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from benchmarks.spark.prebuilt_source import PrebuiltSource
from pyledger import spark

TASKS = 2


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    spark.setup(quiet=True)
    opened = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    opened.dataSource.register(PrebuiltSource)
    yield opened
    opened.stop()
