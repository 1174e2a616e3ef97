# The bytes of one commit-log record. A RecordTemplate has the fields that all records of a queue share, a
# Draft those of one message. See docs/formats/commit_log.md for the grammar.
from _core.layout cimport (AT_BODY_CRC, AT_BORN_HOST, AT_BORN_TIMESTAMP, AT_FLAG, AT_MAGIC,
                           AT_PHYSICAL_OFFSET, AT_QUEUE_ID, AT_QUEUE_OFFSET, AT_SYS_FLAG, CRC_PROPERTY_BYTES,
                           MAGIC_BLANK, MAGIC_V1, MAGIC_V2, PROPERTY_END, SYS_BORN_HOST_V6, SYS_STORE_HOST_V6,
                           ends_in_crc_property, get_i16, get_i32, put_i16, put_i32, put_i32_last,
                           put_i64)
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcpy, memset

import socket

from pyledger import errors

cdef enum:
    HEADER_V4_BYTES = 88             # up to and with bodyLength, both hosts IPv4
    HEADER_BYTES_MAX = 112
    TOPIC_BYTES_MAX = 255
    TOPIC_V1_UNITS_MAX = 127         # UTF-16 units; the length is a signed byte
    PROPERTIES_BYTES_MAX = 32767
    BATCH_ITEM_MIN_BYTES = 22


cdef struct RecordTemplate:
    uint8_t header[HEADER_BYTES_MAX]
    uint8_t topic_field[TOPIC_BYTES_MAX + 2]
    int32_t header_bytes
    int32_t topic_field_bytes
    int32_t at_store_timestamp
    int32_t host_flags


cdef struct Draft:
    const uint8_t* body
    const uint8_t* tags
    const uint8_t* keys
    const uint8_t* properties        # already name 0x01 value 0x02 …
    int64_t body_bytes
    int64_t tags_bytes               # 0: none
    int64_t keys_bytes
    int64_t properties_bytes
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_timestamp           # 0: the store timestamp
    int64_t store_timestamp          # 0: now
    int64_t prepared_transaction_offset
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    bint keep_queue_offset
    bint follows_clock               # one draft for many records: stamp again after others may have appended
    bint crc_property


cdef int64_t properties_length(const Draft* d) noexcept nogil:
    """Bytes of the properties field, the CRC property included."""
    cdef int64_t length = d.properties_bytes
    if d.tags_bytes > 0:
        length += d.tags_bytes + 6
    if d.keys_bytes > 0:
        length += d.keys_bytes + 6
    if d.crc_property:
        length += CRC_PROPERTY_BYTES
        if d.properties_bytes > 0 and d.properties[d.properties_bytes - 1] != PROPERTY_END:
            length += 1
    return length


cdef inline uint8_t* put_text(uint8_t* to, const char* name, int64_t name_bytes, const uint8_t* value,
                              int64_t value_bytes) noexcept nogil:
    """Write name 0x01 value 0x02; `name` comes with its 0x01."""
    memcpy(to, name, <size_t>name_bytes)
    memcpy(to + name_bytes, value, <size_t>value_bytes)
    to[name_bytes + value_bytes] = PROPERTY_END
    return to + name_bytes + value_bytes + 1


cdef inline void encode_record(uint8_t* to, const RecordTemplate* t, const Draft* d, int64_t properties_bytes,
                               int64_t size_bytes) noexcept nogil:
    """Write a whole record at `to`; every size has been checked."""
    cdef uint8_t* at
    cdef int32_t body_crc
    if t.header_bytes == HEADER_V4_BYTES:
        memcpy(to, t.header, HEADER_V4_BYTES)
    else:
        memcpy(to, t.header, <size_t>t.header_bytes)
    put_i32(to, <int32_t>size_bytes)
    put_i32(to + AT_FLAG, d.flag)
    put_i64(to + AT_QUEUE_OFFSET, d.queue_offset)
    put_i64(to + AT_PHYSICAL_OFFSET, d.physical_offset)
    put_i32(to + AT_SYS_FLAG, (d.sys_flag & ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)) | t.host_flags)
    put_i64(to + AT_BORN_TIMESTAMP, d.born_timestamp)
    put_i64(to + t.at_store_timestamp, d.store_timestamp)
    at = to + t.header_bytes
    put_i32(at - 16, d.reconsume_times)
    put_i64(at - 12, d.prepared_transaction_offset)
    put_i32(at - 4, <int32_t>d.body_bytes)
    # Digest the copied bytes: a body in shared memory may change at any time.
    if d.body_bytes > 0:             # the pointer of an empty body may be invalid
        memcpy(at, d.body, <size_t>d.body_bytes)
    body_crc = body_crc_of(at, <size_t>d.body_bytes)
    at += d.body_bytes
    memcpy(at, t.topic_field, <size_t>t.topic_field_bytes)
    at += t.topic_field_bytes
    put_i16(at, <short>properties_bytes)
    at += 2
    if properties_bytes > 0:
        at = encode_properties(at, d)
    ASSERT(at == to + size_bytes - d.crc_property * CRC_PROPERTY_BYTES)
    # A reader in another process that finds the right CRC finds topic and properties, too.
    put_i32_last(to + AT_BODY_CRC, body_crc)
    if d.crc_property:
        put_crc_property(to, size_bytes)


