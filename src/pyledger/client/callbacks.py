"""Calling a user's function, whether it is a coroutine function or one that may block."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, cast

T = TypeVar("T")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or an object's `__call__`, is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is inspected
    )


async def invoke(
    function: Callable[..., T | Awaitable[T]], *arguments: Any, executor: Executor | None = None
) -> T:
    """Call a function: a coroutine function on the event loop, any other on a thread of `executor`."""
    if is_async(function):
        return await cast("Awaitable[T]", function(*arguments))
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(executor, cast("Callable[..., T]", function), *arguments)
