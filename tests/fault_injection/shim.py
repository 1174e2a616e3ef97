"""Runs a Python child whose flush, allocation and write calls fail when the test says so.

The child is ordinary code against a real store; only the C library's answers are replaced (fail_io.c). The
child steers the failures itself through `IoFaults`, so that a test reads as one story.
"""

import mmap
import os
import shutil
import struct
import subprocess
import sys
import textwrap
from enum import IntEnum
from pathlib import Path
from types import TracebackType

SOURCE = Path(__file__).with_name("fail_io.c")
ROOT = Path(__file__).parents[2]
CONTROL_BYTES = 4096


class Call(IntEnum):
    """The calls that can be made to fail; the order is that of fail_io.c."""

    MSYNC = 0
    FDATASYNC = 1
    FSYNC = 2
    FALLOCATE = 3
    FTRUNCATE = 4
    PWRITE = 5
    OPEN = 6
    UNLINK = 7
    RENAME = 8
    MKDIR = 9


def compiler() -> str | None:
    """The C compiler that can build the shim, if there is one."""
    return shutil.which("cc") or shutil.which("gcc")


def build_shim(folder: Path, source: str = SOURCE.name) -> Path:
    """Compile a source beside this file into `folder` and return the library."""
    library = (folder / source).with_suffix(".so")
    cc = compiler()
    assert cc is not None
    subprocess.run(
        [cc, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE.with_name(source)), "-ldl"],
        check=True,
        timeout=60,
    )
    return library


class IoFaults:
    """The words that fail_io.c reads, mapped by the child (or by the test) while it runs."""

    def __init__(self, path: str | None = None) -> None:
        with open(path or os.environ["FAIL_IO_CONTROL"], "r+b") as file:
            self._words = mmap.mmap(file.fileno(), CONTROL_BYTES)

    def fail(self, call: Call, number: int, *, after: int = 0) -> None:
        """Let `call` fail with the errno `number`, once `after` more calls went through."""
        struct.pack_into("=qq", self._words, 40 * call, 0, after)
        struct.pack_into("=q", self._words, 40 * call, number)

    def delay(self, call: Call, time_ms: int) -> None:
        """Let `call` take so many milliseconds longer; 0: no longer."""
        struct.pack_into("=q", self._words, 40 * call + 32, time_ms)

    def heal(self, call: Call) -> None:
        """Let `call` work again."""
        struct.pack_into("=q", self._words, 40 * call, 0)

    def seen(self, call: Call) -> int:
        """Calls made since the process began."""
        return int(struct.unpack_from("=q", self._words, 40 * call + 16)[0])

    def failed(self, call: Call) -> int:
        """Calls that were made to fail."""
        return int(struct.unpack_from("=q", self._words, 40 * call + 24)[0])

    def __enter__(self) -> "IoFaults":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._words.close()


def run_child(
    source: str, folder: Path, *arguments: str, timeout_s: float = 60.0, shim: str = SOURCE.name
) -> str:
    """Run Python source under the shim and return what it printed; its failure fails the test."""
    control = folder / "faults"
    control.write_bytes(bytes(CONTROL_BYTES))
    environment = dict(os.environ, LD_PRELOAD=str(build_shim(folder, shim)), FAIL_IO_CONTROL=str(control))
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
