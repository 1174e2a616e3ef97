"""Raise KeyboardInterrupt on Ctrl-C, except during an import, which could swallow it or fail with it."""

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
    """Let Ctrl-C raise KeyboardInterrupt in the block; after it, Ctrl-C ends the process immediately.

    Nothing changes if the parent process set SIGINT to be ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        # The command is complete: an interrupted exit handler would only print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop. The loop handles Ctrl-C itself if it finds Python's handler."""
    from pyledger.net.loop import run

    handler = signal.getsignal(signal.SIGINT)
    if handler is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run(main)
    finally:
        signal.signal(signal.SIGINT, handler)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import exit immediately, as after SIGKILL: stores survive that."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(EXIT_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
