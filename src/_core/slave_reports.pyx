# SlaveReports: what a slave says, read from its socket by the loop that also serves who waits for it. A look
# that finds nothing costs no exception, and may last as long as a slave takes that is awake.
from _core.futex cimport monotonic_ns
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t

import os

cdef enum:
    REPORTS_BYTES = 4 << 10          # at once: a report has eight


cdef class SlaveReports:
    """Reads reports; see _core.pyi."""

    cdef int fd

    def __init__(self, int fd):
        self.fd = fd

    def take(self, int64_t wait_us=0):
        """What has come, or comes in time; see _core.pyi."""
        cdef char found[REPORTS_BYTES]
        cdef ssize_t got
        with nogil:
            got = self.receive(found, monotonic_ns() + wait_us * 1000 if wait_us > 0 else 0)
        if got >= 0:
            return PyBytes_FromStringAndSize(found, got)
        if got == -EAGAIN:
            return None
        raise OSError(-got, os.strerror(-got))

    cdef ssize_t receive(self, char* to, int64_t deadline_ns) noexcept nogil:
        """How many bytes came; below zero: the negative errno."""
        cdef ssize_t got
        while True:
            got = recv(self.fd, to, REPORTS_BYTES, MSG_DONTWAIT)
            if got >= 0:
                return got
            if errno == EINTR:
                continue
            if errno != EAGAIN or monotonic_ns() >= deadline_ns:
                return -errno
            sched_yield()
