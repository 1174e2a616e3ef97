"""Threads for listeners that may block. Results are delivered on the event loop, several per wake-up."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Work = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class WorkerPool:
    """Runs functions on its own threads. Used from one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int, name: str) -> None:
        self._loop = loop
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._done: deque[tuple[Callable[[Any, BaseException | None], None], Any, BaseException | None]] = (
            deque()
        )
        self._waking = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `function` on a thread; call `done` with its result and exception on the event loop."""
        self._work.put((function, done))

    def close(self) -> None:
        """Let the threads end once the submitted functions have run."""
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            function, done = work
            try:
                outcome, error = function(), None
            except BaseException as raised:  # noqa: BLE001 - the user's exception is passed to `done`
                outcome, error = None, raised
            self._done.append((done, outcome, error))
            if not self._waking:
                self._waking = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed, so no caller waits
                    return

    def _deliver(self) -> None:
        self._waking = False
        done = self._done
        while done:
            finished, outcome, error = done.popleft()
            finished(outcome, error)
