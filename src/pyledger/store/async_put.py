"""Waiting for durability in an event loop: the only place of the store that knows asyncio."""

import asyncio
from asyncio import Future

from pyledger._core import GroupCommit
from pyledger.errors import FlushTimeoutError

__all__ = ["Future", "durable", "until_durable"]


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
    if not await durable(group, end_offset, timeout_ms):
        raise FlushTimeoutError(physical_offset, timeout_ms)


def durable(group: GroupCommit, end_offset: int, timeout_ms: int) -> "Future[bool]":
    """What becomes true in the running loop when bytes below `end_offset` are on disk; False when late."""
    return group.register(end_offset, asyncio.get_running_loop(), timeout_ms)
