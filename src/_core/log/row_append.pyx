# Rows of columns become messages, without an object for each row. Their records are encoded side by side and
# written to the end of the log by one system call: touching a page for the first time costs more than its
# bytes do, and what is written back early leaves little for the flush to wait for.
# The interpreter lock is the append lock. It is not released from the first record of a batch to its
# `write`; `append_epoch` identifies that period, and `write` raises if another append came in between.
from _core.layout cimport AT_QUEUE_ID, get_i32, java_hash
from _core.platform cimport start_write_back
from _core.posix cimport open_regular
from cpython.object cimport PyObject
from libc.errno cimport EDQUOT, EINTR, ENOSPC, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from posix.fcntl cimport O_RDWR
from posix.unistd cimport close as c_close, pwrite

from pyledger import errors

cdef enum:
    BY_FILE_BYTES = 64 << 10         # of rows; fewer are written sooner through the mapping
    BATCH_BYTES = 512 << 10          # what a core's cache holds beside the rows
    WRITE_BACK_BYTES = 8 << 20
    NEAR_QUEUES = 64                 # whose appenders are found without a dictionary


cdef int check_offsets(const int32_t[::1] offsets, Py_ssize_t rows, Py_ssize_t data_bytes,
                       str what) except -1:
    """Offsets of `rows` values that ascend within their data."""
    cdef Py_ssize_t i
    if offsets.shape[0] != rows + 1 or offsets[0] < 0 or offsets[rows] > data_bytes:
        raise errors.IllegalMessageError(f"{what} do not fit the number of rows")
    for i in range(rows):
        if offsets[i] > offsets[i + 1]:
            raise errors.IllegalMessageError(f"{what} do not ascend at row {i}")
    return 0


def choose_queues(const int32_t[::1] wanted not None, const int32_t[::1] key_offsets not None,
                  const uint8_t[::1] keys not None, int32_t queue_count, int64_t spread):
    """The queue of each row; see _core.pyi."""
    cdef Py_ssize_t rows = wanted.shape[0]
    cdef bytearray chosen = bytearray(4 * rows)
    cdef int32_t* out = <int32_t*><char*>chosen
    cdef const uint8_t* start = &keys[0] if keys.shape[0] else NULL
    cdef int64_t length
    cdef Py_ssize_t i
    if queue_count < 1:
        raise errors.IllegalMessageError(f"{queue_count} is no number of queues")
    check_offsets(key_offsets, rows, keys.shape[0], "keys")
    for i in range(rows):
        length = key_offsets[i + 1] - key_offsets[i]
        if wanted[i] >= 0:
            out[i] = wanted[i]
        elif length > 0:
            out[i] = <int32_t>(abs(<int64_t>java_hash(0, start + key_offsets[i], length)) % queue_count)
        else:
            out[i] = <int32_t>(spread % queue_count)
            spread += 1
    return chosen, spread