cdef uint8_t* encode_properties(uint8_t* at, const Draft* d) noexcept nogil:
    """TAGS and KEYS first, where Java's map usually has them, then the properties as given."""
    if d.tags_bytes > 0:
        at = put_text(at, b"TAGS\x01", 5, d.tags, d.tags_bytes)
    if d.keys_bytes > 0:
        at = put_text(at, b"KEYS\x01", 5, d.keys, d.keys_bytes)
    if d.properties_bytes > 0:
        memcpy(at, d.properties, <size_t>d.properties_bytes)
        at += d.properties_bytes
        if d.crc_property and (at - 1)[0] != PROPERTY_END:
            at[0] = PROPERTY_END
            at += 1
    return at


cdef void put_crc_property(uint8_t* record, int64_t size_bytes) noexcept nogil:
    """Fill the last 20 bytes: the CRC of all before them, its digits last first."""
    cdef uint8_t* at = record + size_bytes - CRC_PROPERTY_BYTES
    cdef uint32_t crc = <uint32_t>body_crc_of(record, <size_t>(size_bytes - CRC_PROPERTY_BYTES))
    cdef int i
    memcpy(at, b"__CRC32#\x01", 9)
    for i in range(10):
        at[9 + i] = <uint8_t>(48 + crc % 10)
        crc //= 10
    at[19] = PROPERTY_END


cdef void put_blank(uint8_t* to, int64_t remaining) noexcept nogil:
    """The blank record that ends a file: the bytes that remain, and its magic code."""
    put_i32(to, <int32_t>remaining)
    put_i32(to + AT_MAGIC, MAGIC_BLANK)


cdef int fill_template(RecordTemplate* t, bytes topic, bint long_topic, int32_t queue_id, bytes born_host,
                       bytes store_host) except -1:
    """Prepare what all records of one queue and host pair share. Hosts: address bytes, port (i32)."""
    cdef uint8_t* at
    cdef Py_ssize_t born_bytes = len(born_host)
    cdef Py_ssize_t store_bytes = len(store_host)
    cdef Py_ssize_t length_bytes = 2 if long_topic else 1
    for i in range(HEADER_BYTES_MAX):
        t.header[i] = 0
    put_i32(t.header + AT_MAGIC, MAGIC_V2 if long_topic else MAGIC_V1)
    put_i32(t.header + AT_QUEUE_ID, queue_id)
    memcpy(t.header + AT_BORN_HOST, PyBytes_AS_STRING(born_host), <size_t>born_bytes)
    t.at_store_timestamp = <int32_t>(AT_BORN_HOST + born_bytes)
    at = t.header + t.at_store_timestamp + 8
    memcpy(at, PyBytes_AS_STRING(store_host), <size_t>store_bytes)
    t.header_bytes = <int32_t>(at + store_bytes + 16 - t.header)
    t.host_flags = SYS_BORN_HOST_V6 if born_bytes == 20 else 0
    if store_bytes == 20:
        t.host_flags |= SYS_STORE_HOST_V6
    if long_topic:
        put_i16(t.topic_field, <short>len(topic))
    else:
        t.topic_field[0] = <uint8_t>len(topic)
    memcpy(t.topic_field + length_bytes, PyBytes_AS_STRING(topic), <size_t>len(topic))
    t.topic_field_bytes = <int32_t>(length_bytes + len(topic))
    return 0


cdef bytes encode_host(host):
    """An (address literal, port) pair as the record holds it: 4 or 16 address bytes, then the port as i32."""
    address, port = host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        packed = socket.inet_pton(family, address)
    except OSError as error:
        raise errors.IllegalMessageError(f"host {address!r} is not an IPv4 or IPv6 literal") from error
    if not 0 <= port <= 65535:
        raise errors.IllegalMessageError(f"port {port} is outside [0, 65535]")
    return packed + int(port).to_bytes(4, "big")


