"""The end of tasks that go on whatever the metadata store answers."""

import asyncio


def end_if_cancelled() -> None:
    """End the current task, if that was asked for: for loops that try again after a failure.

    An error raised while cancelled work cleans up, such as that of a store that does not answer, takes the
    place of the cancellation.

    Raises:
        asyncio.CancelledError: It was asked for.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
