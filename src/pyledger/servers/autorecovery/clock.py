"""The clock of autorecovery, separate from that of connections: tests skip its hours and weeks."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol


async def first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Wait for the first of several coroutines, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Clock(Protocol):
    """A source of time that can also wait."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""

    async def wait(self, time_ms: int) -> None:
        """Wait `time_ms` milliseconds."""


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    async def wait(self, time_ms: int) -> None:
        """Wait `time_ms` milliseconds."""
        await asyncio.sleep(time_ms / 1000)