cdef class _RowBatch:
    """The rows of one call whose records are not in the log yet, and the file they go to."""

    cdef CommitLog log
    cdef dict appenders              # of the topic, by queue id
    cdef MappedFile file             # that `fd` writes to
    cdef uint8_t* records
    cdef int64_t used                # bytes of records that are not written yet
    cdef int64_t written_back        # position in `file` up to which writeback was started
    cdef int64_t epoch               # of the log when the batch got its first record
    cdef int fd

    def __cinit__(self, CommitLog log, dict appenders):
        self.fd = -1
        self.log = log
        self.appenders = appenders
        self.records = <uint8_t*>malloc(BATCH_BYTES)
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
        if self.used > 0 and not self.has_space(size_bytes):
            self.write()
            if d.follows_clock:
                d.store_timestamp = 0
        if self.used == 0:
            if size_bytes > BATCH_BYTES:
                self.log.place(&appender.template, appender, d, 1)
                return 0
            self.begin(size_bytes)
        ASSERT(self.epoch == self.log.queue.append_epoch and self.has_space(size_bytes))
        d.physical_offset = self.file.start_offset + self.file.wrote + self.used
        d.queue_offset = appender.next_offset
        self.log.stamp(d)
        encode_record(self.records + self.used, &appender.template, d, properties_length(d), size_bytes)
        appender.next_offset += 1
        self.used += size_bytes
        return 0

    cdef inline bint has_space(self, int64_t size_bytes) noexcept:
        return (self.used + size_bytes <= BATCH_BYTES
                and self.file.wrote + self.used + size_bytes + BLANK_BYTES <= self.file.size_bytes)

    cdef int begin(self, int64_t size_bytes) except -1:
        """Open the file that takes a record. It needs no blocks: a write that finds none is an error.

        Each step may release the interpreter lock, so everything is checked again after it.
        """
        cdef MappedFileQueue queue = self.log.queue
        while (self.log.append_error is not None or not queue.takes_appends() or self.file is not queue.last
                or not self.has_space(size_bytes)):
            if (self.log.append_error is not None or not queue.takes_appends()
                    or queue.last.wrote + size_bytes + BLANK_BYTES > queue.last.size_bytes):
                self.log.make_space(size_bytes, 1)
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
        """Close the file; start writing the rest of it to the disk."""
        if self.file is not None:
            self.write_back(1)
            advise_reads(self.file, MADV_NORMAL)
            self.file = None
        if self.fd >= 0:
            c_close(self.fd)
            self.fd = -1
        return 0

    cdef int write(self) except -1:
        """Write the records to the log, then let other threads run.

        Raises:
            StoreFullError: no space; no record of the batch stays.
            StoreFailedError: a write failed; as after a failed flush nothing is tried again.
        """
        cdef int64_t written = 0
        cdef int failed
        if self.used == 0:
            return 0
        if self.epoch != self.log.queue.append_epoch:
            raise errors.InvariantError(f"{self.file.path}: another append came between the rows of a batch")
        failed = self.put(self.used, &written)
        if failed != 0:
            self.take_back(written, failed)
        self.log.queue.publish(self.file, self.file.wrote + self.used, self.epoch)
        self.used = 0
        self.log.wake()
        self.write_back(WRITE_BACK_BYTES)
        return 0

    cdef int put(self, int64_t length, int64_t* written) noexcept nogil:
        """Write the first bytes of the batch after the log's end. 0, or an errno."""
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
        """Raise the error of a write; nothing of the batch stays, and queues continue where they were."""
        cdef QueueAppender appender
        cdef int64_t at = 0, zeroed = 0
        while at < self.used:
            appender = self.appenders[get_i32(self.records + at + AT_QUEUE_ID)]
            appender.next_offset -= 1
            at += get_i32(self.records + at)
        self.used = 0
        # These zeroes need no space: they replace what was written.
        memset(self.records, 0, <size_t>written)
        if failed not in (ENOSPC, EDQUOT) or self.put(written, &zeroed) != 0:
            self.log.queue.fail(failed, self.file.path)
        raise_errno(failed, self.file.path, "write to")
        return 0

    cdef int write_back(self, int64_t least_bytes) except -1:
        """Start writing back once this many bytes are in the file. Lets other threads run."""
        cdef int64_t begin = self.written_back
        cdef int64_t length = self.file.wrote - begin
        cdef int fd = self.fd
        if length >= least_bytes:
            self.written_back = begin + length
        with nogil:
            if length >= least_bytes:
                start_write_back(fd, begin, length)
        return 0

    cdef int end(self) except -1:
        """Write the last records to the log."""
        self.write()
        self.leave()
        return 0


cdef int write_rows(CommitLog log, str topic, const int32_t[::1] queue_ids, const int32_t[::1] body_offsets,
                    const uint8_t[::1] bodies, const int32_t[::1] property_offsets,
                    const uint8_t[::1] properties, const int64_t[::1] born_ms,
                    int64_t store_timestamp_ms) except -1:
    """Append one message for each row."""
    cdef Py_ssize_t rows = queue_ids.shape[0]
    cdef const uint8_t* body = &bodies[0] if bodies.shape[0] else NULL
    cdef const uint8_t* stored = &properties[0] if properties.shape[0] else NULL
    cdef dict appenders = {}         # what `near` points to stays in it
    cdef PyObject* near[NEAR_QUEUES]
    cdef QueueAppender appender
    cdef Draft draft
    cdef _RowBatch batch = None
    cdef int64_t since_yield = 0
    cdef int32_t queue_id
    cdef Py_ssize_t i
    memset(near, 0, sizeof(near))
    check_offsets(body_offsets, rows, bodies.shape[0], "bodies")
    check_offsets(property_offsets, rows, properties.shape[0], "properties")
    if born_ms.shape[0] != rows:
        raise errors.IllegalMessageError("born timestamps do not fit the number of rows")
    start_draft(&draft, log.crc_property)
    draft.store_timestamp = store_timestamp_ms
    draft.follows_clock = store_timestamp_ms == 0
    if (body_offsets[rows] - body_offsets[0] + property_offsets[rows] - property_offsets[0] >= BY_FILE_BYTES
            and not log.queue.pooled and log.entries is None):
        batch = _RowBatch(log, appenders)
    try:
        for i in range(rows):
            queue_id = queue_ids[i]
            if 0 <= queue_id < NEAR_QUEUES and near[queue_id] != NULL:
                appender = <QueueAppender>near[queue_id]
            else:
                appender = appenders.get(queue_id)
                if appender is None:
                    if batch is not None:
                        batch.write()
                    appender = appenders[queue_id] = log.appender(topic, queue_id)
                if 0 <= queue_id < NEAR_QUEUES:
                    near[queue_id] = <PyObject*>appender
            draft.body = body + body_offsets[i]
            draft.body_bytes = body_offsets[i + 1] - body_offsets[i]
            draft.properties = stored + property_offsets[i]
            draft.properties_bytes = property_offsets[i + 1] - property_offsets[i]
            draft.born_timestamp = born_ms[i]
            if batch is None:
                since_yield += log.place(&appender.template, appender, &draft, 1)
                since_yield = yield_if_due(&draft, since_yield)
            else:
                batch.add(appender, &draft)
    finally:
        # Rows before one that is rejected were appended.
        if batch is not None:
            batch.end()
    log.wake()
    return 0
