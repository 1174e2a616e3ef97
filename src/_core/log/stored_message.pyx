# StoredMessage: one record of the log, decoded attribute by attribute on access. It points into the mapping
# of its log view, which it keeps alive.
from _core.layout cimport (CHECK_ALL, CHECK_POSITION, CQ_UNIT_BYTES, HOST_V4_BYTES, MAGIC_V1, PARSED_RECORD,
                           SYS_COMPRESSED, SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK, SYS_TRANSACTION_NONE,
                           Record, find_property, get_i32, get_i64, java_hash, next_property, parse_record)
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

cimport cython

from pyledger import errors

cdef extern from *:
    """
    /* Delay levels 1 to 18 of upstream's default messageDelayLevel, in ms. */
    static const int64_t DELAY_LEVELS_MS[19] = {
        0, 1000, 5000, 10000, 30000, 60000, 120000, 180000, 240000, 300000, 360000, 420000, 480000, 540000,
        600000, 1200000, 1800000, 3600000, 7200000};
    """
    const int64_t DELAY_LEVELS_MS[19]

cdef enum:
    DELAY_LEVEL_MAX = 18
    PLAIN_BODY_LIMIT_BYTES = 67108864


# The codecs are Python packages that import this module, so they are passed in.
cdef object _body_decompressor = None


def set_body_decompressor(function):
    """Set the function that decompresses bodies; see _core.pyi."""
    global _body_decompressor
    _body_decompressor = function


cdef int64_t parse_number(const uint8_t* text, int32_t length) noexcept nogil:
    """A decimal number with or without a sign, as in Java's Integer.parseInt; 0 when it is none."""
    cdef int32_t i = 0
    cdef int64_t number = 0
    if length > 11:
        return 0
    if text[0] == 45 or (text[0] == 43 and length > 1):
        i = 1
    while i < length:
        if not 48 <= text[i] <= 57:
            return 0
        number = number * 10 + (text[i] - 48)
        i += 1
    return -number if text[0] == 45 else number


cdef int64_t delay_level_of(const Record* r) noexcept nogil:
    """The DELAY property as Java's Integer.parseInt reads it; 0 when absent or no number."""
    cdef const uint8_t* text = NULL
    cdef int32_t length = 0
    if not find_property(r, b"DELAY", 5, &text, &length):
        return 0
    return parse_number(text, length)


cdef int64_t tags_code_of(const Record* r) noexcept nogil:
    """What a consume queue unit holds: the hash of TAGS, or in the delay topic the delivery time."""
    cdef const uint8_t* tags = NULL
    cdef int32_t length = 0
    cdef int64_t level
    if r.topic_bytes == 19 and memcmp(r.topic, b"SCHEDULE_TOPIC_XXXX", 19) == 0:
        level = delay_level_of(r)
        if level > 0:
            return r.store_timestamp + DELAY_LEVELS_MS[min(level, <int64_t>DELAY_LEVEL_MAX)]
    if not find_property(r, b"TAGS", 4, &tags, &length):
        return 0
    return java_hash(0, tags, length)


cdef inline bint is_indexed(const Record* r) noexcept nogil:
    """Whether a consume queue names the record: prepared and rollback records are in none."""
    cdef int kind = r.sys_flag & SYS_TRANSACTION_MASK
    return kind == SYS_TRANSACTION_NONE or kind == SYS_TRANSACTION_COMMIT


