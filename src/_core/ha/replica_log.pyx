# ReplicaLog: the end of a slave's commit log. A master's bytes arrive as they are in its log, split anywhere,
# and are written exactly at the log's end. They count as whole once they are checked to be records.
# Invariants: whole <= wrote_where; both only grow, except by `truncate_partial`. One thread appends; a second
# one is rejected. Readers, the dispatcher and the flush see only whole records.
#
# Bytes are written by a system call, not through the mapping: the fault on a new page costs more than its
# bytes, even when pages are made ahead of time. The kernel must not read ahead there: it
# would fill pages with zeros just before they are written, which costs more than all other work of a slave.
from _core.layout cimport PARSED_BLANK, PARSED_RECORD, PARSED_SHORT, Record, get_i32, get_i64, parse_record
from _core.posix cimport (MADV_NORMAL, MADV_RANDOM, iovec, load_acquire, madvise, open_regular, pwritev,
                          store_release)
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_RDWR
from posix.unistd cimport close as c_close

from pyledger import errors

cdef enum:
    BULK_BYTES = 16 << 10            # from here on others may run while the kernel copies
    FRAME_HEADER_BYTES = 12          # i64 physical offset, i32 size
    PARTS_MAX = 64
    REFUSED_RECORD = -1
    REFUSED_FILE_SIZE = -2


cdef struct Parts:
    iovec at[PARTS_MAX]
    int count
    int64_t size                     # of all together


cdef int write_at(int fd, Parts* parts, int64_t position) noexcept nogil:
    """Write all parts one after the other. 0, or an errno."""
    cdef iovec* at = parts.at
    cdef int count = parts.count
    cdef ssize_t put
    while count > 0:
        put = pwritev(fd, at, count, position)
        if put < 0:
            if errno == EINTR:
                continue
            return errno
        position += put
        while count > 0 and <size_t>put >= at.iov_len:
            put -= <ssize_t>at.iov_len
            at += 1
            count -= 1
        if count > 0:
            at.iov_base = <uint8_t*>at.iov_base + put
            at.iov_len -= <size_t>put
    return 0


cdef void copy_to(uint8_t* target, const Parts* parts) noexcept nogil:
    for part in range(parts.count):
        memcpy(target, parts.at[part].iov_base, parts.at[part].iov_len)
        target += parts.at[part].iov_len


cdef void advise_reads(MappedFile file, int advice) noexcept:
    if file.base != NULL:
        madvise(file.base, <size_t>file.mapped_bytes, advice)


cdef int64_t gather_frames(const uint8_t* data, int64_t size, int64_t end, int64_t room,
                           Parts* parts) noexcept nogil:
    """Gather the whole consecutive frames at the start of `data` that fit into `room`; return their bytes."""
    cdef const uint8_t* frame
    cdef int64_t body, used = 0
    parts.count = 0
    parts.size = 0
    while size - used >= FRAME_HEADER_BYTES and parts.count < PARTS_MAX:
        frame = data + used
        body = get_i32(frame + 8)
        if (get_i64(frame) != end or body <= 0 or body > size - used - FRAME_HEADER_BYTES
                or body > room - parts.size):
            break
        parts.at[parts.count].iov_base = <void*>(frame + FRAME_HEADER_BYTES)
        parts.at[parts.count].iov_len = <size_t>body
        parts.count += 1
        parts.size += body
        end += body
        used += FRAME_HEADER_BYTES + body
    return used


