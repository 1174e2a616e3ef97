"""A service with a folder on a thread of its own, for programs that do not use asyncio: mostly tests."""

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from pyledger.net.loop import run


class Service(Protocol):
    """Something that serves from `start` to `close`."""

    def start(self) -> Awaitable[None]:
        """Begin to serve."""

    def close(self) -> Awaitable[None]:
        """Serve no more."""


S = TypeVar("S", bound=Service)


class BackgroundService(Generic[S]):
    """A service that serves within a `with` block."""

    def __init__(self, folder: Path | None, make: Callable[[Path], S], name: str) -> None:
        """It begins when the block is entered.

        Args:
            folder: Where it keeps its files; None: a temporary folder, which is deleted at the end.
            make: Makes the service, not started yet.
            name: Of the thread.
        """
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="pyledger-")
            folder = Path(self._temporary.name)
        self._service = make(folder)
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._temporary is not None:
            self._temporary.cleanup()
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        try:
            run(self._main())
        except BaseException as failure:  # noqa: BLE001 - it belongs to the thread that waits
            self._failure = failure
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._service.start()
        try:
            self._ready.set()
            await self._stop.wait()
        finally:
            await self._service.close()
