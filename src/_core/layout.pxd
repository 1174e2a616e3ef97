# The byte layouts of the RocketMQ store: offsets, magic codes, big-endian get and put, and the one
# parser of a commit-log record. See docs/formats/commit_log.md for the grammar.
from _core.status cimport ASSERT
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef enum:
    OS_PAGE_SIZE = 4096              # upstream's constant in its rules for a flush, on every system
    LEAST_PAGE_BYTES = 4096          # the smallest page of memory of any system; others are multiples of it
    MOST_PAGE_BYTES = 65536          # the largest that is tested; files grow in chunks of whole pages

# Commit-log record, IPv4 hosts: absolute positions that are read or patched in place.
cdef enum:
    AT_SIZE = 0
    AT_MAGIC = 4
    AT_BODY_CRC = 8
    AT_QUEUE_ID = 12
    AT_FLAG = 16
    AT_QUEUE_OFFSET = 20
    AT_PHYSICAL_OFFSET = 28
    AT_SYS_FLAG = 36
    AT_BORN_TIMESTAMP = 40
    AT_BORN_HOST = 48
    HOST_V4_BYTES = 8
    HOST_V6_BYTES = 20
    RECORD_FIXED_BYTES = 91          # V1, both hosts IPv4, empty body, topic and properties
    RECORD_MIN_BYTES = 91
    RECORD_HOSTLESS_BYTES = 74       # the same without hosts and topic length
    BLANK_MIN_BYTES = 8
    CRC_PROPERTY_BYTES = 20          # "__CRC32#" 0x01 ten digits 0x02

cdef enum:
    MAGIC_V1 = -626843481            # 0xDAA320A7
    MAGIC_V2 = -626843477            # 0xDAA320AB
    MAGIC_BLANK = -875286124         # 0xCBD43194

# sysFlag bits.
cdef enum:
    SYS_COMPRESSED = 0x1
    SYS_MULTI_TAGS = 0x2
    SYS_TRANSACTION_MASK = 0xC
    SYS_TRANSACTION_NONE = 0
    SYS_TRANSACTION_PREPARED = 0x4
    SYS_TRANSACTION_COMMIT = 0x8
    SYS_TRANSACTION_ROLLBACK = 0xC
    SYS_BORN_HOST_V6 = 0x10
    SYS_STORE_HOST_V6 = 0x20
    SYS_NEED_UNWRAP = 0x40
    SYS_INNER_BATCH = 0x80
    SYS_COMPRESSION_MASK = 0x700

cdef enum:
    PROPERTY_NAME_END = 1
    PROPERTY_END = 2

# Units of the index files.
cdef enum:
    CQ_UNIT_BYTES = 20               # physical offset i64, size i32, tags code i64
    BATCH_CQ_UNIT_BYTES = 46
    CQ_EXT_UNIT_MIN_BYTES = 20
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20

# Results of parse_record. Positive: a record; 0: the blank record at a file's end.
cdef enum:
    PARSED_RECORD = 1
    PARSED_BLANK = 0
    PARSED_SHORT = -1                # the bytes end before the record does
    PARSED_BAD_MAGIC = -2            # zeroes after the last record end here too
    PARSED_BAD_SIZE = -3             # the parts do not add up to totalSize, or a length is negative
    PARSED_BAD_CRC = -4              # body CRC or CRC property differs (only after check_record)
    PARSED_BAD_POSITION = -5         # stored physicalOffset is not the record's own
    PARSED_TORN = -6                 # zeroes where text must be: a page after the body was lost

# What check_record checks beyond the lengths.
cdef enum:
    CHECK_POSITION = 1
    CHECK_BODY_CRC = 2
    CHECK_CRC_PROPERTY = 4           # only where a record ends in the reserved block
    CHECK_ALL = 7                    # everything that a reader may check
    CHECK_TAIL = 8                   # after a crash: no page after the body was lost

