# Encodes messages for sending: their ids, their properties, the body of a batch.
# Messages that are not plain are left to Python, which is the model that this is tested against.
cimport cython
from _core.layout cimport PROPERTY_END, PROPERTY_NAME_END, put_i16, put_i32, put_i64
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

cdef enum:
    UNIQUE_ID_CHARACTERS_MAX = 56
    MOMENT_BYTES = 6
    BATCH_ITEM_HEAD_BYTES = 20
    ROOM_BYTES_MIN = 512

cdef int64_t BACKWARD_MAX_MS = 1_000_000
cdef tuple FIELD_PROPERTIES = ("KEYS", "TAGS", "DELAY", "UNIQ_KEY")
cdef tuple SINGLE_PROPERTIES = ("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "MSG_TYPE")
cdef tuple BATCH_PROPERTIES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")


@cython.final
cdef class UniqueIds:
    """Makes the ids of one process; see _core.pyi."""

    cdef object month_of
    cdef int64_t start_ms
    cdef int64_t end_ms
    cdef uint16_t counter
    cdef int32_t size
    cdef char text[UNIQUE_ID_CHARACTERS_MAX]

    def __init__(self, bytes address not None, int64_t process_id, int64_t process_number, month_of):
        cdef uint8_t prefix[22]
        cdef int32_t address_bytes = <int32_t>len(address)
        if address_bytes not in (4, 16):
            raise ValueError("an address has 4 or 16 bytes")
        memcpy(prefix, PyBytes_AS_STRING(address), <size_t>address_bytes)
        put_i16(prefix + address_bytes, <short><uint16_t>(process_id & 0xFFFF))
        put_i32(prefix + address_bytes + 2, <int32_t><uint32_t>(process_number & 0xFFFFFFFF))
        self.size = 2 * (address_bytes + 6 + MOMENT_BYTES)
        put_hex_digits(self.text, prefix, address_bytes + 6)
        self.month_of = month_of

    cdef int step(self, int64_t now_ms) except -1:
        """Make the next id, in `text`."""
        cdef uint8_t moment[MOMENT_BYTES]
        cdef int64_t since_ms
        if now_ms >= self.end_ms:
            self.start_ms, self.end_ms = self.month_of(now_ms)
        since_ms = now_ms - self.start_ms
        if -BACKWARD_MAX_MS < since_ms < 0:
            since_ms = 0
        put_i32(moment, <int32_t><uint32_t>(since_ms & 0xFFFFFFFF))
        put_i16(moment + 4, <short>self.counter)
        self.counter += 1
        put_hex_digits(self.text + self.size - 2 * MOMENT_BYTES, moment, MOMENT_BYTES)
        return 0

    def next(self, int64_t now_ms):
        """The next id."""
        self.step(now_ms)
        return PyUnicode_FromStringAndSize(self.text, self.size)


cdef inline void put_hex_digits(char* to, const uint8_t* data, int32_t size) noexcept nogil:
    """Write bytes in upper-case hex."""
    cdef int32_t i
    for i in range(size):
        to[2 * i] = HEX_DIGITS[data[i] >> 4]
        to[2 * i + 1] = HEX_DIGITS[data[i] & 15]


cdef class ResponseFuture:
    """A request in flight; see _core.pyi."""

    cdef public object future

    def __init__(self, future):
        self.future = future

    def finish(self, outcome):
        """Complete the future."""
        if self.future.done():
            return
        if outcome is None:
            self.future.set_result(self.decoded())
        elif isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)

    cdef object decoded(self):
        """What was read from the response."""
        return self


