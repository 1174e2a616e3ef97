"""One Classic session for all Spark tests of a run; Connect has its own process."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyledger import spark as pyledger_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def spark_home(folder: Path) -> Path:
    """The installed Spark without `pyspark.zip`, so that its Python processes import the package itself.

    They would compile the zip at every start, a second of work, and Spark gives the one that follows a source
    ten seconds, no matter how busy the machine is.
    """
    import pyspark

    home = folder / "spark"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A local session on loopback."""
    pyledger_spark.setup(quiet=True)
    os.environ.setdefault("SPARK_HOME", str(spark_home(tmp_path_factory.mktemp("home"))))
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield spark
    spark.stop()
