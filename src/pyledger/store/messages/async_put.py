"""Waiting for durability in an event loop: the only place of the store that knows asyncio."""

import asyncio
from asyncio import Future

from pyledger._core import GroupCommit

__all__ = ["Future", "durable"]


def durable(group: GroupCommit, end_offset: int, timeout_ms: int) -> "Future[bool]":
    """What becomes true in the running loop when bytes below `end_offset` are on disk; False when late."""
    return group.register(end_offset, asyncio.get_running_loop(), timeout_ms)
