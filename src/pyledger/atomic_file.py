"""Files that are replaced as a whole: a crash leaves the old content or the new one.

Order of a write: the old content becomes `<name>.bak`, in the same way as what follows; the new content
goes to `<name>.tmp` and is flushed; that takes the name; the folder is flushed. There always is a file.

Source: RocketMQ common/.../MixAll.java (string2File).
"""

import contextlib
import os
from functools import partial
from pathlib import Path

from pyledger.regular_file import open_regular, read_regular


def backup_of(path: Path) -> Path:
    """The file that holds the content before the last write."""
    return path.with_name(path.name + ".bak")


def flush_folder(folder: Path | str) -> None:
    """Make names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes, *, backup: bool = True, mode: int = 0o666) -> None:
    """Replace a file; its folder must exist.

    Args:
        path: The file.
        content: All of it.
        backup: Keep the old content as `<name>.bak`.
        mode: Who may do what with the new file, less the process's mask.

    Raises:
        OSError: the operating system refused; the old file stands as it was.

    Durability: on return the new content survives a power cut; before, the old or the new one does.
    """
    fresh = path.with_name(path.name + ".tmp")
    try:
        if backup and (old := _content_of(path)) is not None:
            replace_file(backup_of(path), old, backup=False)
        with open(fresh, "wb", opener=partial(open_regular, mode=mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        flush_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _content_of(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
