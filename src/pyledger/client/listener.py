"""Listeners, the user's functions that consume messages, and the runner that calls them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyledger.client.callbacks import is_async
from pyledger.client.listener_pool import WorkerPool
from pyledger.config.fields import checked_function
from pyledger.errors import ConfigError
from pyledger.wire.record.record import ReceivedMessage


@dataclass(frozen=True, slots=True)
class ReconsumeLater:
    """What a listener returns for messages that it could not process. Raising does the same."""

    delay_level: int = 0
    """Delay until redelivery: 1 to 18; 0: the broker chooses; -1: make them dead letters now."""
    suspend_ms: int | None = None
    """Orderly: pause of the queue in milliseconds; None: the setting `suspend_ms`."""
    done: int = 0
    """Number of messages at the start of a batch that were processed. Orderly: all are delivered again."""


Outcome = ReconsumeLater | None
Listener = Callable[[ReceivedMessage], Outcome | Awaitable[Outcome]]
"""Processes a message: a coroutine function, or one that runs on a thread.

Every result except `ReconsumeLater` is success.
"""
BatchListener = Callable[[Sequence[ReceivedMessage]], Outcome | Awaitable[Outcome]]
"""Processes several messages at once; otherwise as `Listener`."""
Finished = Callable[[Any, BaseException | None], None]


Begin = Callable[[], bool]
Watch = Callable[[Sequence[ReceivedMessage], Begin, Finished], tuple[Begin, Finished]]
"""Wraps the two callbacks of a listener's call: before it starts and after it ended."""

CALLS_PER_ITERATION_MAX = 32
SKIPPED = object()
"""Outcome of messages whose `begin` returned False."""


class ListenerRunner:
    """Runs a listener, at most `threads` calls at once."""

    def __init__(
        self, listener: Listener | None, batch_listener: BatchListener | None, threads: int, name: str
    ) -> None:
        """Create a runner for one of the two listeners.

        Raises:
            ConfigError: neither or both listeners are given, or the one is not a function.
        """
        if (listener is None) == (batch_listener is None):
            given = "neither" if listener is None else "each"
            raise ConfigError("listener and batch_listener", f"{given} is given", "give one of the two")
        checked_function("listener", listener)
        checked_function("batch_listener", batch_listener)
        self.is_batch = batch_listener is not None
        self._function: Callable[[Any], Any] = batch_listener or listener  # type: ignore[assignment]
        self._is_async = is_async(self._function)
        self._threads = threads
        self._name = name
        self._pool: WorkerPool | None = None
        self._waiting: deque[tuple[Any, Callable[[], bool], Finished]] = deque()
        self._active = 0
        """Tasks that take messages from `_waiting`; `_running` may also hold tasks that have ended."""
        self._is_starting = False
        """Whether a task was created that has not run yet."""
        self._running: set[asyncio.Task[None]] = set()
        self.in_flight = 0
        self.watch: Watch | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        """Start the threads, unless the listener is a coroutine function."""
        if not self._is_async:
            self._pool = WorkerPool(asyncio.get_running_loop(), self._threads, self._name)

    def run(self, messages: Sequence[ReceivedMessage], begin: Begin, finished: Finished) -> None:
        """Queue messages for the listener.

        Args:
            messages: One message, or several for a batch listener.
            begin: Called just before the listener, on its thread; False skips the messages.
            finished: Called on the event loop with the listener's result or `SKIPPED`, and its exception.
        """
        self.in_flight += 1
        self._idle.clear()
        if self.watch is not None:
            begin, finished = self.watch(messages, begin, finished)
        done = partial(self._finished, finished)
        argument = messages if self.is_batch else messages[0]
        if self._pool is not None:
            self._pool.submit(partial(called, self._function, argument, begin), done)
            return
        self._waiting.append((argument, begin, done))
        self._start_task()

    async def process(self, messages: Sequence[ReceivedMessage]) -> tuple[Any, BaseException | None]:
        """Let the listener process messages; return its result and its exception."""
        future: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()

        def finished(outcome: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result((outcome, error))

        self.run(messages, lambda: True, finished)
        return await future

    async def close(self, wait_ms: int) -> None:
        """Wait up to `wait_ms` for calls in progress, then cancel them."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            pass
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._pool is not None:
            self._pool.close()

    def _finished(self, finished: Finished, outcome: Any, error: BaseException | None) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self._idle.set()
        finished(outcome, error)

    def _start_task(self) -> None:
        """Start one more task if messages wait and fewer than `threads` tasks are active."""
        if self._waiting and not self._is_starting and self._active < self._threads:
            self._is_starting = True
            self._active += 1
            task = asyncio.get_running_loop().create_task(self._process_waiting())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _process_waiting(self) -> None:
        """Process waiting messages one by one; each call first starts a task that runs while it awaits."""
        self._is_starting = False
        calls = 0
        while self._waiting:
            argument, begin, done = self._waiting.popleft()
            self._start_task()
            outcome, error = None, None
            try:
                outcome = await self._function(argument) if begin() else SKIPPED
            except Exception as raised:  # noqa: BLE001 - the user's exception is passed to `done`
                error = raised
            done(outcome, error)
            calls += 1
            if not calls % CALLS_PER_ITERATION_MAX:
                await asyncio.sleep(0)  # a listener that never awaits must not block the event loop
        self._active -= 1


def called(function: Callable[[Any], Any], argument: Any, begin: Callable[[], bool]) -> Any:
    """Call a function that may block, or return `SKIPPED` if `begin` returns False."""
    return function(argument) if begin() else SKIPPED
