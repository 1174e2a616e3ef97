"""Cancellation of tasks that continue despite failures of the metadata store."""

import asyncio


def end_if_cancelled() -> None:
    """Raise if the current task was cancelled. Loops that retry after a failure call it.

    An error raised while cancelled work cleans up, for example by a store that does not respond, replaces
    the cancellation.

    Raises:
        asyncio.CancelledError: The task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
