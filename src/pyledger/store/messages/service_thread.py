"""A thread of a store: it works in rounds, sleeps until it is notified, and reports every error.

Threads are daemons. `MessageStore` registers a finalizer that stops them when the interpreter exits with an
open store, so none of them runs in a finalized interpreter.
"""

import logging
import os
import threading
from collections.abc import Callable

from pyledger._core import EventNotifier
from pyledger.errors import StoreClosedError
from pyledger.log_events import event, logger

log = logger("store")

STOP_TIMEOUT_S = 30.0


class FailureLatch:
    """The first failure of a store's services; it stays until the store is reopened."""

    def __init__(self) -> None:
        self.cause: BaseException | None = None
        self._lock = threading.Lock()

    def set(self, cause: BaseException) -> bool:
        """Keep the first cause; return whether this is the first."""
        with self._lock:
            if self.cause is not None:
                return False
            self.cause = cause
            return True


class Service:
    """A thread that calls `work` in a loop."""

    def __init__(
        self,
        name: str,
        work: Callable[[], int],
        failed: Callable[[str, BaseException], None],
        notifier: EventNotifier | None = None,
        rest_ms: Callable[[], int] | None = None,
    ) -> None:
        """A thread that is not started yet.

        Args:
            name: Of the service.
            work: One round; how long to sleep until woken (ms).
            failed: Called when an error ends it.
            notifier: Ends its sleep.
            rest_ms: Returns a pause after the round (ms) that a notification does not end.
        """
        self.name = name
        self.notifier = notifier or EventNotifier()
        self._work = work
        self._failed = failed
        self._rest_ms = rest_ms
        self._stopping = False
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"pyledger-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """End the sleep early."""
        self.notifier.notify()

    def request_stop(self) -> None:
        """Let the current round be the last."""
        self._stopping = True
        if os.getpid() == self._pid:
            self._stop.set()
            self.notifier.notify()

    def stop(self) -> None:
        """Wait for the end of the last round. Safe to call twice, and from a forked child."""
        self.request_stop()
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._stopping:
                pause_ms = self._work()
                if self._rest_ms is not None and (rest_ms := self._rest_ms()):
                    self._stop.wait(rest_ms / 1000)
                if pause_ms > 0 and not self._stopping:
                    self.notifier.wait(pause_ms)
        except BaseException as error:  # noqa: BLE001 - every error must be reported
            if self._stopping and isinstance(error, StoreClosedError):
                return
            event(log, logging.ERROR, "store service failed", service=self.name, reason=error)
            self._failed(self.name, error)
