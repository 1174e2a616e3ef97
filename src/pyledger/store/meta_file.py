"""Small files that are replaced as a whole: written so that a crash leaves the old content or the new one.

Order of a write: the old content becomes `<name>.bak`, in the same way as what follows; the new content
goes to `<name>.tmp` and is flushed; that takes the name; the folder is flushed. There always is a file.
Upstream reads the `.bak` when the file itself is missing, empty or broken, and so do we, deleting nothing.

Source: RocketMQ common/.../ConfigManager.java, MixAll.java (string2File).
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

from pyledger.errors import MalformedJsonError, StoreFormatError, StoreFullError, StoreIOError
from pyledger.wire import fastjson

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def backup_of(path: Path) -> Path:
    """The file that holds the content before the last write."""
    return path.with_name(path.name + ".bak")


def flush_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, content: bytes, *, backup: bool = True) -> None:
    """Replace a file; its folder must exist.

    Args:
        path: The file.
        content: All of it.
        backup: Keep the old content as `<name>.bak`.

    Raises:
        StoreFullError: no room; the old file stands as it was.
        StoreIOError: the operating system refused.

    Durability: on return the new content survives a power cut; before, the old or the new one does.
    """
    fresh = path.with_name(path.name + ".tmp")
    try:
        if backup and path.exists():
            write_file(backup_of(path), path.read_bytes(), backup=False)
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        if error.errno in NO_SPACE:
            raise StoreFullError(str(path), "write") from error
        raise StoreIOError(str(path), "write", error.strerror or str(error)) from error


def read_json(path: Path) -> Any:
    """The document in a file or, where that is missing, empty or broken, in its `.bak`; None without either.

    Raises:
        StoreFormatError: what is there cannot be parsed.
        StoreIOError: the operating system refused.
    """
    broken: MalformedJsonError | UnicodeDecodeError | None = None
    for candidate in (path, backup_of(path)):
        try:
            text = candidate.read_bytes().decode()
            if text.strip():
                return fastjson.parse(text)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise StoreIOError(str(candidate), "read", error.strerror or str(error)) from error
        except (MalformedJsonError, UnicodeDecodeError) as error:
            broken = broken or error
    if broken is not None:
        problem = f"is not a config file of a store ({broken})"
        raise StoreFormatError(
            str(path), problem, "restore it, or remove it and its .bak to start afresh"
        ) from broken
    return None


def write_json(path: Path, document: object) -> None:
    """Write a document as Java reads it; see `write_file`."""
    write_file(path, fastjson.dump(document).encode())
