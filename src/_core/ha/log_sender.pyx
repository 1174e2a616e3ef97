# LogSender: a part of the log as frames `i64 physical offset | i32 size | size bytes` into a slave's socket,
# directly from mapped memory. The caller sets the range. A frame ends when it is full or at the end of a
# file; the part of the last one that the kernel did not accept is remembered.
# Invariant: `next` is where the next frame begins; the frame before it may be unfinished.
from _core.platform cimport MSG_NOSIGNAL
from _core.posix cimport POLLOUT, c_poll, iovec, load_acquire, pollfd, store_release
from libc.errno cimport EAGAIN, EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from posix.unistd cimport usleep

import os

from pyledger import errors

cdef extern from "sys/socket.h" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t c_sendmsg "sendmsg" (int fd, const msghdr* message, int flags)

cdef extern from *:
    """
    static inline void put_frame_header(uint8_t *to, int64_t offset, int64_t size) {
        uint64_t place = __builtin_bswap64((uint64_t)offset);
        uint32_t length = __builtin_bswap32((uint32_t)size);
        __builtin_memcpy(to, &place, 8);
        __builtin_memcpy(to + 8, &length, 4);
    }
    """
    void put_frame_header(uint8_t* to, int64_t offset, int64_t size) noexcept nogil

cdef enum:
    SEND_FRAMES_MAX = 16             # at once
    SEND_BULK_BYTES = 16 << 10       # from here on others may run while the kernel copies
    STREAM_POLL_MS = 5               # a thread that streams waits so long for a slave that is slow
    STREAM_PAUSE_US = 2000           # and rests so long after each part while others put
    SEND_ALL = 0                     # went to the kernel
    SEND_PART = 1
    SEND_BLOCKED = 2                 # the kernel takes no more now
    SEND_NOWHERE = -1                # the log has no such bytes any more


cdef struct Frames:
    uint8_t heads[SEND_FRAMES_MAX + 1][FRAME_HEADER_BYTES]
    iovec parts[2 * (SEND_FRAMES_MAX + 1)]
    int count                        # of parts
    int64_t size


cdef void add_part(Frames* frames, const uint8_t* base, int64_t size, int64_t done) noexcept nogil:
    """Add what is not done of a part."""
    if done < size:
        frames.parts[frames.count].iov_base = <void*>(base + done)
        frames.parts[frames.count].iov_len = <size_t>(size - done)
        frames.count += 1
        frames.size += size - done


