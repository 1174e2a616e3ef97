"""A signal of changes that does not miss a change made before the wait."""

import asyncio


class Signal:
    """A counter whose increases tasks can wait for. Belongs to one event loop."""

    __slots__ = ("_count", "_waiters")

    def __init__(self) -> None:
        self._count = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def count(self) -> int:
        """How often `give` was called."""
        return self._count

    def give(self) -> None:
        """Increase the counter and wake all waiting tasks."""
        self._count += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int) -> None:
        """Wait until the counter is above `seen`."""
        while self._count <= seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