cdef class ReplicaLog:
    """Appends a master's bytes to a commit log; see _core.pyi."""

    cdef readonly MappedFileQueue queue
    cdef int64_t whole
    cdef int64_t last_store_timestamp
    cdef MappedFile written              # the file that `fd` writes to
    cdef int64_t fd_start                # its start
    cdef int64_t rejected_at              # position of the last rejected record
    cdef int fd
    cdef bint appending                  # a thread appends, with the interpreter lock or without

    def __cinit__(self):
        self.fd = self.fd_start = -1

    def __dealloc__(self):
        self.let_go()

    def __init__(self, MappedFileQueue queue not None):
        self.queue = queue
        self.whole = queue.wrote_where

    @property
    def whole_where(self):
        return load_acquire(&self.whole)

    @property
    def last_store_timestamp_ms(self):
        return load_acquire(&self.last_store_timestamp)

    def append(self, int64_t offset, data):
        """Write a master's bytes at a physical offset, which must be the log's end; the new end (bytes)."""
        cdef MappedFileQueue queue = self.queue
        cdef Py_buffer view
        self.start_append()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            queue.check_writable()
            if queue.last is None:
                if offset < 0 or offset % queue.file_size_bytes:
                    raise errors.OffsetOutOfRangeError(offset, 0, 0)
            elif offset != queue.wrote_where:
                raise errors.OffsetOutOfRangeError(offset, queue.min_offset, queue.wrote_where)
            if view.len > 0:
                self.append_bytes(offset, &view)
        finally:
            PyBuffer_Release(&view)
            self.appending = False
        return offset + view.len

    cdef int append_bytes(self, int64_t offset, Py_buffer* view) except -1:
        cdef MappedFile file = self.queue.writable_file(offset)
        cdef Parts parts
        if self.whole < file.start_offset and file.wrote == 0:
            self.whole = file.start_offset
        if view.len > file.size_bytes - file.wrote:
            self.raise_other_size(file)
        parts.count = 1
        parts.size = view.len
        parts.at[0].iov_base = view.buf
        parts.at[0].iov_len = <size_t>view.len
        return self.append_parts(file, &parts)

    def take_frames(self, data):
        """Append the whole frames that `data` begins with; see _core.pyi."""
        cdef MappedFileQueue queue = self.queue
        cdef MappedFile file
        cdef Py_buffer view
        cdef Parts parts
        cdef int64_t used = 0
        self.start_append()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            queue.check_writable()
            file = queue.last
            if file is not None:
                used = gather_frames(<const uint8_t*>view.buf, view.len, file.start_offset + file.wrote,
                                     file.size_bytes - file.wrote, &parts)
                if parts.count > 0:
                    self.append_parts(file, &parts)
        finally:
            PyBuffer_Release(&view)
            self.appending = False
        return used

    cdef int start_append(self) except -1:
        """Reserve the log's end until `appending` is reset, even while the interpreter lock is released."""
        if self.appending:
            raise errors.InvariantError(f"{self.queue.folder}: two threads append what a master sent")
        self.appending = True
        return 0

    cdef int append_parts(self, MappedFile file, Parts* parts) except -1:
        """Append what fits into a file, which must be the last."""
        cdef int outcome
        file.pin()
        try:
            self.make_ready(file, file.wrote + parts.size)
            if parts.size < BULK_BYTES:
                outcome = self.place(file, parts)
            else:
                with nogil:
                    outcome = self.place(file, parts)
        finally:
            file.unpin()
            self.queue.append_epoch += 1
        if outcome != 0:
            self.raise_refused(file, outcome)
        return 0

    cdef inline bint is_ready(self, MappedFile file, int64_t end) noexcept nogil:
        """Whether `place` may continue up to a position of a file."""
        return end <= file.allocated and (file.pool != NULL or self.fd_start == file.start_offset)

    cdef int make_ready(self, MappedFile file, int64_t end) except -1:
        """Have blocks up to a position of a file, and the file open for writing."""
        if end > file.allocated:
            file.reserve(end)
        if file.pool == NULL and self.fd_start != file.start_offset:
            self.let_go()
            self.fd = open_regular(file.c_path, O_RDWR)
            if self.fd < 0:
                raise_errno(errno, file.path, "open")
            self.fd_start = file.start_offset
            self.written = file
            advise_reads(file, MADV_RANDOM)
        return 0

    cdef int place(self, MappedFile file, Parts* parts) noexcept nogil:
        """Write at the end of a file that is ready. 0; an errno or REFUSED_…: nothing of it stays."""
        cdef int64_t position = file.wrote
        cdef int outcome = 0
        ASSERT(parts.size >= 0 and position + parts.size <= file.allocated <= file.size_bytes)
        if file.pool != NULL:
            copy_to(file.pool + position, parts)
        else:
            outcome = write_at(self.fd, parts, position)
        if outcome == 0:
            outcome = self.walk(file, position + parts.size)
            if not file.intact():
                return EIO
        if outcome != 0:
            memset(file.write_base() + position, 0, <size_t>parts.size)
            return outcome
        store_release(&file.wrote, position + parts.size)
        if file.pool == NULL:
            store_release(&file.committed, self.whole - file.start_offset)
        return 0

    cdef void let_go(self) noexcept:
        """Keep no file open: a log without appends may be deleted or moved."""
        if self.fd >= 0:
            c_close(self.fd)
        self.fd = self.fd_start = -1
        if self.written is not None:
            advise_reads(self.written, MADV_NORMAL)
            self.written = None

    def truncate_partial(self):
        """Truncate the bytes after the last whole record, durably; return their number."""
        cdef int64_t rest
        self.start_append()
        try:
            self.queue.check_writable()
            rest = self.queue.wrote_where - self.whole
            self.let_go()
            if rest > 0:
                self.queue.truncate(self.whole)
        finally:
            self.appending = False
        return max(<int64_t>0, rest)

    cdef int walk(self, MappedFile file, int64_t end) noexcept nogil:
        """Go over the records that are whole now that a file's bytes go up to `end`, a position."""
        cdef Record record
        cdef int64_t position = self.whole - file.start_offset
        cdef const uint8_t* base = file.write_base()
        cdef int64_t timestamp = self.last_store_timestamp
        cdef int status = PARSED_RECORD
        while position < end:
            record.size_bytes = 0
            status = parse_record(base + position, end - position, &record)
            if status == PARSED_SHORT and record.size_bytes <= file.size_bytes - position:
                break
            if status == PARSED_BLANK:
                if position + record.size_bytes != file.size_bytes:
                    return REFUSED_FILE_SIZE
                if end == file.size_bytes:
                    position = end
                break
            if status != PARSED_RECORD or record.physical_offset != file.start_offset + position:
                self.rejected_at = position
                return REFUSED_RECORD
            timestamp = max(timestamp, record.store_timestamp)
            position += record.size_bytes
        store_release(&self.last_store_timestamp, timestamp)
        store_release(&self.whole, file.start_offset + position)
        return 0

    cdef int raise_refused(self, MappedFile file, int outcome) except -1:
        """Raise what `place` returned."""
        if outcome == REFUSED_FILE_SIZE:
            self.raise_other_size(file)
        if outcome == REFUSED_RECORD:
            raise errors.CorruptRecordError(file.path, file.start_offset + self.rejected_at,
                                            "the master's bytes are no record that belongs here")
        raise_errno(outcome, file.path, "write to")
        return 0

    cdef int raise_other_size(self, MappedFile file) except -1:
        raise errors.StoreFormatError(
            file.path, f"is {file.size_bytes} bytes long, but the master's files have another size",
            "set mappedFileSizeCommitLog to the master's, and empty this slave")
