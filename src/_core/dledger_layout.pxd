# Byte layouts of a DLedger log: entries and index units, all big-endian, and the one parser of an entry.
# See docs/formats/dledger.md.
from _core.layout cimport (PARSED_BAD_MAGIC, PARSED_BAD_SIZE, PARSED_BLANK, PARSED_RECORD, PARSED_SHORT,
                           get_i32, get_i64, put_i32, put_i64)
from _core.status cimport ASSERT
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    ENTRY_HEAD_BYTES = 48
    ENTRY_BYTES_MAX = 4194304        # of Java's encode buffer
    FILLER_BYTES_MIN = 8             # kept free at the end of every data file
    INDEX_UNIT_BYTES = 32

# Values of `magic`.
cdef enum:
    ENTRY_FILLER = -1
    ENTRY_NORMAL = 1
    ENTRY_NOOP = 2                   # generation B only

cdef struct Entry:
    const uint8_t* start
    const uint8_t* body
    int64_t index
    int64_t term
    int64_t pos                      # where its leader wrote it
    int32_t magic
    int32_t size_bytes
    int32_t channel
    int32_t chain_crc
    int32_t body_crc
    int32_t body_bytes


cdef inline int parse_entry(const uint8_t* p, int64_t available, Entry* e) noexcept nogil:
    """PARSED_RECORD, PARSED_BLANK for a filler (its length in `size_bytes`), or why it is neither."""
    if available < FILLER_BYTES_MIN:
        return PARSED_SHORT
    e.start = p
    e.magic = get_i32(p)
    e.size_bytes = get_i32(p + 4)
    if e.magic == ENTRY_FILLER:
        return PARSED_BLANK
    if e.magic != ENTRY_NORMAL and e.magic != ENTRY_NOOP:
        return PARSED_BAD_MAGIC
    if e.size_bytes < ENTRY_HEAD_BYTES:
        return PARSED_BAD_SIZE
    if e.size_bytes > available:
        return PARSED_SHORT
    e.body_bytes = get_i32(p + 44)
    if e.body_bytes != e.size_bytes - ENTRY_HEAD_BYTES:
        return PARSED_BAD_SIZE
    e.index = get_i64(p + 8)
    e.term = get_i64(p + 16)
    e.pos = get_i64(p + 24)
    e.channel = get_i32(p + 32)
    e.chain_crc = get_i32(p + 36)
    e.body_crc = get_i32(p + 40)
    e.body = p + ENTRY_HEAD_BYTES
    ASSERT(e.body + e.body_bytes == p + e.size_bytes and e.size_bytes <= available)
    return PARSED_RECORD


cdef inline void put_entry_head(uint8_t* p, const Entry* e) noexcept nogil:
    put_i32(p, e.magic)
    put_i32(p + 4, e.size_bytes)
    put_i64(p + 8, e.index)
    put_i64(p + 16, e.term)
    put_i64(p + 24, e.pos)
    put_i32(p + 32, e.channel)
    put_i32(p + 36, e.chain_crc)
    put_i32(p + 40, e.body_crc)
    put_i32(p + 44, e.body_bytes)


cdef inline void put_index_unit(uint8_t* p, const Entry* e, int64_t offset) noexcept nogil:
    put_i32(p, e.magic)
    put_i64(p + 4, offset)
    put_i32(p + 12, e.size_bytes)
    put_i64(p + 16, e.index)
    put_i64(p + 24, e.term)


cdef inline bint unit_agrees(const uint8_t* p, const Entry* e, int64_t offset) noexcept nogil:
    """Whether an index unit is that of an entry. Java's leaders of generation B give no-ops magic 1."""
    cdef int32_t magic = get_i32(p)
    return ((magic == e.magic or (magic == ENTRY_NORMAL and e.magic == ENTRY_NOOP))
            and get_i64(p + 4) == offset and get_i32(p + 12) == e.size_bytes
            and get_i64(p + 16) == e.index and get_i64(p + 24) == e.term)
