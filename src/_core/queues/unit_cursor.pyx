# UnitCursor: the end of a queue's units, as plain C, so that dispatch needs no interpreter lock.
from _core.layout cimport RECORD_MIN_BYTES
from _core.posix cimport MADV_NORMAL, MADV_RANDOM, madvise, page_bytes, page_floor, store_release
from _core.status cimport STATUS_END_OF_FILE, STATUS_IO_ERROR
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    PUT_APPENDED = 1
    PUT_PRESENT = 0                  # the queue has this unit already
    PUT_GAP = -20                    # units before this one are missing: fill, then put again
    SMALL_CHUNK_BYTES = 4096         # first chunk of a file, at least one page: most queues get few messages
    FIRST_CHUNK_BYTES = 65536
    CHUNK_BYTES = 1048576
    GAP_UNITS_FREE = 1000

# The write end of a queue as plain C, so that dispatch can append without the interpreter lock.
cdef struct UnitCursor:
    uint8_t* base                    # mapping of the last file; NULL: there is none
    const char* path                 # of the last file, for allocation
    int64_t* wrote                   # positions of the last file's MappedFile
    int64_t* committed
    int64_t file_size
    int64_t position                 # next free byte of the last file
    int64_t reserved                 # bytes of the last file with allocated blocks
    int64_t end_where                # published: bytes of units in the queue, deleted ones included
    int64_t next_queue_offset
    int64_t max_physical_offset      # plain: end of the last record named; batch: its start; -1 none
    int64_t filled_units             # queue offsets without records that were passed over
    int32_t unit_bytes
    int32_t error                    # errno of a failed allocation


cdef inline int64_t gap_units_max(int64_t distance_bytes) noexcept nogil:
    """Units that may be missing between two records so far apart; a greater jump of offsets is damage."""
    return GAP_UNITS_FREE + (distance_bytes // RECORD_MIN_BYTES if distance_bytes > 0 else 0)


cdef inline void read_ahead(uint8_t* base, int64_t size_bytes, int64_t used_bytes) noexcept nogil:
    """Most queues are short: what the kernel would read around their first page is zeroes, and memory."""
    if base != NULL:
        madvise(base, <size_t>size_bytes, MADV_RANDOM if used_bytes < FIRST_CHUNK_BYTES else MADV_NORMAL)


cdef inline int64_t chunk_at(int64_t position) noexcept nogil:
    cdef int64_t small = max(<int64_t>SMALL_CHUNK_BYTES, page_bytes)
    if position < small:
        return small
    return FIRST_CHUNK_BYTES if position < CHUNK_BYTES else CHUNK_BYTES


cdef int reserve_chunk(UnitCursor* c) noexcept nogil:
    """Allocate the next chunk of the last file: writing to a hole is a SIGBUS if the disk is full."""
    cdef int64_t begin = c.reserved if c.reserved else page_floor(c.position)
    cdef int64_t chunk = chunk_at(c.position)
    cdef int64_t end = ((c.position + c.unit_bytes - 1) // chunk + 1) * chunk
    if end > c.file_size:
        end = c.file_size
    c.error = allocate_by_path(c.path, begin, end)
    if c.error != 0:
        return STATUS_IO_ERROR
    # Most queues never leave their first chunk: those pages are touched only as they are written.
    if begin >= FIRST_CHUNK_BYTES:
        read_ahead(c.base, c.file_size, begin)
        populate_range(c.base, page_floor(begin), end)
    c.reserved = end
    return 0


cdef inline uint8_t* next_unit(UnitCursor* c, int* status) noexcept nogil:
    """Pointer to the next unit; NULL with a status if it has no space yet."""
    if c.position + c.unit_bytes > c.reserved or c.base == NULL:
        if c.base == NULL or c.position == c.file_size:
            status[0] = STATUS_END_OF_FILE
            return NULL
        ASSERT(c.position + c.unit_bytes <= c.file_size)
        while c.position + c.unit_bytes > c.reserved:
            status[0] = reserve_chunk(c)
            if status[0] < 0:
                return NULL
    return c.base + c.position


cdef inline void publish_unit(UnitCursor* c, int64_t next_queue_offset,
                              int64_t max_physical_offset) noexcept nogil:
    ASSERT(c.base != NULL)
    ASSERT(c.position + c.unit_bytes <= c.reserved)
    c.position += c.unit_bytes
    c.max_physical_offset = max_physical_offset
    store_release(c.wrote, c.position)
    store_release(c.committed, c.position)
    store_release(&c.end_where, c.end_where + c.unit_bytes)
    store_release(&c.next_queue_offset, next_queue_offset)
