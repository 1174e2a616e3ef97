"""Figures of RocketMQ's own store, from the kit's `StoreBench`: one fresh JVM for each run."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.load.rounds import Rounds
from tests.interop.java import JavaStore, Line

HEAP = "-Xms2g -Xmx2g"


@dataclass(frozen=True)
class JavaBench:
    """Runs of one version's store."""

    java: JavaStore
    rounds: Rounds

    @property
    def duration(self) -> tuple[str, ...]:
        """Warm-up and measured seconds of a put."""
        warmup_s, measured_s = ("2", "4") if self.rounds.full else ("0", "1")
        return "--warmup", warmup_s, "--seconds", measured_s

    def run(self, folder: Path, case: str, *options: str) -> Line:
        """One run; the benchmark's own time is that of the whole process, start-up included."""

        def act() -> Line:
            with patch.dict(os.environ, {"JAVA_OPTS": HEAP}):
                return self.java.run("StoreBench", folder, case, *options).summary

        line: Line = self.rounds.benchmark.pedantic(act, rounds=1)
        assert line["case"] == case
        self.rounds.note(java=line, version=self.java.version)
        return line

    def rate(self, folder: Path, case: str, *options: str) -> None:
        """One run of puts, and what it tells."""
        line: dict[str, Any] = self.run(folder, case, *options)
        assert line["failed"] == 0
        assert line["perSecond"] > 0
        names = {"p50_us": "p50us", "p99_us": "p99us", "p999_us": "p999us", "max_us": "maxUs"}
        self.rounds.note(
            per_second=line["perSecond"],
            per_cpu_second=line["perCpuSecond"],
            **{ours: line[theirs] for ours, theirs in names.items()},
        )
