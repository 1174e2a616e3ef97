# FlushPolicy: when a flush is worthwhile. Pure: time and positions are arguments, so a test can replay any
# history. One class serves the commit log, the consume queues, and the commit from a pool to the page cache;
# docs/protocols/flush.md has the table.
from _core.layout cimport OS_PAGE_SIZE
from libc.stdint cimport int64_t

from pyledger import errors


cdef inline int64_t flush_pages_crossed(int64_t wrote, int64_t flushed) noexcept nogil:
    """Page borders between two positions; not the dirty bytes divided by the page size."""
    return wrote // OS_PAGE_SIZE - flushed // OS_PAGE_SIZE


cdef inline bint flush_is_due(int64_t wrote, int64_t flushed, int64_t file_size_bytes,
                              int64_t least_pages) noexcept nogil:
    """RocketMQ's isAbleToFlush, and isAbleToCommit, for positions in one file."""
    if wrote <= flushed:
        return False
    if wrote == file_size_bytes or least_pages == 0:
        return True
    return flush_pages_crossed(wrote, flushed) >= least_pages


cdef class FlushPolicy:
    """Decides at each wake whether to flush."""

    cdef readonly str name
    cdef readonly int64_t interval_ms
    cdef readonly int64_t least_pages
    cdef readonly int64_t thorough_interval_ms
    cdef readonly int64_t dirty_bytes_max    # of `bounded`; 0: the page rule holds
    cdef int64_t next_wake_ms
    cdef int64_t thorough_at_ms              # last thorough pass
    cdef int64_t clean_at_ms                 # nothing that is dirty now was written before this time
    cdef bint started

    def __init__(self, str name="commit log", *, int64_t interval_ms=500, int64_t least_pages=4,
                 int64_t thorough_interval_ms=10_000, int64_t dirty_bytes_max=0):
        for field, value, least in (("interval_ms", interval_ms, 1), ("least_pages", least_pages, 0),
                                    ("thorough_interval_ms", thorough_interval_ms, 0),
                                    ("dirty_bytes_max", dirty_bytes_max, 0)):
            if value < least:
                raise errors.ConfigError(field, f"{value} is below {least}")
        self.name = name
        self.interval_ms = interval_ms
        self.least_pages = least_pages
        self.thorough_interval_ms = thorough_interval_ms
        self.dirty_bytes_max = dirty_bytes_max

    @staticmethod
    def for_commit_log():
        """Flush of the commit log: every 500 ms from 4 pages on, every 10 s whatever is dirty."""
        return FlushPolicy("commit log")

    @staticmethod
    def for_consume_queue():
        """Flush of consume queues: every second from 2 pages on, every 60 s whatever is dirty."""
        return FlushPolicy("consume queue", interval_ms=1000, least_pages=2, thorough_interval_ms=60_000)

    @staticmethod
    def for_commit():
        """Commit from the transient pool to the page cache: every 200 ms, whatever is there."""
        return FlushPolicy("commit", interval_ms=200, least_pages=4, thorough_interval_ms=200)

    @staticmethod
    def bounded(int64_t dirty_bytes_max=16384, int64_t interval_ms=500):
        """Flush once this many bytes are dirty, or any for as long as the interval."""
        return FlushPolicy("bounded", interval_ms=interval_ms, least_pages=0,
                           thorough_interval_ms=interval_ms, dirty_bytes_max=dirty_bytes_max)

    @staticmethod
    def pages_crossed(int64_t wrote_position, int64_t flushed_position):
        """Borders of 4,096-byte pages between two positions (bytes)."""
        return flush_pages_crossed(wrote_position, flushed_position)

    def deadline_ms(self):
        """When to wake next, or None before the first pass, which is due at once."""
        return self.next_wake_ms if self.started else None

    def wait_ms(self, int64_t now_ms):
        """How long to sleep from now on (ms)."""
        return max(0, self.next_wake_ms - now_ms) if self.started else 0

    cdef bint take_thorough(self, int64_t now_ms):
        if self.started and now_ms < self.thorough_at_ms + self.thorough_interval_ms:
            return False
        self.thorough_at_ms = now_ms
        return True

    def least_pages_at(self, int64_t now_ms):
        """Start a pass: the least pages that count in it, 0 in a thorough one; see _core.pyi."""
        cdef bint thorough = self.take_thorough(now_ms)
        self.started = True
        self.next_wake_ms = now_ms + self.interval_ms
        return 0 if thorough else self.least_pages

    def decide(self, int64_t now_ms, int64_t wrote_where, int64_t flushed_where, int64_t file_size_bytes):
        """Start a pass; return why to flush now, or None; see _core.pyi."""
        cdef int64_t file_start, wrote, flushed
        cdef bint thorough
        if file_size_bytes <= 0 or not 0 <= flushed_where <= wrote_where:
            raise errors.InvariantError(f"wrote {wrote_where}, flushed {flushed_where}, of {file_size_bytes}")
        file_start = flushed_where - flushed_where % file_size_bytes
        wrote = min(wrote_where - file_start, file_size_bytes)
        flushed = flushed_where - file_start
        if self.dirty_bytes_max > 0:
            return self.decide_bounded(now_ms, wrote_where - flushed_where)
        thorough = self.least_pages_at(now_ms) == 0 and self.least_pages > 0
        if not flush_is_due(wrote, flushed, file_size_bytes, 0 if thorough else self.least_pages):
            return None
        if wrote == file_size_bytes:
            return "full"
        if thorough:
            return "thorough"
        return "pages" if self.least_pages > 0 else "dirty"

    cdef str decide_bounded(self, int64_t now_ms, int64_t dirty_bytes):
        cdef str reason = None
        if dirty_bytes >= self.dirty_bytes_max:
            reason = "bytes"
        elif dirty_bytes > 0 and (not self.started or now_ms >= self.clean_at_ms + self.interval_ms):
            reason = "age"
        if dirty_bytes == 0 or reason is not None:
            self.clean_at_ms = now_ms
        self.started = True
        self.next_wake_ms = self.clean_at_ms + self.interval_ms
        return reason