@cython.final
cdef class PendingSend(ResponseFuture):
    """What a request to send needs to know of its message or batch; see _core.pyi."""

    cdef public str topic
    cdef public object body
    cdef public bytes properties
    cdef public str unique_key
    cdef public int32_t flag
    cdef public int32_t sys_flag
    cdef public int32_t reconsume_times
    cdef public object reconsume_times_max
    cdef public bint is_batch
    cdef public bint is_reply
    cdef public double deadline
    # Of the send in progress.
    cdef public object mode
    cdef public object queue
    cdef public object select
    cdef public object timeout_ms
    cdef public object sender
    cdef public list tried
    cdef public object target
    cdef public object result

    def __init__(self, str topic not None, body, bytes properties not None, str unique_key not None,
                 int32_t flag=0, int32_t sys_flag=0):
        self.topic = topic
        self.body = body
        self.properties = properties
        self.unique_key = unique_key
        self.flag = flag
        self.sys_flag = sys_flag

    def finish(self, outcome):
        """Hand the outcome of an attempt to `sender`."""
        self.sender.finished(self, outcome)


cdef class _TextBuffer:
    """Bytes that grow at their end."""

    cdef uint8_t* start
    cdef int64_t size
    cdef int64_t capacity

    def __dealloc__(self):
        free(self.start)

    cdef uint8_t* more(self, int64_t size) except NULL:
        """Reserve `size` bytes at the end, which do not count yet."""
        cdef uint8_t* moved
        cdef int64_t wanted
        if self.capacity - self.size < size:
            wanted = max(2 * self.capacity, self.size + size, <int64_t>ROOM_BYTES_MIN)
            moved = <uint8_t*>realloc(self.start, <size_t>wanted)
            if moved == NULL:
                raise MemoryError
            self.start = moved
            self.capacity = wanted
        return self.start + self.size

    cdef int put(self, const void* data, int64_t size) except -1:
        memcpy(self.more(size), data, <size_t>size)
        self.size += size
        return 0

    cdef int put_property(self, str name, str value) except -1:
        """Write a property; 0 when it would not come back as it is."""
        cdef Py_ssize_t name_bytes = 0
        cdef Py_ssize_t value_bytes = 0
        cdef const char* name_text = PyUnicode_AsUTF8AndSize(name, &name_bytes)
        cdef const char* value_text = PyUnicode_AsUTF8AndSize(value, &value_bytes)
        cdef uint8_t* to
        if name_bytes == 0 or value_bytes == 0 or memchr(value_text, PROPERTY_END, <size_t>value_bytes):
            return 0
        if memchr(name_text, PROPERTY_END, <size_t>name_bytes):
            return 0
        if memchr(name_text, PROPERTY_NAME_END, <size_t>name_bytes):
            return 0
        to = self.more(name_bytes + value_bytes + 2)
        memcpy(to, name_text, <size_t>name_bytes)
        to[name_bytes] = PROPERTY_NAME_END
        memcpy(to + name_bytes + 1, value_text, <size_t>value_bytes)
        to[name_bytes + 1 + value_bytes] = PROPERTY_END
        self.size += name_bytes + value_bytes + 2
        return 1

    cdef str put_ordinary_properties(self, message, UniqueIds ids, int64_t now_ms, bint in_batch):
        """Write the properties of a message; its unique key, or None when something is unusual."""
        cdef int64_t begin = self.size
        cdef str key
        properties = message.properties
        if properties:
            if type(properties) is not dict:
                return None
            for name, value in (<dict>properties).items():
                if type(name) is not str or type(value) is not str or name in FIELD_PROPERTIES:
                    return None
                if name in (BATCH_PROPERTIES if in_batch else SINGLE_PROPERTIES):
                    return None
                if not self.put_property(name, value):
                    return None
        keys = message.keys
        if keys and (type(keys) is not str or not self.put_property("KEYS", keys)):
            return None
        tags = message.tags
        if tags and (type(tags) is not str or not self.put_property("TAGS", tags)):
            return None
        level = message.delay_level
        if level and (in_batch or not self.put_property("DELAY", str(level))):
            return None
        ids.step(now_ms)
        key = PyUnicode_FromStringAndSize(ids.text, ids.size)
        self.put_property("UNIQ_KEY", key)
        return None if self.size - begin > PROPERTIES_BYTES_MAX else key


