"""An event loop on a thread, for programs that do not use asyncio."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from pyledger.net.loop import loop_factory

WAITS_FOR_ITSELF = "a blocking client is used from a callback of the event loop; use the Async one"
T = TypeVar("T")


class LoopThread:
    """An event loop on a daemon thread of its own, from its making until `close`."""

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: Of the thread.
        """
        self.process_id = os.getpid()
        self._loop = loop_factory()()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._closing.wait()

    def close(self) -> None:
        """Cancel what still runs on the loop, end the loop, and wait for its thread."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the loop and return the future of its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it; an exception that ends the wait cancels it.

        Raises:
            RuntimeError: called on the loop's own thread, which would wait forever.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(WAITS_FOR_ITSELF)
        return _result(self.submit(work))

    def start(self, begin: Callable[[], asyncio.Future[T]]) -> "Future[T]":
        """Call `begin` on the loop and return a future with the result of the one it returns; no task."""
        future: Future[T] = Future()
        self._loop.call_soon_threadsafe(_chain, begin, future)
        return future

    def wait_for(self, begin: Callable[[], asyncio.Future[T]]) -> T:
        """Call `begin` on the loop and wait for the result of the future it returns.

        Raises:
            RuntimeError: called on the loop's own thread, which would wait forever.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(WAITS_FOR_ITSELF)
        return _result(self.start(begin))


def _result(future: "Future[T]") -> T:
    """Wait for a future; an exception that ends the wait cancels it."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _chain(begin: Callable[[], asyncio.Future[T]], future: "Future[T]") -> None:
    """Call `begin` and complete a future of threads when the future it returns is done."""

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
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller that waits
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
        return
    source.add_done_callback(done)
