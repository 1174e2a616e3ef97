"""Replace files as a whole: after a crash a file has its old content or the new content.

Order of a write: the old content is written to `<name>.bak` by these same steps; the new content is
written to `<name>.tmp` and flushed; that file is renamed; the folder is flushed. The file always exists.

Source: RocketMQ common/.../MixAll.java (string2File).
"""

import contextlib
import os
from functools import partial
from pathlib import Path

from pyledger.regular_file import open_regular, read_regular
from pyledger.system_calls import flush_file


def backup_of(path: Path) -> Path:
    """Return the path of the file with the content before the last write."""
    return path.with_name(path.name + ".bak")


def flush_folder(folder: Path | str) -> None:
    """Make names in a folder durable.

    Raises:
        OSError: A system call failed; it names the folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flush_file(handle)
    except OSError as error:
        error.filename = os.fspath(folder)
        raise
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes, *, backup: bool = True, mode: int = 0o666) -> None:
    """Replace a file; its folder must exist.

    Args:
        path: The file.
        content: The complete new content.
        backup: Keep the old content as `<name>.bak`.
        mode: Permission bits of the new file, before the process's umask.

    Raises:
        OSError: A system call failed; the old file is unchanged.

    Durability: on return the new content survives a power failure; before that, the old or new one.
    """
    fresh = path.with_name(path.name + ".tmp")
    try:
        if backup and (old := _content_of(path)) is not None:
            replace_file(backup_of(path), old, backup=False)
        with open(fresh, "wb", opener=partial(open_regular, mode=mode)) as file:
            file.write(content)
            file.flush()
            flush_file(file.fileno())
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
