"""Errors about store folders and their files."""

import errno
import os

from pyledger.errors.base import EXIT_UNREACHABLE, EXIT_USAGE, PyLedgerError

_REASONS = {
    errno.ELOOP: "it is a symbolic link, and only folders may be: put the file itself in its place",
    errno.ENXIO: "it is no regular file: move it out of the folder",
}


def reason_of(number: int) -> str:
    """Why a file was not opened, by the errno; of what stands in its place with the way out."""
    return _REASONS.get(number) or os.strerror(number)


class StoreError(PyLedgerError):
    """Something about a store folder."""

    code = 1200


class StoreNotFoundError(StoreError):
    """There is no store at a path."""

    code = 1201
    exit_code = EXIT_UNREACHABLE

    def __init__(
        self, path: str, problem: str, remedy: str = "name the folder that holds `commitlog`"
    ) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class StoreFormatError(StoreError):
    """A store folder has a shape that cannot be opened as it is."""

    code = 1202
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{path}: {problem}; {remedy}")


class StoreLockedError(StoreError):
    """Another process writes to the folder."""

    code = 1203
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: another process has this store open for writing; stop it, or open read-only"
        )


class StoreIOError(StoreError):
    """The operating system refused an operation on a file."""

    code = 1204
    exit_code = EXIT_UNREACHABLE

    def __init__(self, path: str, doing: str, reason: str) -> None:
        self.path, self.doing, self.reason = path, doing, reason
        super().__init__(f"cannot {doing} {path}: {reason}")


class StoreFullError(StoreError):
    """No space at allocation. Nothing acknowledged is lost; writing goes on once there is room."""

    code = 1205
    retriable = True

    def __init__(self, path: str, doing: str) -> None:
        self.path, self.doing = path, doing
        super().__init__(f"cannot {doing} {path}: no space left; free some room or shorten the retention")


class StoreFailedError(StoreError):
    """An earlier flush failed; the failure is the cause. The store takes no more writes until reopened."""

    code = 1206

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: a flush failed, so this store takes no more writes; check the disk, then reopen"
        )


class StoreClosedError(StoreError):
    """The store was closed, or belongs to the parent of a forked process."""

    code = 1207

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: the store is closed (or was opened before a fork); open it again")


class ReadOnlyStoreError(StoreError):
    """A write on a folder that was opened read-only."""

    code = 1208

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path}: opened read-only; open the store for writing")


class CorruptRecordError(StoreError):
    """Bytes that should be a record are not one."""

    code = 1209

    def __init__(self, path: str, physical_offset: int, problem: str) -> None:
        self.path, self.physical_offset, self.problem = path, physical_offset, problem
        super().__init__(
            f"{path}: record at physical offset {physical_offset}: {problem}; "
            "`pyledger verify` lists all damage, onCorrupt=skip (on_corrupt, --on-corrupt) reads past it, "
            "`pyledger repair --cut-at-damage` cuts the log before it, with all that follows"
        )


class OffsetOutOfRangeError(StoreError):
    """An offset outside what is stored."""

    code = 1210

    def __init__(self, asked: int, min_offset: int, max_offset: int) -> None:
        self.asked, self.min_offset, self.max_offset = asked, min_offset, max_offset
        super().__init__(f"offset {asked} is outside [{min_offset}, {max_offset})")


class RecordTooLargeError(StoreError):
    """A message or its properties exceed the limit."""

    code = 1211

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        self.what, self.size_bytes, self.limit_bytes = what, size_bytes, limit_bytes
        super().__init__(f"{what} has {size_bytes} bytes, the limit is {limit_bytes}")


class IllegalMessageError(StoreError):
    """A message that the store must refuse: topic too long, illegal name, missing body."""

    code = 1212
    exit_code = EXIT_USAGE

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class FlushTimeoutError(StoreError, TimeoutError):
    """A synchronous flush was late: the message is stored, its durability is not known."""

    code = 1213
    retriable = True

    def __init__(self, physical_offset: int, timeout_ms: int) -> None:
        self.physical_offset, self.timeout_ms = physical_offset, timeout_ms
        super().__init__(f"message at {physical_offset} is stored but was not on disk within {timeout_ms} ms")


class EntryPositionError(StoreError):
    """A leader wrote an entry at another position than where it would stand here."""

    code = 1214

    def __init__(self, path: str, asked: int, position: int) -> None:
        self.path, self.asked, self.position = path, asked, position
        super().__init__(
            f"{path}: the leader has the entry at {asked}, here it would stand at {position}; "
            "all members of a group need the same data file size"
        )


class CorruptBodyError(StoreError):
    """A packed body cannot be unpacked."""

    code = 1220

    def __init__(self, place: str, problem: str) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place}: the body {problem}; read it without unpacking to get the stored bytes")


_GO_ON = "say failOnDataLoss=false to go on with what is there, or start with a new checkpoint"


class DataLostError(StoreError):
    """What a stream has still to read or has read, or what a read has planned, is there no longer."""

    code = 1230

    def __init__(self, place: str, problem: str, remedy: str = _GO_ON) -> None:
        self.place, self.problem = place, problem
        super().__init__(f"{place}: {problem}; {remedy}")


class QueueUnavailableError(StoreError):
    """A queue that a stream was to read cannot be seen now; that it is lost is not proved."""

    code = 1231
    retriable = True

    def __init__(self, queue: str, problem: str) -> None:
        self.queue, self.problem = queue, problem
        super().__init__(
            f"{queue}: {problem}; nothing is passed over: mount the folder or start the broker, "
            "and start the query again"
        )
