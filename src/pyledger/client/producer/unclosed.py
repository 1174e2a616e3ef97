"""Producers that the program does not close: the interpreter waits for their sends, and reports lost ones."""

import asyncio
import atexit
import logging
import os
from concurrent.futures import TimeoutError as WaitTimeoutError

from pyledger.client.producer.sender import Sender
from pyledger.log_events import event, logger

log = logger("client")

EXIT_WAIT_S = 30.0
"""How long the interpreter waits at its end."""

_unclosed: dict[Sender, tuple[str, asyncio.AbstractEventLoop]] = {}
"""The group and the event loop of each started producer."""


def started(sender: Sender, group: str) -> None:
    """Note a producer that was started on the running event loop."""
    _unclosed[sender] = group, asyncio.get_running_loop()


def closed(sender: Sender) -> None:
    """Forget a producer that has waited for its sends."""
    _unclosed.pop(sender, None)


def _settle_all() -> None:
    """Wait for the sends of each unclosed producer whose event loop still runs: that of blocking clients."""
    for sender, (group, loop) in tuple(_unclosed.items()):
        known = sender.failed
        # Sends that were submitted to the loop start before this coroutine does.
        if loop.is_running():
            waiting = asyncio.run_coroutine_threadsafe(sender.settle(), loop)
            try:
                waiting.result(EXIT_WAIT_S)
            except WaitTimeoutError:
                waiting.cancel()
        if lost := sender.pending + sender.cancelled + sender.failed - known:
            event(
                log, logging.WARNING, "producer not closed, messages may be lost", group=group, messages=lost
            )


atexit.register(_settle_all)
# A forked child has neither the thread nor the sends of its parent.
os.register_at_fork(after_in_child=_unclosed.clear)
