"""The event loop on a thread behind the clients that do not use asyncio. One serves a whole process."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from pyledger.client.lifecycle import Lifecycle
from pyledger.net.loop import loop_factory

WAITS_FOR_ITSELF = "a blocking client is used from a callback of the event loop; use the Async one"
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
            raise RuntimeError(WAITS_FOR_ITSELF)
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, begin: Callable[[], asyncio.Future[T]]) -> "Future[T]":
        """Call `begin` on the loop; the result of what it returns comes with the future. Costs no task."""
        future: Future[T] = Future()
        self._loop.call_soon_threadsafe(hand_over, begin, future)
        return future

    def wait_for(self, begin: Callable[[], asyncio.Future[T]]) -> T:
        """Call `begin` on the loop and wait for the result of what it returns.

        Raises:
            RuntimeError: called from the loop itself, which would wait for ever.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(WAITS_FOR_ITSELF)
        future = self.start(begin)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def hand_over(begin: Callable[[], asyncio.Future[T]], future: "Future[T]") -> None:
    """Begin, and let a future of threads have what a future of the loop gets."""

    def done(source: asyncio.Future[T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if source.cancelled():
            future.set_exception(asyncio.CancelledError())
        elif (error := source.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(source.result())

    try:
        source = begin()
    except BaseException as error:  # noqa: BLE001 - whoever waits gets it
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
        return
    source.add_done_callback(done)


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
