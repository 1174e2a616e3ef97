"""The time of autorecovery, apart from that of its connections: hours and weeks, which tests pass at will."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol


async def first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Wait until one of several waits is over; the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Clock(Protocol):
    """Tells the time, and waits."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""

    async def wait(self, time_ms: int) -> None:
        """Wait so many milliseconds."""


class SystemClock:
    """The machine's own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    async def wait(self, time_ms: int) -> None:
        """Wait so many milliseconds."""
        await asyncio.sleep(time_ms / 1000)
