"""Ctrl-C as KeyboardInterrupt, but not within an import: that can lose it, or take it for a failure."""

import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from pyledger.cli import EXIT_INTERRUPTED

T = TypeVar("T")


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it Ctrl-C raises KeyboardInterrupt; behind it, it ends the process at once.

    Nothing changes where whoever started the process wants SIGINT ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        # All is done: an exit handler that is interrupted would only print a trace.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a program on an event loop, which handles Ctrl-C itself where it finds Python's own handler."""
    from pyledger.net.loop import run

    handler = signal.getsignal(signal.SIGINT)
    if handler is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run(main)
    finally:
        signal.signal(signal.SIGINT, handler)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; within an import end at once, as by SIGKILL, which stores survive."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(EXIT_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
