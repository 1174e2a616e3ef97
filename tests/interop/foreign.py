"""Clients in C++ and Go: built or found on first use; without their tools their tests are skipped."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.interop.java import BUILD_TIMEOUT_S, Line, refuse
from tests.interop.peers import KIT, Run


@dataclass(frozen=True)
class ForeignClient:
    """A client program that is not in Java."""

    name: str
    command: tuple[str, ...]
    home: Path
    """Takes its logs and local offsets."""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: object) -> Run:
        """Start the program as a process."""
        process = subprocess.Popen(
            [*self.command, *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | {"HOME": str(self.home)},
        )  # fmt: skip
        self.processes.append(process)
        assert process.stdout is not None
        return Run(f"{self.name} {arguments}", process.stdout, process.wait)

    def run(self, *arguments: object) -> list[Line]:
        """Run it to its end, and require that it is satisfied."""
        return self.start(*arguments).end()

    def close(self) -> None:
        """End what a failed test has left running."""
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def foreign_client(name: str, home: Path) -> Iterator[ForeignClient]:
    """`cpp` or `go`. Skips the test when it cannot be had."""
    client = ForeignClient(name, cpp_command() if name == "cpp" else go_command(), home)
    try:
        yield client
    finally:
        client.close()


@cache
def cpp_command() -> tuple[str, ...]:
    """The C++ client by its Python binding, which is its library and little else."""
    if importlib.util.find_spec("rocketmq") is None:
        refuse("the C++ client is not installed: pip install 'pyledger[interop]', on Linux")
    return (sys.executable, str(KIT / "cpp_client.py"))


@cache
def go_command() -> tuple[str, ...]:
    """The Go client, built into the kit's target folder."""
    if shutil.which("go") is None:
        refuse("go is not installed")
    target = KIT / "target" / "goclient"
    target.parent.mkdir(exist_ok=True)
    build = subprocess.run(
        ["go", "build", "-o", str(target), "."],
        cwd=KIT / "goclient", capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    if build.returncode:
        refuse(f"the Go client cannot be built: {build.stderr[-300:]}")
    return (str(target),)
