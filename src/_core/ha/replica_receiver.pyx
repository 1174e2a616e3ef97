# ReplicaReceiver: a master's frames from a socket into a ReplicaLog, and the reports back, in one loop of one
# thread that needs no interpreter lock. It takes frames that are whole, in order, and go into the log's last
# file; it passes anything else unchanged to its caller, and the state machine of the connection decides.
# Invariant: between two calls of `run` the bytes that are held begin with a frame's header, and everything
# before them is in the log.
from _core.layout cimport get_i32, get_i64
from _core.platform cimport (MSG_NOSIGNAL, clear_event, close_event, loop_event, monotonic_ns, notify_loop,
                             open_event)
from _core.posix cimport (POLLIN, c_poll, load_acquire, load_word, pollfd, replace_word, store_release,
                          store_word)
from _core.status cimport STATUS_OK
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memmove

import os

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t c_send "send" (int fd, const void* data, size_t size, int flags)
    enum: MSG_DONTWAIT

cdef extern from *:
    """
    static inline void put_report(uint8_t *to, int64_t offset) {
        uint64_t big = __builtin_bswap64((uint64_t)offset);
        __builtin_memcpy(to, &big, 8);
    }
    """
    void put_report(uint8_t* to, int64_t offset) noexcept nogil

cdef enum:
    FEED_BUFFER_BYTES = 1 << 20
    FEED_READ_BYTES = 512 << 10      # at once: it is still in the cache when it is written
    FEED_GOES_ON = 0
    FEED_TIME_IS_OVER = 1
    FEED_NOT_READY = 2               # the log's file needs allocated space
    FEED_OTHER = 3                   # the held bytes are for the state machine
    FEED_STORED = 4                  # stored, and to be reported only once on disk
    FEED_CLOSED = 5
    FEED_REPORT_PARTIAL = 6
    FEED_REFUSED = 1 << 10           # and the errno of a write to the log
    FEED_ERRNO = 1 << 20             # and that of the socket


