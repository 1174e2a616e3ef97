"""DLedger's own nodes and tools as peers: the kit in `dledger/`, built on first use."""

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.interop.java import BUILD_TIMEOUT_S, refuse, require_java

KIT = Path(__file__).parent / "dledger"
VERSION = "0.3.1.2"
START_S = 60


@cache
def require_kit() -> None:
    """Build the kit, once a session. Skips the test where that cannot be done."""
    require_java()
    done = subprocess.run(
        command("Check", str(KIT)), capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if not list((KIT / "target").glob(f"{VERSION}-*/built")):
        refuse(f"Maven cannot build the kit: {done.stderr[-300:]}")


def command(program: str, *arguments: str, version: str = VERSION) -> list[str]:
    return [str(KIT / "run.sh"), version, program, *arguments]


def run(program: str, *arguments: str, timeout_s: float = 60) -> tuple[int, list[dict[str, Any]]]:
    """Run a tool of the kit; its exit code and the JSON lines that it printed."""
    done = subprocess.run(
        command(program, *arguments), capture_output=True, text=True, timeout=timeout_s, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, lines


def judge(folder: Path, *options: str) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """What Java's store makes of a copy of a node's folder: exit code, entries, summary."""
    copy = folder.with_name("judged") / folder.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(folder, copy)
    code, lines = run("Check", str(copy), *options)
    shutil.rmtree(copy.parent)
    return code, [line for line in lines if "event" not in line], lines[-1]


class JavaNode:
    """One node of the kit in a process of its own."""

    def __init__(self, one: str, peers: str, folder: Path, settings: Sequence[str] = ()) -> None:
        options = [word for setting in settings for word in ("--set", setting)]
        self.log = (folder / f"{one}.log").open("ab")
        self.process = subprocess.Popen(
            command("Node", "--group", "g", "--id", one, "--peers", peers, "--store", str(folder), *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.role = ""
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("READY"):
                self.ready.set()
            elif line.startswith("{") and (event := json.loads(line)).get("event") == "role":
                self.role = str(event["role"])

    def wait_ready(self) -> Self:
        assert self.ready.wait(START_S), "the node did not start"
        return self

    def kill(self) -> None:
        """End the process as kill -9 does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in good order."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(100)
        self.reader.join(10)
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                stream.close()
