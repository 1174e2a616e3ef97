"""Waiting for durability in an event loop: the only place of the store that knows asyncio."""

import asyncio

from pyledger._core import GroupCommit
from pyledger.errors import FlushTimeoutError


async def until_durable(group: GroupCommit, physical_offset: int, end_offset: int, timeout_ms: int) -> None:
    """Wait until bytes below `end_offset` are on disk; one wake-up of the loop serves all that wait in it.

    Args:
        group: Who flushes for all.
        physical_offset: Where the message stands (bytes), for the error.
        end_offset: Where it ends.
        timeout_ms: How long to wait.

    Raises:
        FlushTimeoutError: the flush was late.
        StoreFailedError: the flush failed.
    """
    if group.flushed_where >= end_offset:
        return
    loop = asyncio.get_running_loop()
    future = group.register(end_offset, loop)

    def give_up() -> None:
        if not future.done():
            future.set_exception(FlushTimeoutError(physical_offset, timeout_ms))

    # A plain timer: `asyncio.timeout` costs more than the append.
    timer = loop.call_later(timeout_ms / 1000, give_up)
    try:
        await future
    finally:
        timer.cancel()
