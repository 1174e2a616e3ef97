"""A new file that is on its way to the disk while it is written: its flush has little left to wait for."""

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from pyledger._core import start_writing_back

BEGIN_BYTES = 8 << 20
"""The kernel is asked to write whenever there is so much more."""


class WritebackFile:
    """Write to `sink`, call `go_on` after each part, and `flush` in the end."""

    def __init__(self, path: Path) -> None:
        self.sink = path.open("xb")
        self._begun_bytes = 0

    def go_on(self) -> None:
        """Let the kernel begin to write what the file got, once it is much. The flush tells of errors."""
        written_bytes = self.sink.tell()
        if written_bytes - self._begun_bytes >= BEGIN_BYTES:
            self.sink.flush()
            start_writing_back(self.sink.fileno(), self._begun_bytes, written_bytes - self._begun_bytes)
            self._begun_bytes = written_bytes

    def flush(self) -> None:
        """Return once all is on the disk; its name is the folder's to flush."""
        self.sink.flush()
        os.fsync(self.sink.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sink.close()
