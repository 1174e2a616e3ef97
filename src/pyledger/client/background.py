"""The event loop on a thread behind the clients that do not use asyncio. One serves a whole process."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pyledger.client.lifecycle import Lifecycle
from pyledger.net.loop import loop_factory

T = TypeVar("T")
C = TypeVar("C", bound=Lifecycle)


class BackgroundLoop:
    """An event loop that runs on a daemon thread from its first use on."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pyledger-client", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run something; its result comes with the future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something and wait for it; an interrupt of the wait cancels it.

        Raises:
            RuntimeError: called from the loop itself, which would wait for ever.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a blocking client is used from a callback of the event loop; use the Async one"
            )
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_lock = threading.Lock()
_loops: list[BackgroundLoop] = []


def background() -> BackgroundLoop:
    """The loop of this process; a forked child gets its own."""
    with _lock:
        if not _loops or _loops[0].process_id != os.getpid():
            _loops[:] = [BackgroundLoop()]
        return _loops[0]


class Blocking(Generic[C]):
    """A client that runs in the background; calls wait for it. Any thread may use it."""

    def __init__(self, inner: C) -> None:
        self._inner: C = inner

    def start(self) -> None:
        """Begin."""
        background().wait(self._inner.start())

    def close(self) -> None:
        """End, in good order."""
        background().wait(self._inner.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        background().wait(self._inner.__aexit__(kind, error, trace))
