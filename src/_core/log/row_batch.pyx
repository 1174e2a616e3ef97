# _RowBatch: records of rows, encoded side by side and written to the end of the log by one system call.
# A page that nobody has touched yet costs a fault for each 4 KiB of it in the mapping, which is more than the
# bytes do; and what is written back at once leaves little for the flush to wait for.
# Invariant: from the first record of a run to its last one the interpreter lock is held, which is the append
# lock; where it may be let go the run is empty, and `append_epoch` says that this was kept to.
from _core.layout cimport AT_QUEUE_ID, get_i32
from _core.posix cimport SYNC_FILE_RANGE_WRITE, open_regular, sync_file_range
from libc.errno cimport EDQUOT, EINTR, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from posix.fcntl cimport O_RDWR
from posix.unistd cimport close as c_close, pwrite

from pyledger import errors

cdef enum:
    RUN_BYTES = 512 << 10            # what a core's cache holds beside the rows
    WRITE_BACK_BYTES = 8 << 20


cdef class _RowBatch:
    """What one call appends past the mapping."""

    cdef CommitLog log
    cdef dict appenders              # of the topic, by queue id
    cdef MappedFile file             # that `fd` writes to
    cdef uint8_t* records
    cdef int64_t used                # bytes of records that are not written yet
    cdef int64_t written_back        # position in `file` up to which the kernel was asked to write
    cdef int64_t epoch               # of the log when the run got its first record
    cdef int fd

    def __cinit__(self, CommitLog log, dict appenders):
        self.fd = -1
        self.log = log
        self.appenders = appenders
        self.records = <uint8_t*>malloc(RUN_BYTES)
        if self.records == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.records)
        if self.fd >= 0:
            c_close(self.fd)

    cdef int add(self, QueueAppender appender, Draft* d) except -1:
        """Append one record; it is in the log after `write`."""
        cdef int64_t size_bytes = self.log.allowed_size(&appender.template, d)
        if size_bytes < 0:
            self.write()
            self.log.raise_too_large(&appender.template, d)
        if self.used > 0 and not self.has_room(size_bytes):
            self.write()
            if d.follows_clock:
                d.store_timestamp = 0
        if self.used == 0:
            if size_bytes > RUN_BYTES:
                self.log.place(&appender.template, appender, d, 1)
                return 0
            self.begin(size_bytes)
        ASSERT(self.epoch == self.log.queue.append_epoch and self.has_room(size_bytes))
        d.physical_offset = self.file.start_offset + self.file.wrote + self.used
        d.queue_offset = appender.next_offset
        self.log.stamp(d)
        encode_record(self.records + self.used, &appender.template, d, properties_length(d), size_bytes)
        appender.next_offset += 1
        self.used += size_bytes
        return 0

    cdef inline bint has_room(self, int64_t size_bytes) noexcept:
        return (self.used + size_bytes <= RUN_BYTES
                and self.file.wrote + self.used + size_bytes + BLANK_BYTES <= self.file.size_bytes)

    cdef int begin(self, int64_t size_bytes) except -1:
        """Have the file open that takes a record. No blocks are wanted for it: a write that finds none is an
        error.

        Each step may let go of the interpreter lock, so the file is looked at again after it.
        """
        cdef MappedFileQueue queue = self.log.queue
        while (self.log.refusal is not None or not queue.takes_appends() or self.file is not queue.last
                or not self.has_room(size_bytes)):
            if (self.log.refusal is not None or not queue.takes_appends()
                    or queue.last.wrote + size_bytes + BLANK_BYTES > queue.last.size_bytes):
                self.log.make_room(size_bytes, 1)
            else:
                self.enter(queue.last)
        self.epoch = queue.append_epoch
        return 0

    cdef int enter(self, MappedFile file) except -1:
        """Have a file open for writing."""
        self.leave()
        self.fd = open_regular(file.c_path, O_RDWR)
        if self.fd < 0:
            raise_errno(errno, file.path, "open")
        self.file = file
        self.written_back = file.wrote
        advise_reads(file, MADV_RANDOM)
        return 0

    cdef int leave(self) except -1:
        """Let go of the file; the rest of it is on its way to the disk."""
        if self.file is not None:
            self.write_back(1)
            advise_reads(self.file, MADV_NORMAL)
            self.file = None
        if self.fd >= 0:
            c_close(self.fd)
            self.fd = -1
        return 0

    cdef int write(self) except -1:
        """Bring the records into the log, then give others a turn.

        Raises:
            StoreFullError: no room; no record of the run stays.
            StoreFailedError: the system refused: as after a flush that failed nothing is tried again.
        """
        cdef int64_t written = 0
        cdef int failed
        if self.used == 0:
            return 0
        if self.epoch != self.log.queue.append_epoch:
            raise errors.InvariantError(f"{self.file.path}: another append came between the rows of a run")
        failed = self.put(self.used, &written)
        if failed != 0:
            self.take_back(written, failed)
        self.log.queue.publish(self.file, self.file.wrote + self.used, self.epoch)
        self.used = 0
        self.log.wake()
        self.write_back(WRITE_BACK_BYTES)
        return 0

    cdef int put(self, int64_t length, int64_t* written) noexcept nogil:
        """Write the first bytes of the run behind the log's end. 0, or an errno."""
        cdef ssize_t put
        while written[0] < length:
            put = pwrite(self.fd, self.records + written[0], <size_t>(length - written[0]),
                         self.file.wrote + written[0])
            if put >= 0:
                written[0] += put
            elif errno != EINTR:
                return errno
        return 0

    cdef int take_back(self, int64_t written, int failed) except -1:
        """Raise what the system refused with; nothing of the run stays, and queues go on where they were."""
        cdef QueueAppender appender
        cdef int64_t at = 0, zeroed = 0
        while at < self.used:
            appender = self.appenders[get_i32(self.records + at + AT_QUEUE_ID)]
            appender.next_offset -= 1
            at += get_i32(self.records + at)
        self.used = 0
        # There is room for these zeroes: they take the place of what was written.
        memset(self.records, 0, <size_t>written)
        if failed not in (ENOSPC, EDQUOT) or self.put(written, &zeroed) != 0:
            self.log.queue.fail(failed, self.file.path)
        raise_errno(failed, self.file.path, "write to")
        return 0

    cdef int write_back(self, int64_t least_bytes) except -1:
        """Let the kernel begin to write what is in the file, once it is so much. Others have their turn."""
        cdef int64_t begin = self.written_back
        cdef int64_t length = self.file.wrote - begin
        cdef int fd = self.fd
        if length >= least_bytes:
            self.written_back = begin + length
        with nogil:
            if length >= least_bytes:
                sync_file_range(fd, begin, length, SYNC_FILE_RANGE_WRITE)
        return 0

    cdef int end(self) except -1:
        """Bring the last records into the log."""
        self.write()
        self.leave()
        return 0
