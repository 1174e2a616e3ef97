"""What the generated synchronous classes have in common: an asynchronous object and the loop that runs it."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from pyledger.net.loop_thread import LoopThread

T = TypeVar("T")


class AsyncContext(Protocol):
    """An asynchronous object for `async with`."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


A = TypeVar("A", bound=AsyncContext)
_lock = threading.Lock()
_threads: list[LoopThread] = []


def background() -> LoopThread:
    """Return the loop that all synchronous clients of the process share; a forked child gets its own."""
    with _lock:
        if not _threads or _threads[0].process_id != os.getpid():
            _threads[:] = [LoopThread("pyledger-client")]
        return _threads[0]


class Blocking(Generic[A]):
    """Runs an asynchronous object on the shared loop and waits for each call. Any thread may use it."""

    def __init__(self, wrapped: A) -> None:
        self._async = wrapped

    def __enter__(self) -> Self:
        self._wait(self._async.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._async.__aexit__(kind, error, trace))

    @staticmethod
    def _wait(work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return background().wait(work)

    @staticmethod
    def _wait_for(begin: Callable[[], asyncio.Future[T]]) -> T:
        """Call a function on the loop and return the result of its future; cheaper than a coroutine."""
        return background().wait_for(begin)

    @staticmethod
    def _start(begin: Callable[[], asyncio.Future[T]]) -> Future[T]:
        """Call a function on the loop and return a future of threads for the one it returns."""
        return background().start(begin)

    @staticmethod
    def _call(function: Callable[[], T]) -> T:
        """Call a function on the loop and return its result."""

        async def call() -> T:
            return function()

        return background().wait(call())

    @staticmethod
    def _iterate(source: AsyncIterator[T], count: int) -> Iterator[T]:
        """Yield what an asynchronous generator yields, fetched `count` at a time."""

        async def fetch() -> list[T]:
            found = []
            async for one in source:
                found.append(one)
                if len(found) == count:
                    break
            return found

        async def close() -> None:
            if isinstance(source, AsyncGenerator):
                await source.aclose()

        try:
            while fetched := background().wait(fetch()):
                yield from fetched
        finally:
            background().wait(close())