cdef class LogSender:
    """Sends frames of the log into a socket; see _core.pyi."""

    cdef int fd
    cdef int64_t frame_bytes_max
    cdef int64_t next
    cdef int64_t begun_size          # of the last frame, without its header
    cdef int64_t begun_done          # bytes of it that went, header and all
    cdef readonly bint blocked       # the kernel took no more the last time
    cdef uint32_t stopped

    def __init__(self, int fd, int64_t frame_bytes_max):
        self.fd = fd
        self.frame_bytes_max = frame_bytes_max
        self.begun_done = FRAME_HEADER_BYTES

    @property
    def next_offset(self):
        """Physical offset (bytes) where the next frame begins."""
        return load_acquire(&self.next)

    @property
    def unfinished(self):
        """Whether the last frame has gone in part only."""
        return self.begun_done < self.begun_size + FRAME_HEADER_BYTES

    def send(self, LogView view not None, int64_t start, int64_t stop):
        """Send the rest of the last frame, and frames of a range of the log; see _core.pyi."""
        cdef int outcome
        self.enter(start)
        if stop - start < SEND_BULK_BYTES:
            outcome = self.send_part(view, stop)
        else:
            with nogil:
                outcome = self.send_part(view, stop)
        self.settle(outcome)
        return self.next

    def stream(self, LogView view not None, int64_t start, int64_t stop, MappedFile last not None, *,
               bint rests=True):
        """Send a long range in a thread of its own; see _core.pyi."""
        cdef int outcome
        self.enter(start)
        with nogil:
            outcome = self.send_long(view, stop, last, rests)
        self.settle(outcome)
        return self.next

    def beat(self, int64_t offset):
        """Send an empty frame with the offset of the next one."""
        cdef Frames frames
        self.enter(offset)
        self.begin_frame(0)
        frames.count = 0
        frames.size = 0
        put_frame_header(frames.heads[0], offset, 0)
        add_part(&frames, frames.heads[0], FRAME_HEADER_BYTES, 0)
        self.settle(self.give(&frames))

    def stop(self):
        """Let a stream end soon."""
        store_word(&self.stopped, 1)

    cdef int enter(self, int64_t start) except -1:
        if self.begun_done < self.begun_size + FRAME_HEADER_BYTES and start != self.next:
            raise errors.InvariantError(f"a frame that ends at {self.next} is not sent; {start} would follow")
        store_release(&self.next, start)
        return 0

    cdef int settle(self, int outcome) except -1:
        if outcome == SEND_NOWHERE:
            raise errors.OffsetOutOfRangeError(self.next, 0, self.next)
        if outcome >= FEED_ERRNO:
            raise OSError(outcome - FEED_ERRNO, os.strerror(outcome - FEED_ERRNO))
        self.blocked = outcome == SEND_BLOCKED
        return 0

    cdef void begin_frame(self, int64_t size) noexcept nogil:
        self.begun_size = size
        self.begun_done = 0

    cdef int send_part(self, LogView view, int64_t stop) noexcept nogil:
        """Send up to `SEND_FRAMES_MAX` frames."""
        cdef Frames frames
        cdef int outcome
        cold_enter()
        outcome = self.gather(view, stop, &frames)
        if outcome == SEND_ALL and not view.intact(self.next - self.begun_size, stop):
            outcome = FEED_ERRNO + EIO
        if outcome == SEND_ALL and frames.count > 0:
            outcome = self.give(&frames)
        cold_leave()
        if outcome == SEND_ALL and self.next < stop:
            return SEND_PART
        return outcome

    cdef int gather(self, LogView view, int64_t stop, Frames* frames) noexcept nogil:
        """The rest of the last frame, and those after it."""
        cdef const uint8_t* base
        cdef int64_t at = self.next
        cdef int64_t size
        cdef int count
        frames.count = 0
        frames.size = 0
        if self.begun_done < self.begun_size + FRAME_HEADER_BYTES:
            base = frames.heads[0]
            if self.begun_size > 0:
                base = view.range_at(at - self.begun_size, self.begun_size)
            if base == NULL:
                return SEND_NOWHERE
            put_frame_header(frames.heads[0], at - self.begun_size, self.begun_size)
            add_part(frames, frames.heads[0], FRAME_HEADER_BYTES, self.begun_done)
            add_part(frames, base, self.begun_size, max(<int64_t>0, self.begun_done - FRAME_HEADER_BYTES))
        for count in range(1, SEND_FRAMES_MAX + 1):
            if at >= stop:
                break
            size = min(min(self.frame_bytes_max, stop - at), view.next_file_offset(at) - at)
            base = view.range_at(at, size)
            if base == NULL:
                return SEND_NOWHERE
            put_frame_header(frames.heads[count], at, size)
            add_part(frames, frames.heads[count], FRAME_HEADER_BYTES, 0)
            add_part(frames, base, size, 0)
            at += size
        return SEND_ALL

    cdef int give(self, Frames* frames) noexcept nogil:
        """Give parts to the kernel, and note how far it took them."""
        cdef msghdr message
        cdef ssize_t sent = -1
        memset(&message, 0, sizeof(message))
        message.msg_iov = frames.parts
        message.msg_iovlen = <size_t>frames.count
        while sent < 0:
            sent = c_sendmsg(self.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0 and errno == EAGAIN:
                return SEND_BLOCKED
            if sent < 0 and errno != EINTR:
                return FEED_ERRNO + errno
        self.note(frames, sent)
        return SEND_ALL if sent == frames.size else SEND_BLOCKED

    cdef void note(self, const Frames* frames, int64_t sent) noexcept nogil:
        """Record that `sent` bytes of the parts were sent."""
        cdef int64_t rest = self.begun_size + FRAME_HEADER_BYTES - self.begun_done
        cdef int64_t at = self.next
        cdef int64_t size
        cdef int count = 1
        if sent <= rest:
            self.begun_done += sent
            return
        sent -= rest
        while sent > 0:
            size = get_i32(frames.heads[count] + 8)
            at += size
            self.begun_size = size
            self.begun_done = min(sent, size + FRAME_HEADER_BYTES)
            sent -= self.begun_done
            count += 1
        store_release(&self.next, at)

    cdef int send_long(self, LogView view, int64_t stop, MappedFile last, bint rests) noexcept nogil:
        """Send all below `stop`, in parts with pauses while the log's last file grows."""
        cdef pollfd about
        cdef int64_t seen = load_acquire(&last.wrote)
        cdef int64_t begin = self.next
        cdef int64_t grown
        cdef int outcome = SEND_PART
        while outcome == SEND_PART and not load_word(&self.stopped):
            outcome = self.send_part(view, stop)
            if outcome == SEND_BLOCKED:
                about.fd = self.fd
                about.events = POLLOUT
                about.revents = 0
                if c_poll(&about, 1, STREAM_POLL_MS) > 0:
                    outcome = SEND_PART
            grown = load_acquire(&last.wrote) - seen
            if rests and grown > 0 and outcome == SEND_PART:
                # Send at least two bytes for each one appended, so that the lag shrinks.
                if 2 * grown < self.next - begin:
                    usleep(STREAM_PAUSE_US)
                seen += grown
                begin = self.next
        return outcome
