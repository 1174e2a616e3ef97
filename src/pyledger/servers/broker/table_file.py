"""A table of a broker that has a file in the store's folder `config`.

Source: RocketMQ common/.../ConfigManager.java.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol

from pyledger.store.files.meta_file import make_folder

REST = 4
"""Between two writes a table rests for so many times the processor time that the first one took: peers that
make it change all the time do not make the broker write all the time."""
REST_MAX_S = 5.0


class Snapshot(Protocol):
    """What a table was at a moment."""

    def write(self, folder: Path) -> None:
        """Replace the file of the table in the folder `config`."""


class TableFile:
    """Writes a table after it has changed, without holding up the event loop.

    Invariant: one write at a time, and the edition on disk never goes back.
    """

    def __init__(
        self,
        folder: Path,
        edition: Callable[[], Hashable],
        snapshot: Callable[[], Snapshot],
        before: Callable[[], object] | None = None,
    ) -> None:
        """A file that is not written yet.

        Args:
            folder: The folder `config`; made when it is missing.
            edition: Differs after each change of the table.
            snapshot: The table as it is now.
            before: Called in a thread after the snapshot was taken and before it is written: makes durable
                what the table speaks of.
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
        """Write the table as it is now; nothing is done when it has not changed.

        A large table waits until it has rested, and those that wait are served by one write.

        Raises:
            StoreFullError: no room; the old file stands.
            StoreIOError: the operating system refused.

        Durability: on return the edition that stood at the call survives a power cut.
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
                    # The thread goes on: the next write must not meet it.
                    await asyncio.wait((writing,))
                    raise
                self._saved = edition
                self._rests_until_s = time.monotonic() + min(REST * cost_s, REST_MAX_S)

    def _write(self, snapshot: Snapshot) -> float:
        """Write it; returns the processor time that it took, seconds."""
        begun_s = time.thread_time()
        if self._before is not None:
            self._before()
        make_folder(self._folder)
        snapshot.write(self._folder)
        return time.thread_time() - begun_s
