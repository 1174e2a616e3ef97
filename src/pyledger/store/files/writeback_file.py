"""A new file whose write-back starts while it is written, so that its flush has little left to wait for."""

from pathlib import Path
from types import TracebackType
from typing import Self

from pyledger._core import start_writing_back
from pyledger.system_calls import flush_file

BEGIN_BYTES = 8 << 20
"""Write-back is started each time this many bytes were added."""


class WritebackFile:
    """Write to `sink`, call `start_writeback` after each part, and `flush` at the end."""

    def __init__(self, path: Path) -> None:
        self.sink = path.open("xb")
        self._begun_bytes = 0

    def start_writeback(self) -> None:
        """Start write-back once enough bytes were added. `flush` reports its errors."""
        written_bytes = self.sink.tell()
        if written_bytes - self._begun_bytes >= BEGIN_BYTES:
            self.sink.flush()
            start_writing_back(self.sink.fileno(), self._begun_bytes, written_bytes - self._begun_bytes)
            self._begun_bytes = written_bytes

    def flush(self) -> None:
        """Make the content durable. The caller flushes the folder."""
        self.sink.flush()
        flush_file(self.sink.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sink.close()
