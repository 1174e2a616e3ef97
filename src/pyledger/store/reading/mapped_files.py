"""The log files that a reader has mapped, updated from its folder."""

from collections.abc import Sequence

from pyledger._core import MappedFile
from pyledger.store.files.folder import StoreFile


class MappedFiles:
    """Mapped log files by their start offsets (bytes).

    Args:
        late: Map whole files when they are first read.
    """

    def __init__(self, *, late: bool) -> None:
        self._late = late
        self._files: dict[int, MappedFile] = {}
        self._inodes: dict[int, int] = {}

    def ordered(self) -> list[MappedFile]:
        """The files in log order."""
        return [self._files[start] for start in sorted(self._files)]

    def path_at(self, physical_offset: int) -> str | None:
        """The file that holds a physical offset (bytes), or the last before it; None without one."""
        below = [start for start in self._files if start <= physical_offset]
        return self._files[max(below)].path if below else None

    def keep_up(self, files: Sequence[StoreFile], size_bytes: int) -> None:
        """Map new files and close deleted ones. `size_bytes` is the size of a full file."""
        kept: dict[int, MappedFile] = {}
        for file in files:
            known = self._files.get(file.start_offset)
            if (
                known is None
                or known.path != file.path
                # Recovery removes preallocated files and creates others of the same names.
                or self._inodes[file.start_offset] != file.inode
                or (known.size_bytes, known.mapped_bytes) != (size_bytes, min(file.size_bytes, size_bytes))
            ):
                if self._late and file.size_bytes == size_bytes and not file.is_cold:
                    known = MappedFile.open_unmapped(file.path, size_bytes, readonly=True)
                else:
                    known = MappedFile.open(file.path, size_bytes=size_bytes)
            kept[file.start_offset] = known
        for start, mapped in self._files.items():
            if kept.get(start) is not mapped:
                mapped.close()
        self._files = kept
        self._inodes = {file.start_offset: file.inode for file in files}

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files = {}