def prepare_message(message, UniqueIds ids not None, int64_t now_ms, int64_t body_bytes_max):
    """A message ready to be sent; None when something about it is unusual or wrong."""
    cdef _TextBuffer room = _TextBuffer.__new__(_TextBuffer)
    cdef PendingSend out
    cdef str key
    body = message.body
    if type(body) is not bytes or not 0 < len(<bytes>body) < body_bytes_max:
        return None
    try:
        key = room.put_ordinary_properties(message, ids, now_ms, False)
    except UnicodeEncodeError:
        return None
    if key is None:
        return None
    out = PendingSend.__new__(PendingSend)
    out.topic = message.topic
    out.body = body
    out.properties = PyBytes_FromStringAndSize(<char*>room.start, room.size)
    out.unique_key = key
    out.flag = message.flag
    out.sys_flag = message.sys_flag
    return out


def prepare_messages(messages, UniqueIds ids not None, int64_t now_ms, int64_t size_bytes_max):
    """A batch ready to be sent; None when something about it is unusual or wrong."""
    cdef _TextBuffer room = _TextBuffer.__new__(_TextBuffer)
    cdef PendingSend out
    cdef str topic = None
    cdef str key
    cdef list keys = []
    cdef int64_t at, body_bytes, properties_at
    try:
        for message in messages:
            body = message.body
            if topic is None:
                topic = message.topic
            elif message.topic != topic:
                return None
            if type(body) is not bytes or not len(<bytes>body):
                return None
            body_bytes = PyBytes_GET_SIZE(body)
            at = room.size
            if body_bytes > size_bytes_max or at > size_bytes_max:
                return None
            room.more(BATCH_ITEM_HEAD_BYTES + body_bytes + 2)
            room.size += BATCH_ITEM_HEAD_BYTES
            room.put(PyBytes_AS_STRING(body), body_bytes)
            room.size += 2
            properties_at = room.size
            key = room.put_ordinary_properties(message, ids, now_ms, True)
            if key is None:
                return None
            keys.append(key)
            put_i32(room.start + at, <int32_t>(room.size - at))
            put_i64(room.start + at + 4, 0)
            put_i32(room.start + at + 12, <int32_t>message.flag)
            put_i32(room.start + at + 16, <int32_t>body_bytes)
            put_i16(room.start + properties_at - 2, <short>(room.size - properties_at))
    except UnicodeEncodeError:
        return None
    if topic is None or room.size > size_bytes_max:
        return None
    out = PendingSend.__new__(PendingSend)
    out.topic = topic
    out.body = PyBytes_FromStringAndSize(<char*>room.start, room.size)
    out.properties = b""
    out.unique_key = ",".join(keys)
    out.is_batch = True
    return out


