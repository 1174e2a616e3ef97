# The responses that a broker gives by the million. Byte for byte what pyledger.wire.remoting.command encodes.
from _core.layout cimport put_i16, put_i32
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyledger import errors

cdef enum:
    NUMBER_BYTES_MAX = 20
    ESCAPED_BYTES_MAX = 6            # of one byte of a text
    RESPONSE_BYTES = 512             # all of a response that is not text from outside
    HEADER_BYTES_LIMIT = 0xFFFFFF
    CODE_BINARY_MAX = 32767          # a larger one travels as JSON

cdef const char* HEX_DIGITS = b"0123456789ABCDEF"
cdef bytes SHORT_ESCAPES = b"btn?fr"     # from 8 on


cdef inline uint8_t* put_ascii(uint8_t* to, const char* text) noexcept nogil:
    """Copy a text that ends in 0."""
    cdef size_t size = strlen(text)
    memcpy(to, text, size)
    return to + size


cdef uint8_t* put_decimal(uint8_t* to, int64_t number) noexcept nogil:
    """Write a number."""
    cdef uint8_t digits[NUMBER_BYTES_MAX]
    cdef uint64_t rest = <uint64_t>number
    cdef int32_t at = NUMBER_BYTES_MAX
    if number < 0:
        to[0] = c'-'
        to += 1
        rest = 0 - rest
    while True:
        at -= 1
        digits[at] = <uint8_t>(c'0' + rest % 10)
        rest //= 10
        if rest == 0:
            break
    memcpy(to, digits + at, <size_t>(NUMBER_BYTES_MAX - at))
    return to + NUMBER_BYTES_MAX - at


cdef uint8_t* put_escape(uint8_t* to, uint32_t unit, const char* letters) noexcept nogil:
    r"""Write `\n` and the like, or `\u` and four digits."""
    to[0] = c'\\'
    if unit == c'"' or unit == c'\\':
        to[1] = <uint8_t>unit
        return to + 2
    if 8 <= unit <= 13 and unit != 11:
        to[1] = <uint8_t>letters[unit - 8]
        return to + 2
    to[1] = c'u'
    to[2] = <uint8_t>HEX_DIGITS[unit >> 12 & 15]
    to[3] = <uint8_t>HEX_DIGITS[unit >> 8 & 15]
    to[4] = <uint8_t>HEX_DIGITS[unit >> 4 & 15]
    to[5] = <uint8_t>HEX_DIGITS[unit & 15]
    return to + 6


cdef uint8_t* put_json_text(uint8_t* to, const uint8_t* p, int64_t size, const char* letters) noexcept nogil:
    """Write a text in quotes; what shows no glyph is escaped as fastjson does."""
    cdef const uint8_t* end = p + size
    to[0] = c'"'
    to += 1
    while p < end:
        if p[0] < 0x20 or p[0] == c'"' or p[0] == c'\\' or p[0] == 0x7F:
            to = put_escape(to, p[0], letters)
        elif p[0] == 0xC2 and end - p > 1 and p[1] < 0xA0:
            to = put_escape(to, p[1], letters)
            p += 1
        elif p[0] == 0xE2 and end - p > 2 and p[1] == 0x80 and (p[2] == 0xA8 or p[2] == 0xA9):
            to = put_escape(to, 0x2000 + p[2] - 0x80, letters)
            p += 2
        else:
            to[0] = p[0]
            to += 1
        p += 1
    to[0] = c'"'
    return to + 1