cdef class ReplicaReceiver:
    """Takes frames from a socket; see _core.pyi."""

    cdef ReplicaLog log
    cdef EventNotifier dispatcher
    cdef int fd
    cdef loop_event event
    cdef uint32_t event_armed
    cdef bint reports                # what is written may be reported
    cdef readonly bint closed        # the master closed the connection
    cdef int64_t reported
    cdef int64_t read_ns             # when bytes came last, and when something was reported
    cdef int64_t wrote_ns
    cdef uint8_t* buffer
    cdef int64_t begin               # of what is held
    cdef int64_t end

    def __cinit__(self):
        cdef int failed
        self.event.event_fd = -1
        self.buffer = <uint8_t*>PyMem_Malloc(FEED_BUFFER_BYTES)
        if self.buffer == NULL:
            raise MemoryError()
        failed = open_event(&self.event)
        if failed != 0:
            raise_errno(failed, "replica", "wake the event loop for")

    def __dealloc__(self):
        close_event(&self.event)
        PyMem_Free(self.buffer)

    def __init__(self, ReplicaLog log not None, int fd, EventNotifier dispatcher not None, *,
                 bint reports=True):
        self.log = log
        self.fd = fd
        self.dispatcher = dispatcher
        self.reports = reports
        self.reported = -1
        self.read_ns = self.wrote_ns = monotonic_ns()

    @property
    def reported_offset(self):
        """Physical offset (bytes) that was reported last; -1 before."""
        return load_acquire(&self.reported)

    @property
    def since_read_ms(self):
        """How long ago (ms) bytes came."""
        return max(<int64_t>0, monotonic_ns() - load_acquire(&self.read_ns)) // 1_000_000

    @property
    def since_report_ms(self):
        """How long ago (ms) something was reported."""
        return max(<int64_t>0, monotonic_ns() - load_acquire(&self.wrote_ns)) // 1_000_000

    @property
    def event_fd(self):
        return self.event.event_fd

    def arm(self):
        """Let `event_fd` become readable when the next bytes are stored."""
        store_word(&self.event_armed, 1)

    def clear_event(self):
        """Make `event_fd` unreadable."""
        clear_event(&self.event)

    def report(self, int64_t offset):
        """Report a physical offset. False if the send buffer was full: drop the connection."""
        if self.send_report(offset) == FEED_REPORT_PARTIAL:
            return False
        return True

    def run(self, int64_t timeout_ms, *, bint between_frames=True):
        """Take frames until there is something else to do; see _core.pyi."""
        cdef MappedFile file = None
        cdef int64_t deadline_ns = monotonic_ns() + max(<int64_t>0, timeout_ms) * 1_000_000
        cdef int outcome = FEED_NOT_READY
        self.log.start_append()
        try:
            while outcome == FEED_NOT_READY:
                self.log.queue.check_writable()
                file = self.log.queue.last if between_frames else None
                outcome = self.run_once(file, deadline_ns)
        finally:
            self.log.appending = False
            self.log.queue.append_epoch += 1
        if outcome == FEED_OTHER:
            return self.take_held()
        if outcome == FEED_CLOSED:
            self.closed = True
        elif outcome == FEED_REPORT_PARTIAL:
            raise BlockingIOError("a report was sent only in part")
        elif outcome >= FEED_ERRNO:
            raise OSError(outcome - FEED_ERRNO, os.strerror(outcome - FEED_ERRNO))
        elif outcome < 0 or outcome >= FEED_REFUSED:
            self.log.raise_refused(file, outcome if outcome < 0 else outcome - FEED_REFUSED)
        return b""

    cdef int run_once(self, MappedFile file, int64_t deadline_ns) except -128:
        """Take frames into the last file as far as it is ready; without one, only hear what comes."""
        cdef MappedFileQueue queue = self.log.queue
        cdef int outcome = FEED_GOES_ON
        if file is None:
            with nogil:
                if self.end == self.begin:
                    outcome = self.receive(deadline_ns)
            return FEED_OTHER if outcome == FEED_GOES_ON else outcome
        file.pin()
        try:
            with nogil:
                outcome = self.follow(queue, file, deadline_ns)
            if outcome == FEED_NOT_READY:
                self.log.make_ready(file, min(file.size_bytes, file.wrote + FEED_BUFFER_BYTES))
        finally:
            file.unpin()
        return outcome

    cdef bytes take_held(self):
        held = (<char*>self.buffer)[self.begin:self.end]
        self.begin = self.end = 0
        return held

    cdef int follow(self, MappedFileQueue queue, MappedFile file, int64_t deadline_ns) noexcept nogil:
        """Take frames into a pinned file, which is the last, until something stops that."""
        cdef int outcome = FEED_GOES_ON
        while outcome == FEED_GOES_ON:
            outcome = self.store_held(file)
            if outcome == FEED_GOES_ON:
                outcome = FEED_OTHER if queue.state != STATUS_OK else self.receive(deadline_ns)
        return outcome

    cdef int store_held(self, MappedFile file) noexcept nogil:
        """Store the whole frames that are held, and report them."""
        cdef Parts parts
        cdef int64_t used, whole
        cdef int outcome
        while self.end > self.begin:
            used = gather_frames(self.buffer + self.begin, self.end - self.begin,
                                 file.start_offset + file.wrote, file.size_bytes - file.wrote, &parts)
            if parts.count == 0:
                return FEED_GOES_ON if self.may_become_whole(file) else FEED_OTHER
            if not self.log.is_ready(file, file.wrote + parts.size):
                return FEED_NOT_READY
            outcome = self.log.place(file, &parts)
            if outcome != 0:
                return outcome if outcome < 0 else FEED_REFUSED + outcome
            self.begin += used
            whole = self.log.whole
            if self.reports and whole > self.reported:
                outcome = self.send_report(whole)
                if outcome != FEED_GOES_ON:
                    return outcome
            self.dispatcher.wake()
            self.signal_stored()
            if not self.reports:
                return FEED_STORED
        return FEED_GOES_ON

    cdef bint may_become_whole(self, MappedFile file) noexcept nogil:
        """Whether what is held is the beginning of a frame that `gather_frames` will take."""
        cdef const uint8_t* frame = self.buffer + self.begin
        cdef int64_t size
        if self.end - self.begin < FRAME_HEADER_BYTES:
            return True
        size = get_i32(frame + 8)
        return (get_i64(frame) == file.start_offset + file.wrote and 0 < size <= file.size_bytes - file.wrote
                and size <= FEED_BUFFER_BYTES - FRAME_HEADER_BYTES)

    cdef int send_report(self, int64_t offset) noexcept nogil:
        """Report a physical offset. The send buffer has space for it unless the master stopped reading."""
        cdef uint8_t words[8]
        cdef ssize_t sent = -1
        put_report(words, offset)
        while sent < 0:
            sent = c_send(self.fd, words, sizeof(words), MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0 and errno == EAGAIN:
                return FEED_REPORT_PARTIAL
            if sent < 0 and errno != EINTR:
                return FEED_ERRNO + errno
        if sent != sizeof(words):
            return FEED_REPORT_PARTIAL
        store_release(&self.reported, offset)
        store_release(&self.wrote_ns, monotonic_ns())
        return FEED_GOES_ON

    cdef void signal_stored(self) noexcept nogil:
        if load_word(&self.event_armed) and replace_word(&self.event_armed, 1, 0):
            notify_loop(&self.event)

    cdef int receive(self, int64_t deadline_ns) noexcept nogil:
        """Wait for more bytes."""
        cdef pollfd about
        cdef ssize_t got
        cdef int64_t now_ns
        ASSERT(0 <= self.begin <= self.end <= FEED_BUFFER_BYTES)
        if self.begin > 0:
            memmove(self.buffer, self.buffer + self.begin, <size_t>(self.end - self.begin))
            self.end -= self.begin
            self.begin = 0
        while True:
            got = recv(self.fd, self.buffer + self.end,
                       <size_t>min(FEED_BUFFER_BYTES - self.end, <int64_t>FEED_READ_BYTES), MSG_DONTWAIT)
            if got >= 0:
                break
            if errno == EINTR:
                continue
            if errno != EAGAIN:
                return FEED_ERRNO + errno
            now_ns = monotonic_ns()
            if now_ns >= deadline_ns:
                return FEED_TIME_IS_OVER
            about.fd = self.fd
            about.events = POLLIN
            about.revents = 0
            c_poll(&about, 1, <int>min((deadline_ns - now_ns) // 1_000_000 + 1, <int64_t>1_000_000))
        if got == 0:
            return FEED_CLOSED
        store_release(&self.read_ns, monotonic_ns())
        self.end += got
        return FEED_GOES_ON
