"""Waking those who wait for a change, without missing one that comes before they wait."""

import asyncio


class Signal:
    """A counter that can be waited for. Belongs to one event loop."""

    __slots__ = ("_count", "_waiters")

    def __init__(self) -> None:
        self._count = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def count(self) -> int:
        """How often it was given."""
        return self._count

    def give(self) -> None:
        """Wake all."""
        self._count += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int) -> None:
        """Wait until it was given more often than `seen`."""
        while self._count <= seen:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
