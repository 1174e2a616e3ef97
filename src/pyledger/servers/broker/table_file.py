"""Writes a table of the broker to its file in the folder `config` of the store.

Source: RocketMQ common/.../ConfigManager.java.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol

from pyledger.store.files.meta_file import make_folder

REST = 4
"""Pause between two writes, as a multiple of the processor time of the first: a table that changes all the
time is not written all the time."""
REST_MAX_S = 5.0


class Snapshot(Protocol):
    """The state of a table at one moment."""

    def write(self, folder: Path) -> None:
        """Replace the file of the table in the folder `config`."""


class TableFile:
    """Writes a table after it has changed, without holding up the event loop.

    Invariant: one write at a time; an older edition never replaces a newer one.
    """

    def __init__(
        self,
        folder: Path,
        edition: Callable[[], Hashable],
        snapshot: Callable[[], Snapshot],
        before: Callable[[], object] | None = None,
    ) -> None:
        """Write nothing yet.

        Args:
            folder: The folder `config`; created when it is missing.
            edition: Returns a value that differs after each change of the table.
            snapshot: Returns the present state of the table.
            before: Called in a thread between the snapshot and the write: makes durable what the table
                refers to.
        """
        self._folder = folder
        self._edition = edition
        self._snapshot = snapshot
        self._before = before
        self._saved: Hashable = None
        self._rests_until_s = 0.0
        self._writing = asyncio.Lock()

    def is_changed(self) -> bool:
        """Whether the table has changed since it was written."""
        return self._edition() != self._saved

    async def save(self) -> None:
        """Write the present state of the table; do nothing when it has not changed.

        A large table is written after its pause; one write serves all callers that wait.

        Raises:
            StoreFullError: the disk is full; the old file is unchanged.
            StoreIOError: the operating system reports an error.

        Durability: on return the state at the call survives a power failure.
        """
        async with self._writing:
            if self.is_changed():
                await asyncio.sleep(self._rests_until_s - time.monotonic())
                edition, begun_s = self._edition(), time.thread_time()
                snapshot = self._snapshot()
                cost_s = time.thread_time() - begun_s
                writing = asyncio.ensure_future(asyncio.to_thread(self._write, snapshot))
                try:
                    cost_s += await asyncio.shield(writing)
                except asyncio.CancelledError:
                    # The thread continues: the next write must not run beside it.
                    await asyncio.wait((writing,))
                    raise
                self._saved = edition
                self._rests_until_s = time.monotonic() + min(REST * cost_s, REST_MAX_S)

    def _write(self, snapshot: Snapshot) -> float:
        """Write the snapshot; return the processor time in seconds."""
        begun_s = time.thread_time()
        if self._before is not None:
            self._before()
        make_folder(self._folder)
        snapshot.write(self._folder)
        return time.thread_time() - begun_s
