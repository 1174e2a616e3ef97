"""stdout and stderr of the process."""

import os
import sys
from typing import TextIO, cast


def prepare_output() -> None:
    """Lines go out as they are made, and in UTF-8 wherever no terminal says otherwise."""
    for stream in (sys.stdout, sys.stderr):
        plain = cast("TextIO", stream)
        if hasattr(plain, "reconfigure"):
            encoding = plain.encoding if plain.isatty() else "utf-8"
            plain.reconfigure(encoding=encoding, errors="backslashreplace", line_buffering=True)


def discard_output() -> None:
    """Keep the interpreter from flushing into a stream that failed once more when it ends."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