cdef class _ResponseWriter:
    """Writes the fields of one response after the other, in either form."""

    cdef bytes room
    cdef uint8_t* start
    cdef uint8_t* to
    cdef uint8_t* at_fields          # binary: the length of the fields
    cdef const char* letters
    cdef bint binary
    cdef bint has_fields

    cdef int begin(self, int32_t serialize, int32_t code, int32_t opaque, int64_t text_bytes) except -1:
        """Allocate a response, and write the part before its fields or, if binary, before its remark."""
        self.letters = SHORT_ESCAPES
        self.binary = serialize == SERIALIZE_ROCKETMQ and -CODE_BINARY_MAX <= code <= CODE_BINARY_MAX
        self.has_fields = False
        self.room = PyBytes_FromStringAndSize(NULL, RESPONSE_BYTES + ESCAPED_BYTES_MAX * text_bytes)
        self.start = <uint8_t*>PyBytes_AS_STRING(self.room)
        self.to = self.start + 8
        if self.binary:
            put_i16(self.to, <short>code)
            self.to[2] = LANGUAGE_PYTHON
            put_i16(self.to + 3, CURRENT_VERSION)
            put_i32(self.to + 5, opaque)
            put_i32(self.to + 9, COMMAND_RESPONSE)
            self.to += 13
        else:
            self.to = put_decimal(put_ascii(self.to, b'{"code":'), code)
        return 0

    cdef void put_binary_remark(self, const char* remark, int64_t size) noexcept:
        """Write the remark of a binary response, which precedes its fields."""
        put_i32(self.to, <int32_t>size)
        if size:
            memcpy(self.to + 4, remark, <size_t>size)
        self.at_fields = self.to + 4 + size
        self.to = self.at_fields + 4

    cdef void put_name(self, const char* name) noexcept:
        """The name of the next field."""
        cdef int32_t size = <int32_t>strlen(name)
        if self.binary:
            put_i16(self.to, <short>size)
            memcpy(self.to + 2, name, <size_t>size)
            self.to += 2 + size
            return
        self.to = put_ascii(self.to, b',"' if self.has_fields else b',"extFields":{"')
        self.to = put_ascii(put_ascii(self.to, name), b'":')
        self.has_fields = True

    cdef void put_number(self, const char* name, int64_t number) noexcept:
        """A field that is a number."""
        cdef uint8_t* at
        self.put_name(name)
        if self.binary:
            at = self.to
            self.to = put_decimal(at + 4, number)
            put_i32(at, <int32_t>(self.to - at - 4))
            return
        self.to[0] = c'"'
        self.to = put_decimal(self.to + 1, number)
        self.to[0] = c'"'
        self.to += 1

    cdef void put_text(self, const char* name, const char* text, int64_t size) noexcept:
        """A field that is a text."""
        self.put_name(name)
        if self.binary:
            put_i32(self.to, <int32_t>size)
            memcpy(self.to + 4, text, <size_t>size)
            self.to += 4 + size
        else:
            self.to = put_json_text(self.to, <const uint8_t*>text, size, self.letters)

    cdef bytes finish(self, int32_t opaque, const char* remark, int64_t remark_bytes, int64_t body_bytes):
        """Write the part after the fields, and the lengths; return the bytes before the body."""
        cdef int64_t size
        if self.binary:
            put_i32(self.at_fields, <int32_t>(self.to - self.at_fields - 4))
        else:
            if self.has_fields:
                self.to[0] = c'}'
                self.to += 1
            self.to = put_ascii(self.to, b',"flag":1,"language":"PYTHON","opaque":')
            self.to = put_decimal(self.to, opaque)
            if remark != NULL:
                self.to = put_ascii(self.to, b',"remark":')
                self.to = put_json_text(self.to, <const uint8_t*>remark, remark_bytes, self.letters)
            self.to = put_ascii(self.to, b',"serializeTypeCurrentRPC":"JSON","version":')
            self.to = put_decimal(self.to, CURRENT_VERSION)
            self.to[0] = c'}'
            self.to += 1
        size = self.to - self.start - 8
        ASSERT(size + 8 <= PyBytes_GET_SIZE(self.room))
        if size > HEADER_BYTES_LIMIT or body_bytes < 0 or size + 4 + body_bytes > 0x7FFFFFFF:
            raise errors.FrameError(f"a header of {size} and a body of {body_bytes} bytes fit in no frame")
        put_i32(self.start, <int32_t>(size + 4 + body_bytes))
        put_i32(self.start + 4, <int32_t>(size | <int64_t>self.binary << 24))
        return self.room[:size + 8]