cdef int write_host(const uint8_t* host, int32_t host_bytes, char* out) noexcept nogil:
    """`ip:port` as Java prints it: IPv6 in brackets, never shortened, mapped IPv4 as IPv4."""
    cdef int i
    cdef int n = 0
    cdef int port = get_i32(host + host_bytes - 4)
    cdef bint v4 = host_bytes == HOST_V4_BYTES
    if not v4 and memcmp(host, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
        host += 12
        v4 = True
    if v4:
        for i in range(4):
            n += write_decimal(out + n, host[i])
            out[n] = 46 if i < 3 else 58
            n += 1
    else:
        out[0] = 91
        n = 1
        for i in range(8):
            n += write_hex(out + n, (host[2 * i] << 8) | host[2 * i + 1])
            out[n] = 58 if i < 7 else 93
            n += 1
        out[n] = 58
        n += 1
    return n + write_decimal(out + n, port)


cdef int write_decimal(char* out, int64_t value) noexcept nogil:
    cdef char digits[20]
    cdef int count = 0
    cdef int n = 0
    if value < 0:
        out[0] = 45
        n = 1
        value = -value
    while True:
        digits[count] = <char>(48 + value % 10)
        value //= 10
        count += 1
        if value == 0:
            break
    while count:
        count -= 1
        out[n] = digits[count]
        n += 1
    return n


cdef int write_hex(char* out, int value) noexcept nogil:
    """16 bits in lower case without leading zeroes, a group of an IPv6 address."""
    cdef int n = 0
    cdef int shift
    for shift in range(12, -4, -4):
        if value >> shift or shift == 0:
            out[n] = b"0123456789abcdef"[(value >> shift) & 15]
            n += 1
    return n


cdef int write_message_id(const Record* r, char* out) noexcept nogil:
    """RocketMQ's offset message id: store host and physical offset in upper-case hex, 32 or 56 characters."""
    cdef int n = 0
    cdef int i
    cdef uint8_t byte
    for i in range(r.store_host_bytes + 8):
        byte = r.store_host[i] if i < r.store_host_bytes else r.start[28 + i - r.store_host_bytes]
        out[n] = b"0123456789ABCDEF"[byte >> 4]
        out[n + 1] = b"0123456789ABCDEF"[byte & 15]
        n += 2
    return n


cdef inline str decode_text(const uint8_t* text, int64_t length):
    """UTF-8 as Java decodes it: what is ill-formed becomes U+FFFD."""
    return PyUnicode_DecodeUTF8(<const char*>text, length, "replace")


cdef dict properties_of(const Record* record):
    """Names and values of a record as Java keeps them: empty ones dropped, the last of several wins."""
    cdef const uint8_t* cursor = record.properties
    cdef const uint8_t* end = cursor + record.properties_bytes
    cdef const uint8_t* name = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t name_bytes = 0
    cdef int32_t value_bytes = 0
    cdef dict found = {}
    while next_property(&cursor, end, &name, &name_bytes, &value, &value_bytes):
        found[decode_text(name, name_bytes)] = decode_text(value, value_bytes)
    return found


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class StoredMessage:
    """One record of the log. Attributes are decoded when read; the record's file stays mapped meanwhile."""

    cdef LogView view
    cdef Record record
    cdef readonly int64_t physical_offset
    cdef dict _properties
    cdef bint pinned                 # in memory, of a cold segment

    def __init__(self):
        raise TypeError("a StoredMessage is handed out by a reader or a store, not made")

    def __dealloc__(self):
        if self.pinned:
            self.view.pin_record(self.physical_offset, self.record.size_bytes, -1)

    cdef object sound(self, value):
        """A value that was read from the record, unless its bytes are gone."""
        cdef int64_t end = self.physical_offset + self.record.size_bytes
        self.view.check_intact(self.physical_offset, end, True)
        return value

    @property
    def topic(self):
        return self.sound(decode_text(self.record.topic, self.record.topic_bytes))

    @property
    def queue_id(self):
        return self.record.queue_id

    @property
    def queue_offset(self):
        return self.record.queue_offset

    @property
    def store_size(self):
        return self.record.size_bytes

    @property
    def layout(self):
        return 1 if self.record.magic == MAGIC_V1 else 2

    @property
    def flag(self):
        return self.record.flag

    @property
    def sys_flag(self):
        return self.record.sys_flag

    @property
    def born_timestamp(self):
        return self.record.born_timestamp

    @property
    def store_timestamp(self):
        return self.record.store_timestamp

    @property
    def born_host(self):
        cdef char text[64]
        cdef int length = write_host(self.record.born_host, self.record.born_host_bytes, text)
        return self.sound(text[:length].decode("ascii"))

    @property
    def store_host(self):
        cdef char text[64]
        cdef int length = write_host(self.record.store_host, self.record.store_host_bytes, text)
        return self.sound(text[:length].decode("ascii"))

    @property
    def reconsume_times(self):
        return self.record.reconsume_times

    @property
    def prepared_transaction_offset(self):
        return self.record.prepared_transaction_offset

    @property
    def body_crc(self):
        return self.record.body_crc

    @property
    def body_length(self):
        return self.record.body_bytes

    @property
    def tags_code(self):
        return self.sound(tags_code_of(&self.record))

    @property
    def transaction_type(self):
        """0 none, 4 prepared, 8 commit, 12 rollback: the bits of `sys_flag`."""
        return self.record.sys_flag & SYS_TRANSACTION_MASK

    @property
    def is_indexed(self):
        """Whether a consume queue names the record: prepared and rollback records are in none."""
        return is_indexed(&self.record)

    @property
    def body(self):
        """The stored bytes, without decompressing them."""
        return self.sound(PyBytes_FromStringAndSize(<const char*>self.record.body, self.record.body_bytes))

    @property
    def body_view(self):
        """The stored bytes without a copy; the file cannot be closed while the view lives."""
        cdef int64_t body_offset = self.physical_offset + (self.record.body - self.record.start)
        return self.view.view(body_offset, self.record.body_bytes)

    @property
    def plain_body(self):
        """The body, decompressed if `sys_flag` marks it as compressed; at most 64 MiB."""
        return self.decompress_body()

    def decompress_body(self, int64_t limit_bytes=PLAIN_BODY_LIMIT_BYTES):
        """The body, decompressed if `sys_flag` marks it as compressed."""
        if not self.record.sys_flag & SYS_COMPRESSED:
            return self.body
        if _body_decompressor is None:
            raise errors.InvariantError("no body decompressor is set; import pyledger.store")
        place = f"message at physical offset {self.physical_offset}"
        try:
            return self.sound(_body_decompressor(self.body_view, self.record.sys_flag,
                                                 limit_bytes=limit_bytes, place=place))
        except errors.CorruptBodyError:
            self.sound(None)
            raise

    @property
    def properties(self):
        """All properties as Java keeps them: empty names and values dropped, the last of several wins."""
        if self._properties is None:
            self._properties = self.sound(properties_of(&self.record))
        return self._properties

    cdef str _property(self, const char* name, int32_t name_bytes):
        cdef const uint8_t* value = NULL
        cdef int32_t value_bytes = 0
        if not find_property(&self.record, name, name_bytes, &value, &value_bytes):
            return self.sound(None)
        return self.sound(decode_text(value, value_bytes))

    @property
    def tags(self):
        return self._property(b"TAGS", 4)

    @property
    def keys(self):
        return self._property(b"KEYS", 4)

    @property
    def unique_key(self):
        return self._property(b"UNIQ_KEY", 8)

    @property
    def msg_id(self):
        """RocketMQ's offset message id: store host and physical offset in upper-case hex."""
        cdef char text[64]
        return self.sound(text[:write_message_id(&self.record, text)].decode("ascii"))

    @property
    def record_view(self):
        """The whole record as stored, without a copy: what a pull sends."""
        return self.view.view(self.physical_offset, self.record.size_bytes)

    def __reduce__(self):
        raise TypeError("a StoredMessage points into a mapped file and cannot be pickled; "
                        "pickle the attributes you need, such as `body` and `properties`")

    def __repr__(self):
        return (f"StoredMessage(topic={self.topic!r}, queue_id={self.queue_id}, "
                f"queue_offset={self.queue_offset}, physical_offset={self.physical_offset})")


cdef StoredMessage wrap_record(LogView view, const Record* record, int64_t offset):
    """A message over a record that the caller has parsed and checked."""
    cdef StoredMessage message = StoredMessage.__new__(StoredMessage)
    message.view = view
    message.record = record[0]
    message.physical_offset = offset
    if view.has_cold:
        view.pin_record(offset, record.size_bytes, 1)
        message.pinned = True
    return message


cdef StoredMessage read_valid(LogView view, int64_t offset, int checks, int64_t size_bytes=-1):
    """The valid message at an offset, of this size unless that is -1; raises when there is none."""
    cdef Record record
    cold_enter()
    try:
        parse_valid(view, offset, checks, &record)
        if size_bytes >= 0 and record.size_bytes != size_bytes:
            raise errors.CorruptRecordError(view.path_at(offset), offset,
                                            "the queue unit that names it gives it another size")
        return wrap_record(view, &record, offset)
    finally:
        cold_leave()


cdef int parse_valid(LogView view, int64_t offset, int checks, Record* record) except -128:
    """Parse and check the record at an offset; raise unless it is valid."""
    cdef int64_t available = 0
    cdef const uint8_t* where = view.at(offset, &available)
    cdef int status
    if where == NULL:
        raise errors.OffsetOutOfRangeError(offset, view.start_offset, view.end_offset)
    status = parse_record(where, available, record)
    if status == PARSED_RECORD:
        status = check_record(record, offset, checks)
    view.check_intact(offset, offset + 1)
    if status != PARSED_RECORD:
        raise errors.CorruptRecordError(view.path_at(offset), offset, _PROBLEMS[status])
    return status


def read_message(LogView view not None, int64_t offset, *, bint check=True):
    """The message at a physical offset."""
    return read_valid(view, offset, CHECK_ALL if check else CHECK_POSITION)


def read_messages(LogView view not None, units, *, bint check=True):
    """The messages that consume queue units name, in their order."""
    cdef Py_buffer buffer
    cdef int64_t i, offset
    cdef int32_t size_bytes
    cdef int checks = CHECK_ALL if check else CHECK_POSITION
    cdef list messages = []
    PyObject_GetBuffer(units, &buffer, PyBUF_SIMPLE)
    try:
        for i in range(buffer.len // CQ_UNIT_BYTES):
            offset = get_i64(<const uint8_t*>buffer.buf + i * CQ_UNIT_BYTES)
            size_bytes = get_i32(<const uint8_t*>buffer.buf + i * CQ_UNIT_BYTES + 8)
            messages.append(read_valid(view, offset, checks, max(size_bytes, 0)))
    finally:
        PyBuffer_Release(&buffer)
    return messages


@cython.final
cdef class MessageScan:
    """Iterator over the valid records of [start, end) in log order; `stop` has where and why it ended."""

    cdef LogView view
    cdef ScanState state
    cdef int64_t end
    cdef int checks
    cdef int status

    def __init__(self, LogView view not None, int64_t start, end=None, *, bint check=True):
        self.view = view
        self.state = [start, 0, 0, -1, 0, NULL]
        self.end = view.end_offset if end is None else end
        self.checks = CHECK_ALL if check else CHECK_POSITION
        self.status = SCAN_PAUSED

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record
        cdef int64_t before
        cold_enter()
        try:
            before = self.state.offset
            self.status = next_record(self.view, self.end, self.checks, &self.state, &record)
            self.view.check_intact(before, self.state.offset + 1)
            if self.status == PARSED_RECORD:
                return wrap_record(self.view, &record, self.state.last_record_offset)
        finally:
            cold_leave()
        raise StopIteration

    @property
    def stop(self):
        """The `ScanStop` once the iteration is over; None before."""
        if self.status == PARSED_RECORD or self.status == SCAN_PAUSED:
            return None
        return scan_stop(&self.state, self.status)
