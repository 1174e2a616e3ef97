"""Runs a service on a thread of its own, for programs without asyncio, mostly tests."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from pyledger.net.loop_thread import LoopThread


class Service(Protocol):
    """A service that runs from `start` to `close`."""

    async def start(self) -> None:
        """Start serving."""

    async def close(self) -> None:
        """Stop serving."""


S = TypeVar("S", bound=Service)


class BackgroundService(Generic[S]):
    """A service that runs within a `with` block."""

    def __init__(self, folder: Path | None, make: Callable[[Path], S], name: str) -> None:
        """Create the service; it is started when the block is entered.

        Args:
            folder: Folder of the service; None: a temporary one, deleted at the end.
            make: Creates the service without starting it.
            name: Name of the thread.
        """
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pyledger-")
            folder = Path(self._temporary.name)
        self._name = name
        self._thread: LoopThread | None = None
        try:
            self._service = make(folder)
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        self._thread = LoopThread(self._name)
        try:
            self._thread.wait(self._service.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.wait(self._service.close())
        finally:
            self._end()

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.close()
        if self._temporary is not None:
            self._temporary.cleanup()