cdef int borrow_text(value, str what, const uint8_t** text, int64_t* text_bytes) except -1:
    """Point at the UTF-8 form of a property value, which Python keeps with the string."""
    cdef Py_ssize_t length = 0
    cdef const char* utf8
    try:
        utf8 = PyUnicode_AsUTF8AndSize(value, &length)
    except UnicodeEncodeError as error:
        raise errors.IllegalMessageError(f"{what} {value!r} cannot be encoded as UTF-8") from error
    if memchr(utf8, PROPERTY_END, <size_t>length) != NULL:
        raise errors.IllegalMessageError(f"{what} {value!r} holds the separator 0x02")
    text[0] = <const uint8_t*>utf8
    text_bytes[0] = length
    return 0


cdef bytes properties_to_bytes(properties):
    """A mapping as name 0x01 value 0x02 …; bytes stay as they are.

    A CRC property is left out: it is of another record, and a reader would take this one for damaged.
    """
    cdef list parts = []
    cdef bytes encoded
    if type(properties) is bytes:
        encoded = properties
        if b"__CRC32#\x01" in encoded:
            kept = [item for item in encoded.split(b"\x02") if not item.startswith(b"__CRC32#\x01")]
            encoded = b"\x02".join(kept)
        return encoded
    for name, value in properties.items():
        if not name or not value:
            raise errors.IllegalMessageError(f"property {name!r} needs a name and a value, both not empty")
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise errors.IllegalMessageError(f"property {name!r} holds a separator, 0x01 or 0x02")
        if name != "__CRC32#":
            parts.append(f"{name}\x01{value}\x02")
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise errors.IllegalMessageError("a property cannot be encoded as UTF-8") from error


cdef inline void start_draft(Draft* draft, bint crc_property) noexcept nogil:
    memset(draft, 0, sizeof(Draft))
    draft.crc_property = crc_property


cdef bint is_long(str topic, bytes topic_bytes) except -1:
    """Whether the second layout is needed. Upstream counts UTF-16 units; a V1 length is a signed byte too."""
    return len(topic.encode("utf-16-le")) // 2 > TOPIC_V1_UNITS_MAX or len(topic_bytes) > TOPIC_V1_UNITS_MAX


cdef int64_t read_batch_item(const uint8_t* batch, int64_t at, int64_t end, Draft* d) except -1:
    """Point the draft at one message of a batch body; where the next one starts."""
    cdef int64_t size_bytes, body_bytes, properties_bytes
    if end - at >= BATCH_ITEM_MIN_BYTES:
        size_bytes = get_i32(batch + at)
        body_bytes = get_i32(batch + at + 16)
        if (BATCH_ITEM_MIN_BYTES <= size_bytes <= end - at
                and 0 <= body_bytes <= size_bytes - BATCH_ITEM_MIN_BYTES):
            properties_bytes = get_i16(batch + at + 20 + body_bytes)
            if properties_bytes == size_bytes - BATCH_ITEM_MIN_BYTES - body_bytes:
                d.flag = get_i32(batch + at + 12)
                d.body = batch + at + 20
                d.body_bytes = body_bytes
                d.properties = batch + at + 22 + body_bytes
                d.properties_bytes = properties_bytes
                if ends_in_crc_property(d.properties, properties_bytes):
                    d.properties_bytes -= CRC_PROPERTY_BYTES
                return at + size_bytes
    raise errors.IllegalMessageError(f"the batch does not add up at byte {at} of {end}")


cdef int64_t count_batch(const uint8_t* batch, int64_t batch_bytes) except -1:
    """The number of messages in a batch body."""
    cdef Draft draft
    cdef int64_t at = 0
    cdef int64_t count = 0
    while at < batch_bytes:
        at = read_batch_item(batch, at, batch_bytes, &draft)
        count += 1
    if count == 0:
        raise errors.IllegalMessageError("the batch is empty")
    return count


def copy_and_digest(target, list bodies):
    """Copy bodies one after the other into a writable buffer and digest each; the last CRC."""
    cdef Py_buffer view
    cdef int64_t at = 0
    cdef int32_t crc = 0
    cdef bytes body
    PyObject_GetBuffer(target, &view, PyBUF_WRITABLE)
    try:
        for body in bodies:
            if PyBytes_GET_SIZE(body) > view.len - at:
                raise ValueError("the bodies do not fit into the target")
            crc = body_crc_of(<const uint8_t*>PyBytes_AS_STRING(body), <size_t>PyBytes_GET_SIZE(body))
            memcpy(<uint8_t*>view.buf + at, PyBytes_AS_STRING(body), <size_t>PyBytes_GET_SIZE(body))
            at += PyBytes_GET_SIZE(body)
    finally:
        PyBuffer_Release(&view)
    return crc
