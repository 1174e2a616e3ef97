"""Making a bare machine ready: no Java on PATH, virtual environment not activated, nothing registered."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyledger import spark as pyledger_spark
from pyledger.errors import ConfigError
from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore
from tests.spark.conftest import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1600)]

READ = """
import sys
from pyledger import spark
spark.setup(quiet=True)
from pyspark.sql import SparkSession
session = {builder}.config("spark.ui.enabled", "false").getOrCreate()
try:
    print("rows", session.read.format("pyledger").load(sys.argv[1]).count())
finally:
    session.stop()
"""


MORE = """
    def opened(reader):
        return reader.format("pyledger").option("startingOffsets", "earliest").load(sys.argv[1])
    writer = opened(session.read).select("topic", "queueId", "body").write.format("pyledger")
    writer.mode("append").option("mappedFileSizeCommitLog", 1 << 20).save(sys.argv[1] + "-copy")
    print("copied", session.read.format("pyledger").load(sys.argv[1] + "-copy").count())
    stream = opened(session.readStream).writeStream.format("parquet").trigger(availableNow=True)
    stream = stream.option("path", sys.argv[1] + "-out")
    stream.option("checkpointLocation", sys.argv[1] + "-checkpoint").start().awaitTermination()
    print("streamed", session.read.parquet(sys.argv[1] + "-out").count())
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with MessageStore.open(folder, mapped_file_size_bytes=1 << 20, index_enabled=False) as opened:
        for number in range(10):
            opened.put(Message("t", str(number).encode()))
    return folder


def run_bare(code: str, store: Path, home: Path, path: str, *more: str) -> subprocess.CompletedProcess[str]:
    bare = {"PATH": path, "HOME": str(home), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'spark_ext'}"}
    return subprocess.run(
        [sys.executable, "-c", code, str(store), *more],
        env=bare,
        check=False,
        capture_output=True,
        text=True,
        timeout=1500,
        cwd=home,
    )


def test_wheel_runtime_serves_where_no_java_is(store: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "env",
        "dirname",
        "ps",
        "uname",
        "nice",
        "ls",
        "cat",
        "tr",
        "grep",
        "sed",
        "id",
        "hostname",
    ):
        found = next(
            (Path(part, name) for part in [*os.defpath.split(":"), "/usr/bin"] if Path(part, name).exists()),
            None,
        )
        if found:
            (tools / name).symlink_to(found)
    done = run_bare(
        READ.format(builder='SparkSession.builder.master("local[1]")'), store, tmp_path, str(tools)
    )
    assert "rows 10" in done.stdout, done.stderr
    assert (tmp_path / ".cache/pyledger/java/bin/java").exists()


def test_connect_session_reads_writes_and_streams(store: Path, tmp_path: Path) -> None:
    code = READ.replace("finally:", MORE + "finally:")
    builder = 'SparkSession.builder.remote("local[2]")'
    done = run_bare(code.format(builder=builder), store, tmp_path, os.environ["PATH"])
    assert "rows 10" in done.stdout, done.stderr
    assert "copied 10" in done.stdout, done.stderr
    assert "streamed 10" in done.stdout, done.stderr


def test_an_old_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ("4.2.0", "4.3.0.dev1", "10.0"):
        monkeypatch.setattr(pyledger_spark, "version", lambda _name, found=found: found)
        pyledger_spark._check_pyspark()
    for found in ("3.5.9", "4.1.4"):
        monkeypatch.setattr(pyledger_spark, "version", lambda _name, found=found: found)
        with pytest.raises(ConfigError, match=f"pyspark: {found} is too old"):
            pyledger_spark.setup()


def test_java_version_reads_what_java_says(tmp_path: Path) -> None:
    for said, wanted in (
        ('openjdk version "17.0.15" 2025', 17),
        ('java version "1.8.0_402"', 8),
        ("nothing", None),
    ):
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
        assert pyledger_spark.java_version(str(java)) == wanted
    assert pyledger_spark.java_version(str(tmp_path / "absent")) is None
