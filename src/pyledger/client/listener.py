"""A user's function for messages, and where it runs."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyledger.client.callbacks import is_async
from pyledger.client.listener_pool import WorkerPool
from pyledger.wire.record.record import ReceivedMessage


@dataclass(frozen=True, slots=True)
class ReconsumeLater:
    """What a listener returns for messages that it could not process. Raising does the same."""

    delay_level: int = 0
    """1 to 18: when they come again; 0 leaves it to the broker; -1 makes dead letters of them at once."""
    suspend_ms: int | None = None
    """Orderly: how long the queue pauses; None: as configured."""
    done: int = 0
    """Of a batch: so many messages from its front were processed. In order, all of it comes again."""


Outcome = ReconsumeLater | None
Listener = Callable[[ReceivedMessage], Outcome | Awaitable[Outcome]]
"""Processes a message: a coroutine function, or one that runs on a thread.

Every result but `ReconsumeLater` is success.
"""
BatchListener = Callable[[Sequence[ReceivedMessage]], Outcome | Awaitable[Outcome]]
"""The same for several messages."""
Finished = Callable[[Any, BaseException | None], None]


Begin = Callable[[], bool]
Watch = Callable[[Sequence[ReceivedMessage], Begin, Finished], tuple[Begin, Finished]]
"""What to call instead when a listener begins with messages, and ends."""

TURNS_MAX = 32
SKIPPED = object()
"""What is returned for messages that were not to be processed any more."""


class ListenerRunner:
    """Runs a listener, so many at once as there are threads."""

    def __init__(
        self, listener: Listener | None, batch_listener: BatchListener | None, threads: int, name: str
    ) -> None:
        """A runner for one of the two.

        Raises:
            TypeError: neither or both are given.
        """
        if (listener is None) == (batch_listener is None):
            raise TypeError("give a listener or a batch_listener")
        self.is_batch = batch_listener is not None
        self._function: Callable[[Any], Any] = batch_listener or listener  # type: ignore[assignment]
        self._is_async = is_async(self._function)
        self._threads = threads
        self._name = name
        self._pool: WorkerPool | None = None
        self._waiting: deque[tuple[Any, Callable[[], bool], Finished]] = deque()
        self._active = 0
        """Tasks that look for what waits; not those that are over, which `_running` may still have."""
        self._is_starting = False
        """One more task is on its way to what waits."""
        self._running: set[asyncio.Task[None]] = set()
        self.in_flight = 0
        self.watch: Watch | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self) -> None:
        """Make the threads, where the listener needs some."""
        if not self._is_async:
            self._pool = WorkerPool(asyncio.get_running_loop(), self._threads, self._name)

    def run(self, messages: Sequence[ReceivedMessage], begin: Begin, finished: Finished) -> None:
        """Let the listener process messages when it is their turn.

        Args:
            messages: One, unless the listener takes several.
            begin: Asked when it is their turn, perhaps on a thread; False: they are not to be processed.
            finished: Gets what the listener returned, `SKIPPED`, or what it raised, on the event loop.
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
        """Let the listener process messages; what it returned, and what it raised."""
        future: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()

        def finished(outcome: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result((outcome, error))

        self.run(messages, lambda: True, finished)
        return await future

    async def close(self, wait_ms: int) -> None:
        """Run nothing more; wait so long (ms) for what runs."""
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
        """Have what waits processed at once with what runs, where there are turns left."""
        if self._waiting and not self._is_starting and self._active < self._threads:
            self._is_starting = True
            self._active += 1
            task = asyncio.get_running_loop().create_task(self._process_waiting())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _process_waiting(self) -> None:
        """Process one after the other; while a listener waits for something, another task goes on."""
        self._is_starting = False
        turns = 0
        while self._waiting:
            argument, begin, done = self._waiting.popleft()
            self._start_task()
            outcome, error = None, None
            try:
                outcome = await self._function(argument) if begin() else SKIPPED
            except Exception as raised:  # noqa: BLE001 - it is the user's, and handed over
                error = raised
            done(outcome, error)
            turns += 1
            if not turns % TURNS_MAX:
                await asyncio.sleep(0)  # a listener that waits for nothing must not hold the event loop
        self._active -= 1


def called(function: Callable[[Any], Any], argument: Any, begin: Callable[[], bool]) -> Any:
    """Call a function that may block, unless its turn is over."""
    return function(argument) if begin() else SKIPPED
