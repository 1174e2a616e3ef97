"""RocketMQ's own store as a peer: builds the kit on first use, runs its programs, returns what they print.

Without Java 17 and Maven, or when Maven cannot reach its repository, its tests are skipped with
the reason; with PYLEDGER_JAVA=required they fail instead.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

KIT = Path(__file__).parent / "rocketmq-store"
VERSIONS = ("5.3.3", "4.9.8")
JAVA_MIN = 17
BUILD_TIMEOUT_S = 600
RUN_TIMEOUT_S = 180
BRIEF_JVM = "-Xms128m -Xmx1g -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For programs that run a second or two: nothing is compiled thoroughly."""

Line = dict[str, Any]
JavaStores = Callable[[str], "JavaStore"]


QUIET_FLUSH = "flushIntervalConsumeQueue=3600000"
"""A store that flushes a queue which ends where its last file does warns of an offset not matched, about its
own folders too; whether it comes to that depends on how long the reading takes. An empty next file is no way
around it: upstream takes its first 20 zero bytes for a unit."""


@dataclass(frozen=True)
class JavaRun:
    """One finished run: its exit code and the JSON lines that it printed."""

    exit: int
    lines: list[Line]
    errors: str

    def of_kind(self, kind: str) -> list[Line]:
        """Lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def summary(self) -> Line:
        """The last line."""
        return self.lines[-1]

    @property
    def messages(self) -> list[Line]:
        """The messages that the consume queues name, without the column that only tells the lines apart."""
        return [{k: v for k, v in line.items() if k != "kind"} for line in self.of_kind("message")]


@dataclass(frozen=True)
class JavaStore:
    """The store of one version."""

    version: str

    def read(self, folder: Path, *options: str) -> JavaRun:
        """Open a folder with recovery, read everything. Changes the folder: hand in a copy."""
        return self.run("StoreRead", folder, *options)

    def judge(self, folder: Path, *options: str) -> JavaRun:
        """Read a copy of a folder and require that Java kept every byte and did not complain."""
        copy = folder.with_name(f"{folder.name}-read-by-{self.version}")
        shutil.copytree(folder, copy)
        settings = QUIET_FLUSH
        if "--set" in options:
            at = options.index("--set")
            settings += f",{options[at + 1]}"
            options = options[:at] + options[at + 2 :]
        done = self.read(copy, "--set", settings, *options)
        shutil.rmtree(copy)
        found = {
            k: done.summary.get(k) for k in ("logBytesDropped", "queueUnitsDropped", "complaints", "faults")
        }
        assert done.exit == 0, f"{self.version} exits {done.exit}: {found} {done.errors}"
        return done

    def write(self, folder: Path, *options: str) -> JavaRun:
        """Write drawn messages into a folder, new or existing."""
        done = self.run("StoreWrite", folder, *options)
        assert done.exit == 0, f"StoreWrite exits {done.exit}: {done.errors}"
        return done

    def run(self, program: str, folder: Path, *options: str) -> JavaRun:
        """Run a program of the kit to its end."""
        done = subprocess.run(
            self.command(program, folder, *options),
            capture_output=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
            env=brief(),
        )
        errors = done.stderr.decode(errors="replace")[-2000:]
        assert done.stdout, f"{program} exits {done.returncode} without a line: {errors}"
        return JavaRun(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], errors)

    def start(self, program: str, folder: Path, *options: str) -> subprocess.Popen[bytes]:
        """Start a program of the kit; its lines come through `stdout`."""
        return subprocess.Popen(
            self.command(program, folder, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=brief(),
        )

    def command(self, program: str, folder: Path, *options: str) -> list[str]:
        return [str(KIT / "run.sh"), self.version, program, str(folder), *options]


def brief() -> dict[str, str]:
    """The environment, with settings for a JVM that does not live long unless there are others."""
    return {"JAVA_OPTS": BRIEF_JVM, **os.environ}


def require_java() -> None:
    """Skip the test where Java or Maven is missing, or too old."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            refuse(f"{tool} is not installed")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        refuse(f"Java {JAVA_MIN} or newer is needed, this is {said.splitlines()[:1]}")


@cache
def built(version: str) -> JavaStore:
    """Build the kit for a version, once a session. Skips the test when that cannot be done here."""
    require_java()
    probe = subprocess.run(
        [str(KIT / "run.sh"), version, "StoreBench"],
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if not (KIT / "target" / f"built-{version}").exists():
        refuse(f"Maven cannot build the kit: {probe.stderr[-300:]}")
    return JavaStore(version)


def refuse(reason: str) -> NoReturn:
    """Skip, or fail where the peer is required."""
    if os.environ.get("PYLEDGER_JAVA") == "required":
        pytest.fail(reason)
    pytest.skip(reason)
