"""A table of a broker that has a file in the store's folder `config`.

Source: RocketMQ common/.../ConfigManager.java.
"""

import asyncio
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Protocol

from pyledger.store.files.meta_file import make_folder


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
        self._writing = asyncio.Lock()

    def is_changed(self) -> bool:
        """Whether the table has changed since it was written."""
        return self._edition() != self._saved

    async def save(self) -> None:
        """Write the table as it is now; at once when it has not changed.

        Raises:
            StoreFullError: no room; the old file stands.
            StoreIOError: the operating system refused.

        Durability: on return the edition that stood at the call survives a power cut.
        """
        async with self._writing:
            edition = self._edition()
            if edition != self._saved:
                writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._snapshot()))
                try:
                    await asyncio.shield(writing)
                except asyncio.CancelledError:
                    # The thread goes on: the next write must not meet it.
                    await asyncio.wait((writing,))
                    raise
                self._saved = edition

    def _write(self, snapshot: Snapshot) -> None:
        if self._before is not None:
            self._before()
        make_folder(self._folder)
        snapshot.write(self._folder)