@cython.final
cdef class SendHead:
    """What the requests to send to one queue have in common; see _core.pyi."""

    cdef readonly object queue
    cdef int32_t code
    cdef bint binary
    cdef bytes before                # the fields up to the queue id
    cdef bytes after                 # fields from the reconsume times on

    def __init__(self, queue, int32_t code, bint binary, dict before not None, dict after not None):
        self.queue = queue
        self.code = code
        self.binary = binary
        self.before = rendered_fields(before, binary)
        self.after = rendered_fields(after, binary)

    def encode(self, PendingSend out not None, int32_t opaque, int64_t born_ms, bint with_body):
        """Encode a request, with or without its body."""
        cdef int64_t text_bytes = PyBytes_GET_SIZE(out.properties)
        cdef int64_t head_bytes
        cdef Py_buffer body
        cdef bytes frame
        cdef uint8_t* start
        cdef uint8_t* to
        PyObject_GetBuffer(out.body, &body, PyBUF_SIMPLE)
        try:
            frame = PyBytes_FromStringAndSize(NULL, RESPONSE_BYTES + len(self.before) + len(self.after)
                                              + (1 if self.binary else ESCAPED_BYTES_MAX) * text_bytes
                                              + (body.len if with_body else 0))
            start = <uint8_t*>PyBytes_AS_STRING(frame)
            if self.binary:
                to = self.put_binary(start + 8, out, opaque, born_ms)
            else:
                to = self.put_json(start + 8, out, opaque, born_ms)
            head_bytes = to - start - 8
            ASSERT(8 + head_bytes + with_body * body.len <= PyBytes_GET_SIZE(frame))
            if head_bytes + 4 + body.len > 0x7FFFFFFF:
                raise errors.FrameError(f"a body of {body.len} bytes fits in no frame")
            put_i32(start, <int32_t>(head_bytes + 4 + body.len))
            put_i32(start + 4, <int32_t>(head_bytes | <int64_t>self.binary << 24))
            if with_body:
                memcpy(to, body.buf, <size_t>body.len)
                to += body.len
        finally:
            PyBuffer_Release(&body)
        return frame[:to - start]

    cdef uint8_t* put_json(self, uint8_t* to, PendingSend out, int32_t opaque, int64_t born_ms) noexcept:
        to = put_decimal(put_ascii(to, b'{"code":'), self.code)
        to = put_text_bytes(put_ascii(to, b',"extFields":{'), self.before)
        to = put_decimal(put_ascii(to, b',"f":"'), out.sys_flag)
        to = put_decimal(put_ascii(to, b'","g":"'), born_ms)
        to = put_decimal(put_ascii(to, b'","h":"'), out.flag)
        to = put_json_text(put_ascii(to, b'","i":'), <const uint8_t*>PyBytes_AS_STRING(out.properties),
                           PyBytes_GET_SIZE(out.properties), SHORT_ESCAPES)
        to[0] = c','
        to = put_text_bytes(to + 1, self.after)
        to = put_decimal(put_ascii(to, b'},"flag":0,"language":"PYTHON","opaque":'), opaque)
        to = put_ascii(to, b',"serializeTypeCurrentRPC":"JSON","version":')
        to = put_decimal(to, CURRENT_VERSION)
        to[0] = c'}'
        return to + 1

    cdef uint8_t* put_binary(self, uint8_t* to, PendingSend out, int32_t opaque, int64_t born_ms) noexcept:
        cdef uint8_t* fields = to + BINARY_HEAD_BYTES
        put_i16(to, <short>self.code)
        to[2] = LANGUAGE_PYTHON
        put_i16(to + 3, CURRENT_VERSION)
        put_i32(to + 5, opaque)
        put_i32(to + 9, 0)
        put_i32(to + 13, 0)
        to = put_text_bytes(fields, self.before)
        to = put_binary_number(to, c'f', out.sys_flag)
        to = put_binary_number(to, c'g', born_ms)
        to = put_binary_number(to, c'h', out.flag)
        to = put_binary_name(to, c'i')
        put_i32(to, <int32_t>PyBytes_GET_SIZE(out.properties))
        to = put_text_bytes(put_text_bytes(to + 4, out.properties), self.after)
        put_i32(fields - 4, <int32_t>(to - fields))
        return to


cdef inline uint8_t* put_text_bytes(uint8_t* to, bytes data) noexcept:
    """Copy bytes."""
    memcpy(to, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))
    return to + PyBytes_GET_SIZE(data)


cdef inline uint8_t* put_binary_name(uint8_t* to, uint8_t letter) noexcept nogil:
    """The name of a field of a binary header, one letter."""
    put_i16(to, 1)
    to[2] = letter
    return to + 3


cdef uint8_t* put_binary_number(uint8_t* to, uint8_t letter, int64_t number) noexcept nogil:
    """A field of a binary header that is a number."""
    cdef uint8_t* at = put_binary_name(to, letter)
    to = put_decimal(at + 4, number)
    put_i32(at, <int32_t>(to - at - 4))
    return to


