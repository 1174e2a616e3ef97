# JournalWriter: the end of a bookie's journal. The thread of an event loop appends to a buffer; another
# writes and syncs it without the GIL, and notifies the event loop.
#
# A batch is what one sync makes durable. It ends with padding to the block, as BookKeeper's does, and the
# padding contains a seal: a CRC of the batch. Records have none, so only the seal distinguishes a torn batch
# from a whole one; readers that do not know seals skip it.
#
# Invariants: synced <= written <= appended, and each only grows. A failed write or sync is never repeated: it
# latches the writer. The lock is held to copy a record or to swap buffers, never during I/O.
from _core.layout cimport put_i32, put_i64
from _core.platform cimport (allocate_range, clear_event, close_event, loop_event, monotonic_ns, notify_loop,
                             open_event, sync_data)
from _core.posix cimport (fork_generation, load_acquire, load_word, pthread_mutex_destroy, pthread_mutex_init,
                          pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, store_release,
                          store_word)
from _core.status cimport STATUS_CLOSED, STATUS_IO_ERROR, STATUS_OK, STATUS_STORE_FAILED
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, ENOSPC, errno
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset
from posix.unistd cimport pwrite as c_pwrite

cimport cython

from pyledger import errors

cdef extern from *:
    """
    #include <errno.h>
    #define SEAL_MAGIC 0x504C4A53  /* "PLJS" */
    static inline void errno_set(int number) { errno = number; }
    """
    int SEAL_MAGIC
    void errno_set(int number) noexcept nogil

cdef enum:
    JOURNAL_BLOCK_BYTES = 512
    JOURNAL_PADDING_MARK = -0x100
    JOURNAL_SEAL_BYTES = 16
    # Lengths of the padding and its seal: what the least padding takes.
    JOURNAL_TAIL_BYTES = 8 + JOURNAL_SEAL_BYTES
    JOURNAL_BUFFER_BYTES = 256 << 10
    JOURNAL_ROLL = 1
    JOURNAL_CLOSED = 2


cdef struct JournalBuffer:
    uint8_t* base
    int64_t filled
    int64_t capacity


cdef inline bint make_space(JournalBuffer* buffer, int64_t size_bytes) noexcept nogil:
    """Grow the capacity for `size_bytes` more and the padding after them. False: no memory."""
    cdef int64_t needed = buffer.filled + size_bytes + 2 * JOURNAL_BLOCK_BYTES
    cdef int64_t capacity = buffer.capacity
    cdef void* base
    if needed <= capacity:
        return True
    capacity = max(needed, 2 * capacity, <int64_t>JOURNAL_BUFFER_BYTES)
    base = realloc(buffer.base, capacity)
    if base == NULL:
        return False
    buffer.base = <uint8_t*>base
    buffer.capacity = capacity
    return True


