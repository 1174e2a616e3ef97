"""stdout and stderr of the process."""

import os
import sys
from typing import TextIO, cast


def prepare_output() -> None:
    """Flush after each line, and write UTF-8 unless a terminal has another encoding."""
    for stream in (sys.stdout, sys.stderr):
        plain = cast("TextIO", stream)
        if hasattr(plain, "reconfigure"):
            encoding = plain.encoding if plain.isatty() else "utf-8"
            plain.reconfigure(encoding=encoding, errors="backslashreplace", line_buffering=True)


def discard_output() -> None:
    """Redirect stdout to the null device, so that the interpreter's last flush cannot fail again."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
