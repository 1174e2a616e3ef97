# One table from status code to exception. Native code raises our classes and nothing else.
from _core.layout cimport LEAST_PAGE_BYTES, MOST_PAGE_BYTES
from _core.posix cimport page_bytes
from _core.status cimport ASSERT  # no-cython-lint: the other fragments use it
from _core.status cimport STATUS_CLOSED, STATUS_READ_ONLY, STATUS_STORE_FAILED, STATUS_STORE_FULL
from libc.errno cimport EDQUOT, ENOSPC

import os

from pyledger import errors

if not LEAST_PAGE_BYTES <= page_bytes <= MOST_PAGE_BYTES:
    raise ImportError(f"pyledger supports pages of 4 to 64 KiB; this system's have {page_bytes // 1024} KiB")

cdef object _NO_SPACE = (ENOSPC, EDQUOT)


cdef int raise_errno(int number, str path, str doing) except -1:
    """Raise the class for an errno; `doing` completes "cannot …"."""
    reason = errors.reason_of(number)
    cause = OSError(number, reason, path)
    if number in _NO_SPACE:
        raise errors.StoreFullError(path, doing) from cause
    raise errors.StoreIOError(path, doing, reason) from cause


cdef object of_disk(error, str doing):
    """An error as one of ours: what Python's own calls raise names a file, too."""
    if isinstance(error, errors.PyLedgerError):
        return error
    path = os.fsdecode(error.filename) if error.filename is not None else ""
    if error.errno in _NO_SPACE:
        return errors.StoreFullError(path, doing)
    return errors.StoreIOError(path, doing, error.strerror or str(error))


cdef int raise_status(int status, str path, str doing) except -1:
    """Raise the class for a status that carries no facts of its own."""
    if status == STATUS_CLOSED:
        raise errors.StoreClosedError(path)
    if status == STATUS_STORE_FAILED:
        raise errors.StoreFailedError(path)
    if status == STATUS_READ_ONLY:
        raise errors.ReadOnlyStoreError(path)
    if status == STATUS_STORE_FULL:
        raise errors.StoreFullError(path, doing)
    raise errors.InvariantError(f"status {status} while {doing} {path}")


cdef extern from "base/checks.h" nogil:
    const char* BUILD_KIND


def build_kind():
    """Name the build of this module: "release", or "debug" with every run-time check on."""
    return BUILD_KIND.decode("ascii")