@cython.final
cdef class JournalWriter:
    """Where records of a bookie's journal go; one thread serves it by `run`."""

    cdef readonly str path
    cdef object cause
    cdef pthread_mutex_t lock
    cdef JournalBuffer filling
    cdef JournalBuffer writing
    cdef EventNotifier flusher
    cdef uint32_t status_word        # 0, or the negated status: failed, closed
    cdef bint closing
    cdef int generation
    cdef loop_event event            # signalled after a sync, and by `fail`
    cdef int fd                      # owned by who called `open_file`
    cdef int64_t number              # of the file
    cdef int64_t position            # where its next batch begins
    cdef int64_t allocated
    cdef int64_t file_bytes_max
    cdef int64_t allocate_bytes
    cdef int64_t group_wait_ns
    cdef int64_t group_bytes
    cdef int64_t appended_bytes
    cdef int64_t written_bytes
    cdef int64_t synced_bytes
    cdef int64_t mark_number
    cdef int64_t mark_position
    cdef readonly int64_t syncs

    def __cinit__(self, *, int64_t file_bytes_max, int64_t allocate_bytes, int64_t group_wait_ms=0,
                  int64_t group_bytes=512 << 10):
        cdef int failed
        self.path = ""
        self.fd = self.event.event_fd = -1
        self.file_bytes_max = file_bytes_max
        self.allocate_bytes = allocate_bytes
        self.group_wait_ns = group_wait_ms * 1_000_000
        self.group_bytes = group_bytes
        self.flusher = EventNotifier()
        self.generation = fork_generation
        pthread_mutex_init(&self.lock, NULL)
        failed = open_event(&self.event)
        if failed != 0:
            raise_errno(failed, "journal", "wake the event loop for")

    def __dealloc__(self):
        pthread_mutex_destroy(&self.lock)
        close_event(&self.event)
        free(self.filling.base)
        free(self.writing.base)

    # --- who appends

    def append(self, record):
        """Append one record, its length included; see _core.pyi."""
        cdef Py_buffer view
        PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
        try:
            return self.put(<const uint8_t*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int64_t put(self, const uint8_t* record, int64_t size_bytes) except -1:
        cdef bint roomy
        if self.status_word != 0 or self.generation != fork_generation:
            self.refuse()
        pthread_mutex_lock(&self.lock)
        roomy = make_space(&self.filling, size_bytes)
        if roomy:
            ASSERT(size_bytes >= 0 and self.filling.filled + size_bytes <= self.filling.capacity)
            memcpy(self.filling.base + self.filling.filled, record, size_bytes)
            self.filling.filled += size_bytes
            store_release(&self.appended_bytes, self.appended_bytes + size_bytes)
        pthread_mutex_unlock(&self.lock)
        if not roomy:
            raise MemoryError()
        return self.appended_bytes

    cdef int64_t put_sized(self, const uint8_t* body, int64_t size_bytes) except -1:
        """Append a record and the length that belongs before it."""
        cdef bint roomy
        cdef uint8_t* at
        if self.status_word != 0 or self.generation != fork_generation:
            self.refuse()
        pthread_mutex_lock(&self.lock)
        roomy = make_space(&self.filling, 4 + size_bytes)
        if roomy:
            at = self.filling.base + self.filling.filled
            ASSERT(size_bytes >= 0 and self.filling.filled + 4 + size_bytes <= self.filling.capacity)
            put_i32(at, <int>size_bytes)
            memcpy(at + 4, body, size_bytes)
            self.filling.filled += 4 + size_bytes
            store_release(&self.appended_bytes, self.appended_bytes + 4 + size_bytes)
        pthread_mutex_unlock(&self.lock)
        if not roomy:
            raise MemoryError()
        return self.appended_bytes

    def kick(self):
        """Have what was appended written."""
        self.flusher.wake()

    cdef int refuse(self) except -1:
        cdef int status = -<int>load_word(&self.status_word)
        if status == STATUS_STORE_FAILED:
            raise errors.StoreFailedError(self.path) from self.cause
        raise_status(STATUS_CLOSED, self.path, "append to")

    @property
    def event_fd(self):
        return self.event.event_fd

    def clear_event(self):
        """Make `event_fd` unreadable until the next sync or failure."""
        clear_event(&self.event)

    @property
    def appended(self):
        return load_acquire(&self.appended_bytes)

    @property
    def written(self):
        return load_acquire(&self.written_bytes)

    @property
    def synced(self):
        return load_acquire(&self.synced_bytes)

    @property
    def mark(self):
        """Journal file and position up to which all is durable."""
        pthread_mutex_lock(&self.lock)
        number, position = self.mark_number, self.mark_position
        pthread_mutex_unlock(&self.lock)
        return number, position

    @property
    def failed(self):
        return load_word(&self.status_word) == -STATUS_STORE_FAILED

    def close(self):
        """Let `run` end once all is durable; nothing can be appended any more."""
        if load_word(&self.status_word) == 0:
            store_word(&self.status_word, -STATUS_CLOSED)
        self.closing = True
        self.flusher.wake()

    # --- who writes

    def open_file(self, str path, int fd, int64_t number, int64_t position):
        """Go on in a new file, whose header is written; between two calls of `run`."""
        self.path = path
        self.fd = fd
        self.number = number
        self.position = self.allocated = position
        pthread_mutex_lock(&self.lock)
        self.mark_number, self.mark_position = number, position
        pthread_mutex_unlock(&self.lock)

    def run(self):
        """Write and sync until the file is full (True) or the writer was closed (False); see _core.pyi."""
        cdef int result
        cdef int number
        with nogil:
            result = self.serve()
            number = errno
        if result >= 0:
            return result == JOURNAL_ROLL
        try:
            raise_errno(number, self.path, "write")
        except errors.StoreError as error:
            self.fail(error)
            raise

    def fail(self, cause):
        """Latch: nothing is appended any more, and what is not durable yet never will be."""
        if self.cause is None:
            self.cause = cause
        store_word(&self.status_word, -STATUS_STORE_FAILED)
        self.notify()

    cdef int serve(self) noexcept nogil:
        cdef int64_t filled
        while True:
            pthread_mutex_lock(&self.lock)
            filled = self.filling.filled
            pthread_mutex_unlock(&self.lock)
            if filled == 0:
                if self.closing:
                    return JOURNAL_CLOSED
                self.flusher.sleep(-1)
                continue
            if self.group_wait_ns > 0 and not self.closing:
                self.gather()
            pthread_mutex_lock(&self.lock)
            self.filling, self.writing = self.writing, self.filling
            filled = self.appended_bytes
            pthread_mutex_unlock(&self.lock)
            if self.write_batch(filled) < 0:
                return STATUS_IO_ERROR
            if self.position >= self.file_bytes_max:
                return JOURNAL_ROLL

    cdef void gather(self) noexcept nogil:
        """Wait for more records, up to the time or the bytes of a group."""
        cdef int64_t deadline_ns = monotonic_ns() + self.group_wait_ns
        cdef int64_t filled = 0
        while monotonic_ns() < deadline_ns and filled < self.group_bytes and not self.closing:
            self.flusher.sleep(deadline_ns)
            pthread_mutex_lock(&self.lock)
            filled = self.filling.filled
            pthread_mutex_unlock(&self.lock)

    cdef int write_batch(self, int64_t appended) noexcept nogil:
        """Seal, write and sync what is in `writing`; `appended` is then durable."""
        cdef JournalBuffer* batch = &self.writing
        if not make_space(batch, 0):
            errno_set(ENOSPC)
            return STATUS_IO_ERROR
        self.seal(batch)
        if self.write_all(batch.base, batch.filled) < 0:
            return STATUS_IO_ERROR
        store_release(&self.written_bytes, appended)
        if sync_data(self.fd) != 0:
            return STATUS_IO_ERROR
        self.position += batch.filled
        batch.filled = 0
        self.syncs += 1
        pthread_mutex_lock(&self.lock)
        self.mark_number, self.mark_position = self.number, self.position
        pthread_mutex_unlock(&self.lock)
        store_release(&self.synced_bytes, appended)
        self.notify()
        return STATUS_OK

    cdef void seal(self, JournalBuffer* batch) noexcept nogil:
        cdef int64_t records_end = batch.filled
        cdef int64_t missing = -(self.position + records_end) & (JOURNAL_BLOCK_BYTES - 1)
        cdef uint8_t* tail = batch.base + records_end
        cdef uint8_t bound[16]
        cdef uint32_t crc
        if missing < JOURNAL_TAIL_BYTES:
            missing += JOURNAL_BLOCK_BYTES
        put_i64(bound, self.number)
        put_i64(bound + 8, self.position)
        crc = crc32c_update(crc32c_update(0, bound, 16), batch.base, records_end)
        memset(tail, 0, missing)
        put_i32(tail, JOURNAL_PADDING_MARK)
        put_i32(tail + 4, <int>(missing - 8))
        put_i32(tail + 8, SEAL_MAGIC)
        put_i32(tail + 12, <int>crc)
        put_i64(tail + 16, self.position)
        batch.filled += missing

    cdef int write_all(self, const uint8_t* base, int64_t size_bytes) noexcept nogil:
        cdef int64_t done = 0
        cdef ssize_t count
        cdef int64_t end = self.position + size_bytes
        cdef int result
        if end > self.allocated and self.allocate_bytes > 0:
            # Zeros that are there already spare the sync of each batch the file's new size.
            end = self.allocated + self.allocate_bytes + size_bytes
            result = allocate_range(self.fd, self.allocated, end)
            if result != 0:
                errno_set(result)
                return STATUS_IO_ERROR
            self.allocated = end
        while done < size_bytes:
            count = c_pwrite(self.fd, base + done, size_bytes - done, self.position + done)
            if count < 0 and errno == EINTR:
                continue
            if count <= 0:
                return STATUS_IO_ERROR
            done += count
        return STATUS_OK

    cdef void notify(self) noexcept nogil:
        notify_loop(&self.event)