cdef struct Record:
    int64_t queue_offset
    int64_t physical_offset          # as stored; the caller compares it with the offset it read
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_transaction_offset
    const uint8_t* start
    const uint8_t* born_host
    const uint8_t* store_host
    const uint8_t* body
    const uint8_t* topic
    const uint8_t* properties
    int32_t size_bytes
    int32_t magic
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t born_host_bytes          # 8 or 20, port included
    int32_t store_host_bytes
    int32_t body_bytes
    int32_t topic_bytes
    int32_t properties_bytes

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t be16(const uint8_t *p) {
        uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v);
    }
    static inline uint32_t be32(const uint8_t *p) {
        uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v);
    }
    static inline uint64_t be64(const uint8_t *p) {
        uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v);
    }
    static inline int16_t get_i16(const uint8_t *p) { return (int16_t)be16(p); }
    static inline int32_t get_i32(const uint8_t *p) { return (int32_t)be32(p); }
    static inline int64_t get_i64(const uint8_t *p) { return (int64_t)be64(p); }
    static inline void put_i16(uint8_t *p, int16_t x) {
        uint16_t v = __builtin_bswap16((uint16_t)x); memcpy(p, &v, 2);
    }
    static inline void put_i32(uint8_t *p, int32_t x) {
        uint32_t v = __builtin_bswap32((uint32_t)x); memcpy(p, &v, 4);
    }
    static inline int32_t get_i32_first(const uint8_t *p) {
        int32_t x = get_i32(p);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return x;
    }
    static inline void put_i32_last(uint8_t *p, int32_t x) {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        put_i32(p, x);
    }
    static inline void put_i64(uint8_t *p, int64_t x) {
        uint64_t v = __builtin_bswap64((uint64_t)x); memcpy(p, &v, 8);
    }
    """
    int16_t get_i16(const uint8_t* p) noexcept nogil
    int32_t get_i32(const uint8_t* p) noexcept nogil
    int64_t get_i64(const uint8_t* p) noexcept nogil
    void put_i16(uint8_t* p, int16_t value) noexcept nogil
    void put_i32(uint8_t* p, int32_t value) noexcept nogil
    # For readers in other processes: who gets the number sees all that was put before it.
    int32_t get_i32_first(const uint8_t* p) noexcept nogil
    void put_i32_last(uint8_t* p, int32_t value) noexcept nogil
    void put_i64(uint8_t* p, int64_t value) noexcept nogil


cdef inline int parse_record(const uint8_t* p, int64_t available, Record* r) noexcept nogil:
    """Read one record's fields; pointers go into the caller's bytes. Checks lengths, not digests."""
    cdef int64_t at, topic_prefix
    if available < 8:
        return PARSED_SHORT
    r.start = p
    r.size_bytes = get_i32(p)
    r.magic = get_i32(p + AT_MAGIC)
    if r.magic == MAGIC_BLANK:
        return PARSED_BLANK
    if r.magic != MAGIC_V1 and r.magic != MAGIC_V2:
        return PARSED_BAD_MAGIC
    if r.size_bytes < RECORD_MIN_BYTES:
        return PARSED_BAD_SIZE
    if r.size_bytes > available:
        return PARSED_SHORT
    r.body_crc = get_i32_first(p + AT_BODY_CRC)
    r.queue_id = get_i32(p + AT_QUEUE_ID)
    r.flag = get_i32(p + AT_FLAG)
    r.queue_offset = get_i64(p + AT_QUEUE_OFFSET)
    r.physical_offset = get_i64(p + AT_PHYSICAL_OFFSET)
    r.sys_flag = get_i32(p + AT_SYS_FLAG)
    r.born_timestamp = get_i64(p + AT_BORN_TIMESTAMP)
    r.born_host = p + AT_BORN_HOST
    r.born_host_bytes = HOST_V6_BYTES if r.sys_flag & SYS_BORN_HOST_V6 else HOST_V4_BYTES
    r.store_host_bytes = HOST_V6_BYTES if r.sys_flag & SYS_STORE_HOST_V6 else HOST_V4_BYTES
    topic_prefix = 1 if r.magic == MAGIC_V1 else 2
    # The size above is that of the shortest record; longer hosts need more before a field is read.
    if r.size_bytes < RECORD_HOSTLESS_BYTES + r.born_host_bytes + r.store_host_bytes + topic_prefix:
        return PARSED_BAD_SIZE
    at = AT_BORN_HOST + r.born_host_bytes
    r.store_timestamp = get_i64(p + at)
    r.store_host = p + at + 8
    at += 8 + r.store_host_bytes
    r.reconsume_times = get_i32(p + at)
    r.prepared_transaction_offset = get_i64(p + at + 4)
    r.body_bytes = get_i32(p + at + 12)
    at += 16
    # The tail after the body needs topic_prefix + 2 bytes at least.
    if r.body_bytes < 0 or r.body_bytes > r.size_bytes - at - topic_prefix - 2:
        return PARSED_BAD_SIZE
    r.body = p + at
    at += r.body_bytes
    r.topic_bytes = <int8_t>p[at] if topic_prefix == 1 else get_i16(p + at)
    at += topic_prefix
    if r.topic_bytes < 0 or r.topic_bytes > r.size_bytes - at - 2:
        return PARSED_BAD_SIZE
    r.topic = p + at
    at += r.topic_bytes
    r.properties_bytes = get_i16(p + at)
    at += 2
    if r.properties_bytes < 0 or at + r.properties_bytes != r.size_bytes:
        return PARSED_BAD_SIZE
    r.properties = p + at
    ASSERT(r.body + r.body_bytes < r.topic and r.properties + r.properties_bytes == p + r.size_bytes)
    return PARSED_RECORD


cdef inline bint next_property(const uint8_t** cursor, const uint8_t* end, const uint8_t** name,
                               int32_t* name_bytes, const uint8_t** value,
                               int32_t* value_bytes) noexcept nogil:
    """Step to the next property that Java keeps: non-empty name and value. False at the end."""
    cdef const uint8_t* item
    cdef const uint8_t* stop
    cdef const uint8_t* split
    while cursor[0] < end:
        item = cursor[0]
        stop = <const uint8_t*>memchr(item, PROPERTY_END, <size_t>(end - item))
        if stop == NULL:
            stop = end
        cursor[0] = stop + 1
        if stop - item < 3:
            continue
        split = <const uint8_t*>memchr(item, PROPERTY_NAME_END, <size_t>(stop - item))
        if split == NULL or split == item or split + 1 == stop:
            continue
        name[0] = item
        name_bytes[0] = <int32_t>(split - item)
        value[0] = split + 1
        value_bytes[0] = <int32_t>(stop - split - 1)
        return True
    return False


cdef inline bint find_property(const Record* r, const char* wanted, int32_t wanted_bytes,
                               const uint8_t** value, int32_t* value_bytes) noexcept nogil:
    """Find a property by name; the last of several wins, as in a Java map."""
    cdef const uint8_t* cursor = r.properties
    cdef const uint8_t* end = r.properties + r.properties_bytes
    cdef const uint8_t* name = NULL
    cdef const uint8_t* found = NULL
    cdef int32_t name_bytes = 0
    cdef int32_t found_bytes = 0
    cdef bint hit = False
    while next_property(&cursor, end, &name, &name_bytes, &found, &found_bytes):
        if name_bytes == wanted_bytes and memcmp(name, wanted, <size_t>wanted_bytes) == 0:
            value[0] = found
            value_bytes[0] = found_bytes
            hit = True
    return hit


cdef inline bint ends_in_crc_property(const uint8_t* properties, int64_t length) noexcept nogil:
    """Whether the last property is a CRC property in its 20 reserved bytes."""
    cdef const uint8_t* block = properties + length - CRC_PROPERTY_BYTES
    if length < CRC_PROPERTY_BYTES or block[CRC_PROPERTY_BYTES - 1] != PROPERTY_END:
        return False
    if length > CRC_PROPERTY_BYTES and (block - 1)[0] != PROPERTY_END:
        return False                 # the end of a longer name, or of a value
    return memcmp(block, b"__CRC32#\x01", 9) == 0


cdef inline int32_t java_hash(int32_t seed, const uint8_t* text, int64_t length) noexcept nogil:
    """Continue Java's String.hashCode over UTF-8 bytes (as the UTF-16 units they decode to)."""
    cdef uint32_t h = <uint32_t>seed
    cdef uint32_t point
    cdef int64_t i = 0
    cdef int more, _step
    while i < length:
        if text[i] < 0x80:
            h = 31 * h + text[i]
            i += 1
            continue
        if 0xC2 <= text[i] <= 0xDF:
            more = 1
            point = text[i] & 0x1F
        elif 0xE0 <= text[i] <= 0xEF:
            more = 2
            point = text[i] & 0x0F
        elif 0xF0 <= text[i] <= 0xF4:
            more = 3
            point = text[i] & 0x07
        else:
            more = 0
            point = 0xFFFD
        i += 1
        for _step in range(more):
            if i >= length or (text[i] & 0xC0) != 0x80:
                point = 0xFFFD
                break
            point = (point << 6) | (text[i] & 0x3F)
            i += 1
        if point >= 0x10000:
            point -= 0x10000
            h = 31 * h + (0xD800 + (point >> 10))
            h = 31 * h + (0xDC00 + (point & 0x3FF))
        else:
            h = 31 * h + point
    return <int32_t>h