cdef bytes rendered_fields(dict fields, bint binary):
    """Fields as encoded in a header."""
    cdef _TextBuffer room = _TextBuffer.__new__(_TextBuffer)
    cdef bytes name, value
    cdef uint8_t* to
    cdef bint first = True
    for name_text, value_text in fields.items():
        name, value = name_text.encode("utf-8", "replace"), value_text.encode("utf-8", "replace")
        to = room.more(16 + len(name) + ESCAPED_BYTES_MAX * len(value))
        if binary:
            put_i16(to, <short>len(name))
            to = put_text_bytes(to + 2, name)
            put_i32(to, <int32_t>len(value))
            to = put_text_bytes(to + 4, value)
        else:
            to = put_ascii(to, b'"' if first else b',"')
            to = put_ascii(put_text_bytes(to, name), b'":')
            to = put_json_text(to, <const uint8_t*>PyBytes_AS_STRING(value), len(value), SHORT_ESCAPES)
        first = False
        room.size = to - room.start
    return PyBytes_FromStringAndSize(<char*>room.start, room.size)


@cython.final
cdef class PullHead:
    """What the pulls of one queue have in common; see _core.pyi."""

    cdef int32_t code
    cdef bint binary
    cdef bytes before                # the fields up to the queue id
    cdef bytes middle                # the most messages
    cdef bytes after                 # fields from the suspend timeout on

    def __init__(self, int32_t code, bint binary, dict before not None, dict middle not None,
                 dict after not None):
        self.code = code
        self.binary = binary
        self.before = rendered_fields(before, binary)
        self.middle = rendered_fields(middle, binary)
        self.after = rendered_fields(after, binary)

    def encode(self, int32_t opaque, int64_t queue_offset, int32_t sys_flag, int64_t commit_offset):
        """A whole request."""
        cdef bytes frame = PyBytes_FromStringAndSize(
            NULL, RESPONSE_BYTES + len(self.before) + len(self.middle) + len(self.after))
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(frame)
        cdef uint8_t* to = start + 8
        cdef uint8_t* fields
        if self.binary:
            fields = to + BINARY_HEAD_BYTES
            put_i16(to, <short>self.code)
            to[2] = LANGUAGE_PYTHON
            put_i16(to + 3, CURRENT_VERSION)
            put_i32(to + 5, opaque)
            put_i32(to + 9, 0)
            put_i32(to + 13, 0)
            to = put_text_bytes(fields, self.before)
            to = put_named_number(to, b"queueOffset", queue_offset)
            to = put_text_bytes(to, self.middle)
            to = put_named_number(to, b"sysFlag", sys_flag)
            to = put_named_number(to, b"commitOffset", commit_offset)
            to = put_text_bytes(to, self.after)
            put_i32(fields - 4, <int32_t>(to - fields))
        else:
            to = put_decimal(put_ascii(to, b'{"code":'), self.code)
            to = put_text_bytes(put_ascii(to, b',"extFields":{'), self.before)
            to = put_decimal(put_ascii(to, b',"queueOffset":"'), queue_offset)
            to = put_text_bytes(put_ascii(to, b'",'), self.middle)
            to = put_decimal(put_ascii(to, b',"sysFlag":"'), sys_flag)
            to = put_decimal(put_ascii(to, b'","commitOffset":"'), commit_offset)
            to = put_text_bytes(put_ascii(to, b'",'), self.after)
            to = put_decimal(put_ascii(to, b'},"flag":0,"language":"PYTHON","opaque":'), opaque)
            to = put_ascii(to, b',"serializeTypeCurrentRPC":"JSON","version":')
            to = put_decimal(to, CURRENT_VERSION)
            to[0] = c'}'
            to += 1
        put_i32(start, <int32_t>(to - start - 4))
        put_i32(start + 4, <int32_t>((to - start - 8) | <int64_t>self.binary << 24))
        return frame[:to - start]


cdef uint8_t* put_named_number(uint8_t* to, const char* name, int64_t number) noexcept nogil:
    """A field of a binary header that is a number."""
    cdef uint8_t* at
    put_i16(to, <short>strlen(name))
    at = put_ascii(to + 2, name)
    to = put_decimal(at + 4, number)
    put_i32(at, <int32_t>(to - at - 4))
    return to
