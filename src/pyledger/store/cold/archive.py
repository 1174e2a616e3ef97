"""Convert sealed files of the commit log to cold segments, and back.

Every part of the log is on disk at all times: a segment is written, flushed, read back and compared, and then
renamed; only then the original is removed. `unarchive` works in the same way. A crash leaves the original,
both files, or the segment. If both exist, the plain file is used: it was flushed before it was renamed, so
`remove_leftovers` deletes the segment, and unfinished files.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyledger._core import COLD_SUFFIX, ColdIndex, LogView, MappedFile, scan
from pyledger.atomic_file import flush_folder
from pyledger.errors import StoreFormatError, StoreIOError
from pyledger.regular_file import open_regular
from pyledger.store.cold.segment_writer import BLOCK_BYTES, write_segment
from pyledger.store.files.archive_leftovers import UNFINISHED_SUFFIX, remove_leftovers
from pyledger.store.files.disk_error import disk_errors
from pyledger.store.files.folder import StoreFile, read_folder
from pyledger.store.files.lock import lock_store
from pyledger.store.queues.units import same_bytes
from pyledger.store.reading.reader import StoreReader
from pyledger.system_calls import flush_file

COMPARE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file that was archived or unarchived, or would be."""

    path: str
    """Before."""
    target: str
    """After."""
    start_offset: int
    """Physical offset (bytes)."""
    original_bytes: int
    compressed_bytes: int
    """0 in a dry run of `archive`."""
    last_store_timestamp: int
    """Store time of its last record (ms); 0 from `unarchive`."""