cdef str without_half_characters(str text):
    """A text that surely has UTF-8: a remark may repeat what a peer has sent."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode()


cdef bytes write_send_response(int32_t serialize, int32_t opaque, int32_t code, str remark,
                               const char* msg_id, int64_t msg_id_bytes, int32_t queue_id,
                               int64_t queue_offset, const char* transaction_id,
                               int64_t transaction_id_bytes, str region, bint trace_on):
    """A whole response to a send; a transaction id of NULL is left out."""
    cdef Py_ssize_t remark_size = 0
    cdef Py_ssize_t region_size
    cdef const char* remark_text = NULL
    cdef const char* region_text = PyUnicode_AsUTF8AndSize(region, &region_size)
    cdef _ResponseWriter writer = _ResponseWriter.__new__(_ResponseWriter)
    remark = without_half_characters(remark)
    if remark is not None:
        remark_text = PyUnicode_AsUTF8AndSize(remark, &remark_size)
    writer.begin(serialize, code, opaque, remark_size + msg_id_bytes + region_size + transaction_id_bytes)
    if writer.binary:
        writer.put_binary_remark(remark_text, remark_size)
    writer.put_text(b"msgId", msg_id, msg_id_bytes)
    writer.put_number(b"queueId", queue_id)
    writer.put_number(b"queueOffset", queue_offset)
    if transaction_id != NULL:
        writer.put_text(b"transactionId", transaction_id, transaction_id_bytes)
    if trace_on:
        writer.put_text(b"TRACE_ON", b"true", 4)
    else:
        writer.put_text(b"TRACE_ON", b"false", 5)
    writer.put_text(b"MSG_REGION", region_text, region_size)
    return writer.finish(opaque, remark_text, remark_size, 0)


def encode_send_response(int32_t serialize, int32_t opaque, int32_t code, str remark, str msg_id not None,
                         int32_t queue_id, int64_t queue_offset, str transaction_id, str region not None,
                         bint trace_on):
    """Encode the whole response to a send that was stored."""
    cdef Py_ssize_t id_size
    cdef Py_ssize_t transaction_size = 0
    cdef const char* id_text = PyUnicode_AsUTF8AndSize(msg_id, &id_size)
    cdef const char* transaction_text = NULL
    if transaction_id is not None:
        transaction_text = PyUnicode_AsUTF8AndSize(transaction_id, &transaction_size)
    return write_send_response(serialize, opaque, code, remark, id_text, id_size, queue_id, queue_offset,
                               transaction_text, transaction_size, region, trace_on)


cdef bytes write_pull_response(int32_t serialize, int32_t opaque, int32_t code, str remark,
                               int64_t suggest_which_broker_id, int64_t next_begin_offset,
                               int64_t min_offset, int64_t max_offset, int32_t topic_sys_flag,
                               int32_t group_sys_flag, int64_t body_size_bytes):
    """Encode the response to a pull up to its body."""
    cdef Py_ssize_t remark_size = 0
    cdef const char* remark_text = NULL
    cdef _ResponseWriter writer = _ResponseWriter.__new__(_ResponseWriter)
    remark = without_half_characters(remark)
    if remark is not None:
        remark_text = PyUnicode_AsUTF8AndSize(remark, &remark_size)
    writer.begin(serialize, code, opaque, remark_size)
    if writer.binary:
        writer.put_binary_remark(remark_text, remark_size)
    writer.put_number(b"suggestWhichBrokerId", suggest_which_broker_id)
    writer.put_number(b"nextBeginOffset", next_begin_offset)
    writer.put_number(b"minOffset", min_offset)
    writer.put_number(b"maxOffset", max_offset)
    writer.put_number(b"topicSysFlag", topic_sys_flag)
    writer.put_number(b"groupSysFlag", group_sys_flag)
    return writer.finish(opaque, remark_text, remark_size, body_size_bytes)


def encode_pull_response(int32_t serialize, int32_t opaque, int32_t code, str remark,
                         int64_t suggest_which_broker_id, int64_t next_begin_offset, int64_t min_offset,
                         int64_t max_offset, int32_t topic_sys_flag, int32_t group_sys_flag,
                         int64_t body_size_bytes):
    """Encode the response to a pull up to its body."""
    return write_pull_response(serialize, opaque, code, remark, suggest_which_broker_id, next_begin_offset,
                               min_offset, max_offset, topic_sys_flag, group_sys_flag, body_size_bytes)
