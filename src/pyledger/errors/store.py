"""Errors of store folders and their files."""

import errno
import os

from pyledger.errors.base import EXIT_UNREACHABLE, EXIT_USAGE, PyLedgerError

_REASONS = {
    errno.ELOOP: "it is a symbolic link, which only folders may be: replace it with the file itself",
    errno.ENXIO: "it is not a regular file: move it out of the folder",
}


def reason_of(number: int) -> str:
    """Return why a file was not opened, by errno, and for odd files what to do."""
    return _REASONS.get(number) or os.strerror(number)


class StoreError(PyLedgerError):
    """Base of all errors of store folders."""

    code = 1200


class StoreNotFoundError(StoreError):
    """The path is not a store."""

    code = 1201
    exit_code = EXIT_UNREACHABLE

    def __init__(
        self, path: str, problem: str, remedy: str = "name the folder that holds `commitlog`"
    ) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path or 'the empty path'}: {problem}; {remedy}")


class StoreFormatError(StoreError):
    """A store folder has a format or layout that cannot be opened."""

    code = 1202
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class StoreLockedError(StoreError):
    """Another process has the folder open for writing."""

    code = 1203
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: another process has this store open for writing; stop it, or open read-only"
        )


class StoreIOError(StoreError):
    """The operating system failed an operation on a file."""

    code = 1204
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str, doing: str, reason: str) -> None:
        self.path, self.doing, self.reason = path, doing, reason
        super().__init__(f"cannot {doing} {path}: {reason}")


class StoreFullError(StoreError):
    """No space to allocate. Nothing acknowledged is lost; writing continues when space is free."""

    code = 1205
    retriable = True

    def __init__(self, path: str, doing: str) -> None:
        self.path, self.doing = path, doing
        super().__init__(f"cannot {doing} {path}: no space left; free disk space or shorten the retention")


class StoreFailedError(StoreError):
    """An earlier flush failed; it is the cause. The store rejects writes until it is reopened."""

    code = 1206

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: a flush failed, so the store rejects writes; check the disk, then reopen it"
        )


class StoreClosedError(StoreError):
    """The store was closed, or belongs to the parent of a forked process."""

    code = 1207

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: the store is closed (or was opened before a fork); open it again")


class ReadOnlyStoreError(StoreError):
    """A write to a store that was opened read-only."""

    code = 1208

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: opened read-only; open the store for writing")


class CorruptRecordError(StoreError):
    """Bytes where a record should be are not a valid record."""

    code = 1209

    def __init__(self, path: str, physical_offset: int, problem: str) -> None:
        self.path, self.physical_offset, self.problem = path, physical_offset, problem
        super().__init__(
            f"{path}: record at physical offset {physical_offset}: {problem}; "
            "`pyledger verify` lists all damage, onCorrupt=skip (on_corrupt, --on-corrupt) skips it, "
            "`pyledger repair --truncate-at-damage` truncates the log before it"
        )


class OffsetOutOfRangeError(StoreError):
    """An offset is outside the stored range."""

    code = 1210

    def __init__(self, requested: int, min_offset: int, max_offset: int) -> None:
        self.requested, self.min_offset, self.max_offset = requested, min_offset, max_offset
        super().__init__(f"offset {requested} is outside [{min_offset}, {max_offset})")


class RecordTooLargeError(StoreError):
    """A message or its properties exceed the limit."""

    code = 1211

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        self.what, self.size_bytes, self.limit_bytes = what, size_bytes, limit_bytes
        super().__init__(f"{what} has {size_bytes} bytes, the limit is {limit_bytes}")


class IllegalMessageError(StoreError):
    """The store rejects a message: topic too long, illegal name, missing body."""

    code = 1212
    exit_code = EXIT_USAGE

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class FlushTimeoutError(StoreError, TimeoutError):
    """A synchronous flush timed out: the message is stored but may not be durable."""

    code = 1213
    retriable = True

    def __init__(self, physical_offset: int, timeout_ms: int) -> None:
        self.physical_offset, self.timeout_ms = physical_offset, timeout_ms
        super().__init__(f"message at {physical_offset} is stored but was not on disk within {timeout_ms} ms")


class EntryPositionError(StoreError):
    """The leader's position of an entry differs from the position in this log."""

    code = 1214

    def __init__(self, path: str, expected: int, position: int) -> None:
        self.path, self.expected, self.position = path, expected, position
        super().__init__(
            f"{path}: the leader has the entry at {expected}, this log would store it at {position}; "
            "set the same data file size for all members of the group"
        )


class CorruptBodyError(StoreError):
    """A compressed body cannot be decompressed."""

    code = 1220

    def __init__(self, place: str, problem: str) -> None:
        self.place, self.problem = place, problem
        super().__init__(
            f"{place}: the body {problem}; read it without decompressing to get the stored bytes"
        )


_GO_ON = "set failOnDataLoss=false to continue with the data that exists, or start with a new checkpoint"


class DataLostError(StoreError):
    """Data that a stream or a planned read needs, or has already read, no longer exists."""

    code = 1230

    def __init__(self, place: str, problem: str, remedy: str = _GO_ON) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place}: {problem}; {remedy}")


class QueueUnavailableError(StoreError):
    """A queue of a stream cannot be reached now; its data may still exist."""

    code = 1231
    retriable = True

    def __init__(self, queue: str, problem: str) -> None:
        self.queue, self.problem = queue, problem
        super().__init__(
            f"{queue}: {problem}; nothing is skipped: mount the folder or start the broker,"
            "then restart the query"
        )
