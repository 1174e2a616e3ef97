# Column: the Arrow buffers of one column while rows are put to them.
from _core.layout cimport MAGIC_V1, Record
from _core.text cimport is_utf8, replace_ill_formed
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

cdef enum:
    # Kinds of columns; the order is that of _COLUMN_KINDS.
    TOPIC, QUEUE_ID, QUEUE_OFFSET, STORE_TIMESTAMP, BORN_TIMESTAMP, TAGS, KEYS, BODY, PROPERTIES
    PHYSICAL_OFFSET, STORE_SIZE, LAYOUT, FLAG, SYS_FLAG, RECONSUME_TIMES, BORN_HOST, STORE_HOST, MSG_ID
    BODY_CRC, BODY_LENGTH, TAGS_CODE, PREPARED_TRANSACTION_OFFSET

cdef tuple _COLUMN_KINDS = (
    "topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "tags", "keys", "body",
    "properties", "physicalOffset", "storeSize", "layout", "flag", "sysFlag", "reconsumeTimes", "bornHost",
    "storeHost", "msgId", "bodyCRC", "bodyLength", "tagsCode", "preparedTransactionOffset",
)


cdef struct Column:
    int kind
    int width                        # 4 or 8: fixed; 0: text or bytes with 32-bit offsets
    Buffer validity                  # only tags and keys may be null
    Buffer values                    # fixed values, or offsets
    Buffer data
    Buffer name_offsets              # of the properties' map; its values are in value_offsets and data
    Buffer names
    Buffer value_offsets
    int64_t null_count


cdef inline int put_value(Column* c, const uint8_t* value, int64_t length) noexcept nogil:
    if put_bytes(&c.data, value, length) != 0:
        return -1
    put_end(&c.values, c.data.size)
    return 0


cdef inline int put_nullable(Column* c, Text value, int64_t row) noexcept nogil:
    if value.text == NULL:
        c.null_count += 1
        put_end(&c.values, c.data.size)
        return 0
    c.validity.data[row >> 3] |= <uint8_t>(1 << (row & 7))
    return put_value(c, value.text, value.length)


cdef inline int put_topic(Column* c, const Record* r) noexcept nogil:
    if is_utf8(r.topic, r.topic_bytes):
        return put_value(c, r.topic, r.topic_bytes)
    if reserve(&c.data, 3 * r.topic_bytes) != 0:
        return -1
    c.data.size += replace_ill_formed(c.data.data + c.data.size, r.topic, r.topic_bytes)
    put_end(&c.values, c.data.size)
    return 0


cdef int put_address(Column* c, const Record* r) noexcept nogil:
    """A host, or the message id, which names one."""
    cdef char text[64]
    cdef int length
    if c.kind == BORN_HOST:
        length = write_host(r.born_host, r.born_host_bytes, text)
    elif c.kind == STORE_HOST:
        length = write_host(r.store_host, r.store_host_bytes, text)
    else:
        length = write_message_id(r, text)
    return put_value(c, <const uint8_t*>text, length)


cdef inline int put_properties(Column* c, const PropertyList* found, int64_t text_bytes) noexcept nogil:
    """All properties of a record, which have `text_bytes` at most."""
    cdef int i
    cdef const Property* p
    if (reserve(&c.names, text_bytes) != 0 or reserve(&c.data, text_bytes) != 0
            or reserve(&c.name_offsets, 4 * found.count) != 0
            or reserve(&c.value_offsets, 4 * found.count) != 0):
        return -1
    for i in range(found.count):
        p = &found.items[i]
        copy_bytes(c.names.data + c.names.size, p.name.text, <size_t>p.name.length)
        c.names.size += p.name.length
        put_end(&c.name_offsets, c.names.size)
        copy_bytes(c.data.data + c.data.size, p.value.text, <size_t>p.value.length)
        c.data.size += p.value.length
        put_end(&c.value_offsets, c.data.size)
    put_end(&c.values, c.name_offsets.size // 4 - 1)
    return 0


cdef inline int64_t micros(int64_t ms) noexcept nogil:
    """Microseconds; a time outside 64 bits of them is clamped."""
    return max(INT64_MIN // 1000, min(INT64_MAX // 1000, ms)) * 1000


cdef inline int64_t wide_value(int kind, const Record* r) noexcept nogil:
    if kind == QUEUE_OFFSET:
        return r.queue_offset
    if kind == STORE_TIMESTAMP:
        return micros(r.store_timestamp)
    if kind == BORN_TIMESTAMP:
        return micros(r.born_timestamp)
    if kind == PHYSICAL_OFFSET:
        return r.physical_offset
    if kind == TAGS_CODE:
        return tags_code_of(r)
    return r.prepared_transaction_offset


cdef inline int32_t narrow_value(int kind, const Record* r) noexcept nogil:
    if kind == QUEUE_ID:
        return r.queue_id
    if kind == STORE_SIZE:
        return r.size_bytes
    if kind == LAYOUT:
        return 1 if r.magic == MAGIC_V1 else 2
    if kind == FLAG:
        return r.flag
    if kind == SYS_FLAG:
        return r.sys_flag
    if kind == RECONSUME_TIMES:
        return r.reconsume_times
    if kind == BODY_CRC:
        return r.body_crc
    return r.body_bytes
