"""Allocate disk space in advance: the next commit-log file, and the next chunk of the current one.

Page faults, not copying, limit appends; and a full disk is an error here, not a signal. A file has its full
length from the start, but its blocks are allocated in chunks, so that a small store uses little space. A
slave, which does not append through the mapping, allocates a whole file at once if there is enough free
space.
"""

import logging
import os
import threading
from collections.abc import Callable

from pyledger._core import MappedFile, MappedFileQueue
from pyledger.errors import StoreFullError
from pyledger.log_events import event, logger

log = logger("store")

STOP_TIMEOUT_S = 30.0
CHUNK_BYTES = 64 << 20
"""Blocks are allocated and pages populated in steps of this size."""
LEAD_BYTES = 32 << 20
"""The next step begins when less than this is left."""
IDLE_MS = 60_000
RETRY_MS = 1_000


class AllocatorThread:
    """Keeps files ready for one commit log."""

    def __init__(
        self, log_queue: MappedFileQueue, files_ahead: int, failed: Callable[[str, BaseException], None]
    ) -> None:
        self._log = log_queue
        self._files_ahead = files_ahead
        self._failed = failed
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="pyledger-allocate", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop it and remove the files that were not used."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        self._log.stop_allocator()
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._log.run_allocator(self._files_ahead)
        except BaseException as error:  # noqa: BLE001 - whatever ends a service must be known
            event(log, logging.ERROR, "store service failed", service="allocate", reason=error)
            self._failed("allocate", error)


class ChunkAhead:
    """Keeps allocated, populated pages ahead of the appends within the last file."""

    def __init__(self, log_queue: MappedFileQueue) -> None:
        self._log = log_queue
        self.populates = True
        """Whether pages are made, too: who appends through the mapping needs them."""

    def is_short(self) -> bool:
        """Whether the next chunk is due; not before the file is used."""
        files = self._log.files
        if not files:
            return False
        last = files[-1]
        return (
            last.wrote_position > 0
            and last.allocated_position < last.size_bytes
            and last.allocated_position - last.wrote_position < LEAD_BYTES
        )

    def work(self) -> int:
        """One round of the service; return the pause until the next (ms).

        A full disk is reported by the append that needs the space.
        """
        if self.is_short():
            last = self._log.files[-1]
            end = max(last.allocated_position, last.wrote_position) + CHUNK_BYTES
            try:
                if self.populates:
                    last.populate(end)
                else:
                    last.reserve(last.size_bytes if has_room_for_rest(last) else min(end, last.size_bytes))
            except StoreFullError:
                return RETRY_MS
        return IDLE_MS


def has_room_for_rest(file: MappedFile) -> bool:
    """Whether there is free space for twice the rest of a file.

    Writes that bypass the mapping wait while blocks are allocated, so that is then done once.
    """
    space = os.statvfs(os.path.dirname(file.path))
    return space.f_bavail * space.f_frsize > 2 * (file.size_bytes - file.allocated_position)