def archive(
    path: str | os.PathLike[str],
    *,
    older_than_ms: int,
    block_bytes: int = BLOCK_BYTES,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Generator[ArchivedFile, None, None]:
    """Compress the sealed files of a store whose last message was stored before a time, the oldest first.

    Args:
        path: The store folder.
        older_than_ms: Store time (ms). The last file of the log is never compressed.
        block_bytes: Limit of a block: 64 KiB, 256 KiB or 1 MiB.
        dry_run: Change nothing.
        progress: Called with the end (physical offset, bytes) of each file that is done.

    Yields:
        Each file, once it is compressed.

    Raises:
        StoreLockedError: another process has the store open for writing.
        CorruptRecordError: a file is damaged. It is unchanged; those before it are compressed.
        StoreIOError: a system call failed, for example because the disk is full. The file is unchanged.

    Durability: an original file is removed only after its segment is on disk and was compared with it.
    """
    root = os.fspath(path)
    read_folder(root)  # raises before a lock file is created in a folder that is not a store
    if dry_run:
        for file, last_ms in _old_files(root, older_than_ms):
            yield ArchivedFile(
                file.path, file.path + COLD_SUFFIX, file.start_offset, file.size_bytes, 0, last_ms
            )
        return
    with lock_store(root), disk_errors(root, "archive"):
        remove_leftovers(root)
        for file, last_ms in _old_files(root, older_than_ms):
            target = file.path + COLD_SUFFIX
            size = _compress(file.path, target, block_bytes)
            yield ArchivedFile(file.path, target, file.start_offset, file.size_bytes, size, last_ms)
            if progress is not None:
                progress(file.start_offset + file.size_bytes)


def unarchive(
    path: str | os.PathLike[str], *, dry_run: bool = False, progress: Callable[[int], None] | None = None
) -> Generator[ArchivedFile, None, None]:
    """Restore the original files of all cold segments of a store, byte for byte, the newest first.

    Args:
        path: The store folder.
        dry_run: Change nothing.
        progress: Called with the bytes restored so far.

    Yields:
        Each file, once it is restored.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreFormatError: a segment is damaged. It is unchanged.
        StoreIOError: a system call failed, for example because the disk is full.

    Durability: a cold segment is removed only after the plain file is on disk.
    """
    root = os.fspath(path)
    cold = [file for file in reversed(read_folder(root).log_files) if file.is_cold]
    if dry_run:
        for file in cold:
            yield _restored(file)
        return
    done = 0
    with lock_store(root), disk_errors(root, "restore"):
        remove_leftovers(root)
        for file in reversed(read_folder(root).log_files):
            if not file.is_cold:
                continue
            restored = _restored(file)
            _decompress(restored.path, restored.target)
            yield restored
            done += restored.original_bytes
            if progress is not None:
                progress(done)


def _old_files(root: str, older_than_ms: int) -> Iterator[tuple[StoreFile, int]]:
    """Yield sealed plain files and the store time (ms) of their last record, up to the first too new."""
    with StoreReader.open(root, on_corrupt="skip") as reader:
        folder, end = reader.layout, reader.max_offset
    for file in folder.log_files:
        if file.start_offset + folder.log_file_size_bytes > end:
            return
        if file.is_cold:
            continue
        if file.size_bytes != folder.log_file_size_bytes:
            raise StoreFormatError(file.path, "is truncated", "run `pyledger repair` first")
        last_ms = _last_store_time(file)
        if last_ms >= older_than_ms:
            return
        yield file, last_ms


def _last_store_time(file: StoreFile) -> int:
    """Store time (ms) of the last record of a file that can be read in sequence; 0 when there is none."""
    mapped = MappedFile.open(file.path)
    try:
        view = LogView([mapped], file.start_offset + file.size_bytes)
        return int(scan(view, file.start_offset, check=False).last_store_timestamp)
    finally:
        mapped.close()


def _compress(path: str, target: str, block_bytes: int) -> int:
    """Replace a plain file by a cold segment; return the size (bytes) of the segment."""
    unfinished = path + UNFINISHED_SUFFIX + COLD_SUFFIX
    with _replacing(path, unfinished, target) as source:
        size = write_segment(source, unfinished, block_bytes=block_bytes)
        _flush_file(unfinished, os.stat(path))
        _compare(source, unfinished, target)
    return size.compressed_bytes


def _decompress(path: str, target: str) -> None:
    """Replace a cold segment by the original file."""
    unfinished = target + UNFINISHED_SUFFIX
    with _replacing(path, unfinished, target) as source:
        _raise_if_damaged(source)
        with open(unfinished, "wb", opener=open_regular) as out:
            for at in range(0, source.size_bytes, COMPARE_BYTES):
                with source.view(at, min(COMPARE_BYTES, source.size_bytes - at)) as plain:
                    out.write(plain)
        _flush_file(unfinished, os.stat(path))


@contextlib.contextmanager
def _replacing(path: str, unfinished: str, target: str) -> Iterator[MappedFile]:
    """Yield the source; once the block has written `unfinished`, let it replace `path` under its new name.

    If the block fails, `path` stays and `unfinished` is removed.
    """
    source = MappedFile.open(path)
    try:
        try:
            yield source
        finally:
            source.close()
        os.rename(unfinished, target)
        flush_folder(Path(target).parent)
        os.unlink(path)
        flush_folder(Path(target).parent)
    except OSError as error:
        _unlink(unfinished)
        raise StoreIOError(target, "write", error.strerror or str(error)) from error
    except BaseException:
        _unlink(unfinished)
        raise


def _restored(file: StoreFile) -> ArchivedFile:
    target = file.path.removesuffix(COLD_SUFFIX)
    size = os.path.getsize(file.path)
    return ArchivedFile(file.path, target, file.start_offset, file.size_bytes, size, 0)


def _flush_file(path: str, like: os.stat_result) -> None:
    """Make a file durable, with the mode and the times of another: retention depends on them."""
    os.chmod(path, like.st_mode & 0o7777)
    os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))
    with open(path, "rb", opener=open_regular) as file:
        flush_file(file.fileno())


def _compare(source: MappedFile, segment: str, target: str) -> None:
    """Raise unless a segment reads as its original."""
    copy = MappedFile.open(segment)
    try:
        for at in range(0, source.size_bytes, COMPARE_BYTES):
            length = min(COMPARE_BYTES, source.size_bytes - at)
            with source.view(at, length) as one, copy.view(at, length) as other:
                if not same_bytes(one, other):
                    problem = f"differs from its original in bytes {at} to {at + length}"
                    raise StoreFormatError(target, problem, "check disk and memory; nothing was changed")
    finally:
        copy.close()


def _raise_if_damaged(segment: MappedFile) -> None:
    damaged = ColdIndex(segment).damaged_blocks()
    if damaged:
        raise StoreFormatError(
            segment.path,
            f"{len(damaged)} of its blocks are damaged, number {damaged[0]} first",
            "restore the file from an intact copy; nothing was changed",
        )


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
