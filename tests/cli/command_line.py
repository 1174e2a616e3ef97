"""Running the command line: in this process for its output, as a process of its own for pipes and signals."""

import io
import json
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyledger.cli.process import run
from tests.golden.archive import GoldenCase
from tests.support.source_tree import ROOT

COMMAND = [sys.executable, "-m", "pyledger"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'spark_ext'}"}


def own_case(name: str) -> GoldenCase:
    """A golden case of this repository, whichever set of folders the golden tests run over."""
    return GoldenCase(ROOT / "tests" / "golden" / "rocketmq-store" / name)


@dataclass(frozen=True)
class Finished:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> list[dict[str, Any]]:
        """Its output as JSON lines."""
        return [json.loads(line) for line in self.lines]

    @property
    def error(self) -> dict[str, Any]:
        """The error of a command with `--json`: the last line on stderr."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        return found


def pyledger(*arguments: str | Path) -> Finished:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Finished(code, out.getvalue(), err.getvalue())


def spawn(*arguments: str | Path, text: str | None = None, cwd: Path | None = None) -> Finished:
    """Run a command in a process of its own."""
    found = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=text, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, cwd=cwd, check=False,
    )  # fmt: skip
    return Finished(found.returncode, found.stdout, found.stderr)


def on_terminal(*arguments: str | Path, **environment: str) -> str:
    """What a command shows on a terminal of 100 columns."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=slave, stderr=slave, stdin=slave,
        env=ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "100"} | environment,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
    except OSError:  # the terminal is gone with its process
        pass
    os.close(master)
    assert process.wait(60) == 0
    return shown.decode()


def into_closed_pipe(*arguments: str | Path) -> tuple[int, bytes]:
    """Exit code and stderr of a command whose output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=writing, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    os.close(writing)
    _, err = process.communicate(timeout=60)
    return process.returncode, err
