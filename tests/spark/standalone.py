"""A master and a worker of Spark standalone on loopback, from the pyspark package."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.cli.command_line import ENVIRONMENT

HOME = Path(pyspark.__file__).parent
CLASS = str(HOME / "bin" / "spark-class")
MASTER, WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))


@contextmanager
def started(log: Path, *arguments: str, until: str) -> Iterator[str]:
    """A daemon of Spark for the length of a block, and what it said when it was ready."""
    environment = {**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"], "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_CONF_DIR", None)  # a quiet daemon would not say that it is ready
    with log.open("w") as said:
        process = subprocess.Popen([CLASS, *arguments], stderr=said, stdout=said, env=environment)
    try:
        while (found := re.search(until, log.read_text())) is None:
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"{arguments[0]} ended: {log.read_text()[-2000:]}")
        yield found[0]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """The URL of a master with one worker of two cores."""
    with ExitStack() as stack:
        loopback = ("--host", "127.0.0.1", "--webui-port", "0")
        url = stack.enter_context(
            started(
                folder / "master.log",
                MASTER,
                *loopback,
                "--port",
                "0",
                until=r"spark://127\.0\.0\.1:[1-9]\d*(?=\s)",
            )
        )
        worker = (*loopback, "--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"), url)
        stack.enter_context(started(folder / "worker.log", WORKER, *worker, until="Successfully registered"))
        yield url
