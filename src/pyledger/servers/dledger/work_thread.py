"""WorkThread: runs blocking work for an event loop, in order.

A pool of one thread would create some ten objects per call; a member calls it for every flush of its log,
hundreds of times a second.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]
Done = Callable[[Exception | None], None]


class WorkThread:
    """A thread that serves the running event loop until `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Work, done: Done) -> None:
        """Do `work` after all earlier work; then the loop calls `done`, with the error or None."""
        self._queue.put((work, done))

    async def run(self, work: Work) -> None:
        """Do `work` and wait for it; raises what it raises."""
        ended: asyncio.Future[Exception | None] = self._loop.create_future()
        self.start(work, lambda error: None if ended.done() else ended.set_result(error))
        if (error := await ended) is not None:
            raise error

    def stop(self) -> None:
        """Finish the work that was started, and accept no more. Blocks until it is done."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            failure = None
            try:
                work()
            except Exception as error:  # noqa: BLE001 - `done` gets it
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(done, failure)
