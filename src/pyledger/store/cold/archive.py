"""Sealed files of the commit log become cold segments, and files again.

At every moment each part of the log is there in full, on disk: the packed file is written beside the
original, flushed, read back and compared; it takes its name; only then the original goes. The way back is the
same. A crash leaves the original, both, or the packed file. Where both stand the plain file counts: it was
flushed before it got its name, so `settle_archive` removes the other, and what was not finished.
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
from pyledger.store.files.archive_leftovers import UNFINISHED_SUFFIX, settle_archive
from pyledger.store.files.folder import StoreFile, read_folder
from pyledger.store.files.lock import lock_store
from pyledger.store.queues.unit_views import same_bytes
from pyledger.store.reading.reader import StoreReader

COMPARE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file that was packed or unpacked, or would be."""

    path: str
    """Before."""
    target: str
    """After."""
    start_offset: int
    """Physical offset (bytes)."""
    original_bytes: int
    packed_bytes: int
    """0 in a dry run."""
    last_store_timestamp: int
    """Store time of its last record (ms); 0 when unpacking."""


def archive(
    path: str | os.PathLike[str],
    *,
    older_than_ms: int,
    block_bytes: int = BLOCK_BYTES,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Generator[ArchivedFile, None, None]:
    """Pack the sealed files of a store whose last message was stored before a time, the oldest first.

    Args:
        path: The store folder.
        older_than_ms: Store time (ms). The last file of the log is never packed.
        block_bytes: Most bytes of a block: 64 KiB, 256 KiB or 1 MiB.
        dry_run: Only say which files.
        progress: Called with the physical offset (bytes) behind each file that is done.

    Yields:
        Each file, once it is packed.

    Raises:
        StoreLockedError: another process has the store open for writing.
        CorruptRecordError: a file is damaged. It stays as it is, those before it are packed.
        StoreIOError: the operating system refused, such as for want of room. The file stays as it is.

    Durability: an original file is removed only when the packed one is on disk and was compared with it.
    """
    root = os.fspath(path)
    read_folder(root)  # a lock file must not be left in what is no store
    if dry_run:
        for file, last_ms in _old_files(root, older_than_ms):
            yield ArchivedFile(
                file.path, file.path + COLD_SUFFIX, file.start_offset, file.size_bytes, 0, last_ms
            )
        return
    with lock_store(root):
        settle_archive(root)
        for file, last_ms in _old_files(root, older_than_ms):
            target = file.path + COLD_SUFFIX
            packed_bytes = _pack(file.path, target, block_bytes)
            yield ArchivedFile(file.path, target, file.start_offset, file.size_bytes, packed_bytes, last_ms)
            if progress is not None:
                progress(file.start_offset + file.size_bytes)


def unarchive(
    path: str | os.PathLike[str], *, dry_run: bool = False, progress: Callable[[int], None] | None = None
) -> Generator[ArchivedFile, None, None]:
    """Make plain files of all cold segments of a store again, byte for byte, the newest first.

    Args:
        path: The store folder.
        dry_run: Only say which files.
        progress: Called with the bytes of plain files written so far.

    Yields:
        Each file, once it is back.

    Raises:
        StoreLockedError: another process has the store open for writing.
        StoreFormatError: a segment is damaged. It stays as it is.
        StoreIOError: the operating system refused, such as for want of room.

    Durability: a cold segment is removed only when the plain file is on disk.
    """
    root = os.fspath(path)
    cold = [file for file in reversed(read_folder(root).log_files) if file.is_cold]
    if dry_run:
        for file in cold:
            yield _unpacked(file)
        return
    done = 0
    with lock_store(root):
        settle_archive(root)
        for file in reversed(read_folder(root).log_files):
            if not file.is_cold:
                continue
            fact = _unpacked(file)
            _unpack(fact.path, fact.target)
            yield fact
            done += fact.original_bytes
            if progress is not None:
                progress(done)


def _old_files(root: str, older_than_ms: int) -> Iterator[tuple[StoreFile, int]]:
    """Plain files before the one that the log ends in, each with the store time (ms) of its last record.

    Up to the first that is too young.
    """
    with StoreReader.open(root, on_corrupt="skip") as reader:
        folder, end = reader.layout, reader.max_offset
    for file in folder.log_files:
        if file.start_offset + folder.log_file_size_bytes > end:
            return
        if file.is_cold:
            continue
        if file.size_bytes != folder.log_file_size_bytes:
            raise StoreFormatError(file.path, "was cut", "let `pyledger repair` mend it first")
        last_ms = _last_store_time(file)
        if last_ms >= older_than_ms:
            return
        yield file, last_ms


def _last_store_time(file: StoreFile) -> int:
    """Store time (ms) of the last record of a file, as far as its records can be walked; 0 without any."""
    mapped = MappedFile.open(file.path)
    try:
        view = LogView([mapped], file.start_offset + file.size_bytes)
        return int(scan(view, file.start_offset, check=False).last_store_timestamp)
    finally:
        mapped.close()


def _pack(path: str, target: str, block_bytes: int) -> int:
    """Replace a plain file by a cold segment; the bytes that this has."""
    unfinished = path + UNFINISHED_SUFFIX + COLD_SUFFIX
    with _replacing(path, unfinished, target) as source:
        size = write_segment(source, unfinished, block_bytes=block_bytes)
        _flush_file(unfinished, os.stat(path))
        _compare(source, unfinished, target)
    return size.packed_bytes


def _unpack(path: str, target: str) -> None:
    """Replace a cold segment by the plain file that it was made of."""
    unfinished = target + UNFINISHED_SUFFIX
    with _replacing(path, unfinished, target) as source:
        _refuse_damaged(source)
        with open(unfinished, "wb", opener=open_regular) as out:
            os.posix_fallocate(out.fileno(), 0, source.size_bytes)
            for at in range(0, source.size_bytes, COMPARE_BYTES):
                with source.view(at, min(COMPARE_BYTES, source.size_bytes - at)) as plain:
                    out.write(plain)
        _flush_file(unfinished, os.stat(path))


@contextlib.contextmanager
def _replacing(path: str, unfinished: str, target: str) -> Iterator[MappedFile]:
    """The file that the block makes another of, which then takes its place; nothing changes if that fails."""
    source = MappedFile.open(path)
    try:
        yield source
    except OSError as error:
        _forget(unfinished)
        raise StoreIOError(target, "write", error.strerror or str(error)) from error
    except BaseException:
        _forget(unfinished)
        raise
    finally:
        source.close()
    _take_place(unfinished, target, path)


def _unpacked(file: StoreFile) -> ArchivedFile:
    target = file.path.removesuffix(COLD_SUFFIX)
    packed_bytes = os.path.getsize(file.path)
    return ArchivedFile(file.path, target, file.start_offset, file.size_bytes, packed_bytes, 0)


def _flush_file(path: str, like: os.stat_result) -> None:
    """Make a file durable, with the mode and the times of another: retention goes by them."""
    os.chmod(path, like.st_mode & 0o7777)
    os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))
    with open(path, "rb", opener=open_regular) as file:
        os.fsync(file.fileno())


def _compare(source: MappedFile, packed: str, target: str) -> None:
    """Raise unless a packed file gives the bytes of its original."""
    copy = MappedFile.open(packed)
    try:
        for at in range(0, source.size_bytes, COMPARE_BYTES):
            length = min(COMPARE_BYTES, source.size_bytes - at)
            with source.view(at, length) as one, copy.view(at, length) as other:
                if not same_bytes(one, other):
                    raise StoreFormatError(target, f"does not give back bytes {at} to {at + length}", _TRY)
    finally:
        copy.close()


def _refuse_damaged(segment: MappedFile) -> None:
    damaged = ColdIndex(segment).damaged_blocks()
    if damaged:
        raise StoreFormatError(
            segment.path,
            f"{len(damaged)} of its blocks are damaged, number {damaged[0]} first",
            "put a sound copy in its place; nothing was changed",
        )


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _take_place(unfinished: str, target: str, old: str) -> None:
    """Give a file that is on disk its name, then remove the one that it stands for."""
    os.rename(unfinished, target)
    flush_folder(Path(target).parent)
    os.unlink(old)
    flush_folder(Path(target).parent)


_TRY = "the disk or the memory is at fault; nothing was changed"
