# The header of a remoting command, split into spans without a copy. Only headers as usual peers write them
# are read here; anything unusual is left to the decoder in Python, which supports all of fastjson.
from _core.layout cimport get_i16, get_i32
from _core.text cimport hash_name, is_utf8
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

cdef enum:
    HEADER_MAX_BYTES = 262144        # pyledger.wire.remoting.command
    ENTRIES_MAX = 32
    BINARY_HEAD_BYTES = 21           # without remark and fields
    SERIALIZE_JSON = 0
    SERIALIZE_ROCKETMQ = 1
    LANGUAGE_JAVA = 0
    LANGUAGE_PYTHON = 3
    LANGUAGES = 14
    CURRENT_VERSION = 479            # pyledger.wire.remoting.versions
    DIGITS_MAX = 19
    TEXT_CACHE_SLOTS = 512
    CACHED_TEXT_BYTES_MAX = 255


cdef struct TextSpan:
    const uint8_t* at
    int32_t size
    bint escaped                     # JSON: the text has backslashes


cdef struct CommandHead:
    int32_t code
    int32_t flag
    int32_t opaque
    int32_t language
    int32_t version
    int32_t count
    TextSpan remark                  # `at` is NULL without one
    TextSpan keys[ENTRIES_MAX]
    TextSpan values[ENTRIES_MAX]


cdef const char** LANGUAGE_NAMES = [b"JAVA", b"CPP", b"DOTNET", b"PYTHON", b"DELPHI", b"ERLANG", b"RUBY",
                                    b"OTHER", b"HTTP", b"GO", b"PHP", b"OMS", b"RUST", b"NODE_JS"]
cdef list TEXT_CACHE = [None] * TEXT_CACHE_SLOTS


cdef extern from "string.h" nogil:
    size_t strlen(const char* text)


cdef inline bint span_is(const TextSpan* span, const char* text) noexcept nogil:
    """Whether a span holds a text of ASCII."""
    return <size_t>span.size == strlen(text) and memcmp(span.at, text, <size_t>span.size) == 0


cdef inline const uint8_t* after_space(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The next byte that is no space."""
    while p < end and (p[0] == c' ' or p[0] == c'\n' or p[0] == c'\r' or p[0] == c'\t'):
        p += 1
    return p


cdef inline int32_t hex_value(uint8_t digit) noexcept nogil:
    """Value of a hexadecimal digit; -1 for another byte."""
    if c'0' <= digit <= c'9':
        return digit - c'0'
    digit |= 0x20
    return digit - c'a' + 10 if c'a' <= digit <= c'f' else -1


cdef int32_t read_code_unit(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The four digits of an escape; -1 when they are none."""
    cdef int32_t unit = 0
    cdef int32_t i, digit
    if end - p < 4:
        return -1
    for i in range(4):
        digit = hex_value(p[i])
        if digit < 0:
            return -1
        unit = unit << 4 | digit
    return unit


cdef inline int32_t short_escape(uint8_t kind) noexcept nogil:
    """What a backslash and a letter mean; -1 for an escape that JSON does not have."""
    if kind == c'"' or kind == c'\\' or kind == c'/':
        return kind
    if kind == c'b':
        return 8
    if kind == c'f':
        return 12
    if kind == c'n':
        return 10
    if kind == c'r':
        return 13
    return 9 if kind == c't' else -1


cdef const uint8_t* read_json_string(const uint8_t* p, const uint8_t* end, TextSpan* span) noexcept nogil:
    """Read from after the first quote; return what follows the last, NULL when something is wrong."""
    span.at = p
    span.escaped = False
    while p < end:
        if p[0] == c'"':
            span.size = <int32_t>(p - span.at)
            return p + 1
        if p[0] == c'\\':
            span.escaped = True
            p += 1
            if p == end or (short_escape(p[0]) < 0 and (p[0] != c'u' or read_code_unit(p + 1, end) < 0)):
                return NULL
        elif p[0] < 0x20:
            return NULL
        p += 1
    return NULL


cdef const uint8_t* read_json_value(const uint8_t* p, const uint8_t* end, TextSpan* span) noexcept nogil:
    """Read a string, an integer as JSON has it, or a boolean; NULL for all else."""
    cdef const uint8_t* first
    if p >= end:
        return NULL
    if p[0] == c'"':
        return read_json_string(p + 1, end, span)
    span.at = p
    span.escaped = False
    if end - p >= 5 and (memcmp(p, b"true", 4) == 0 or memcmp(p, b"false", 5) == 0):
        p += 4 if p[0] == c't' else 5
    else:
        if p[0] == c'-':
            p += 1
        first = p
        while p < end and c'0' <= p[0] <= c'9':
            p += 1
        if p == first or (first[0] == c'0' and (p - first > 1 or first > span.at)) or p - first > DIGITS_MAX:
            return NULL
    ASSERT(span.at <= p <= end)
    span.size = <int32_t>(p - span.at)
    if p < end and (p[0] == c',' or p[0] == c'}' or p[0] <= c' '):
        return p
    return NULL


cdef bint parse_i64(const TextSpan* span, int64_t* number) noexcept nogil:
    """Read a decimal number as Java does, if it surely fits."""
    cdef const uint8_t* p = span.at
    cdef const uint8_t* end = p + span.size
    cdef bint negative = span.size > 0 and p[0] == c'-'
    cdef int64_t value = 0
    if span.size > 0 and (p[0] == c'-' or p[0] == c'+'):
        p += 1
    if p == end or end - p > 18 or span.escaped:
        return False
    while p < end:
        if p[0] < c'0' or p[0] > c'9':
            return False
        value = value * 10 + (p[0] - c'0')
        p += 1
    number[0] = -value if negative else value
    return True


cdef bint parse_i32(const TextSpan* span, int32_t* number) noexcept nogil:
    """Read a decimal number of 32 bits."""
    cdef int64_t value = 0
    if not parse_i64(span, &value) or value != <int32_t>value:
        return False
    number[0] = <int32_t>value
    return True


cdef bint parse_head_number(const uint8_t* start, const TextSpan* span, int32_t* number) noexcept nogil:
    """Read a number without quotes."""
    return start[0] != c'"' and parse_i32(span, number)


cdef bint parse_language(const TextSpan* span, int32_t* language) noexcept nogil:
    """Read the name of a language."""
    cdef int32_t number
    for number in range(LANGUAGES):
        if span_is(span, LANGUAGE_NAMES[number]):
            language[0] = number
            return True
    return False


cdef const uint8_t* read_json_fields(const uint8_t* p, const uint8_t* end, CommandHead* head) noexcept nogil:
    """Read the entries of `extFields` from after its brace; NULL when one is unusual."""
    p = after_space(p, end)
    if p < end and p[0] == c'}':
        return p + 1
    while p < end and head.count < ENTRIES_MAX:
        if p[0] != c'"':
            return NULL
        p = read_json_string(p + 1, end, &head.keys[head.count])
        if p == NULL or head.keys[head.count].escaped:
            return NULL
        p = after_space(p, end)
        if p >= end or p[0] != c':':
            return NULL
        p = read_json_value(after_space(p + 1, end), end, &head.values[head.count])
        if p == NULL:
            return NULL
        head.count += 1
        p = after_space(p, end)
        if p >= end:
            return NULL
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return NULL
        p = after_space(p + 1, end)
    return NULL


cdef const uint8_t* read_json_member(const uint8_t* p, const uint8_t* end, CommandHead* head) noexcept nogil:
    """Read one member of the header; NULL when it is unusual."""
    cdef TextSpan key
    cdef TextSpan value
    cdef const uint8_t* start
    if p[0] != c'"':
        return NULL
    p = read_json_string(p + 1, end, &key)
    if p == NULL:
        return NULL
    p = after_space(p, end)
    if p >= end or p[0] != c':':
        return NULL
    p = after_space(p + 1, end)
    if span_is(&key, b"extFields"):
        if p >= end or p[0] != c'{' or head.count:
            return NULL
        return read_json_fields(p + 1, end, head)
    start = p
    p = read_json_value(p, end, &value)
    if p == NULL:
        return NULL
    if span_is(&key, b"code"):
        return p if parse_head_number(start, &value, &head.code) else NULL
    if span_is(&key, b"flag"):
        return p if parse_head_number(start, &value, &head.flag) else NULL
    if span_is(&key, b"opaque"):
        return p if parse_head_number(start, &value, &head.opaque) else NULL
    if span_is(&key, b"version"):
        return p if parse_head_number(start, &value, &head.version) else NULL
    if span_is(&key, b"language"):
        return p if start[0] == c'"' and parse_language(&value, &head.language) else NULL
    if span_is(&key, b"remark"):
        head.remark = value
        return p if start[0] == c'"' else NULL
    return p if span_is(&key, b"serializeTypeCurrentRPC") else NULL


cdef bint read_json_head(const uint8_t* p, const uint8_t* end, CommandHead* head) noexcept nogil:
    """Read a JSON header; False when it is unusual."""
    if not is_utf8(p, end - p):
        return False
    p = after_space(p, end)
    if p >= end or p[0] != c'{':
        return False
    p = after_space(p + 1, end)
    while p < end:
        p = read_json_member(p, end, head)
        if p == NULL:
            return False
        p = after_space(p, end)
        if p >= end:
            return False
        if p[0] == c'}':
            return after_space(p + 1, end) == end
        if p[0] != c',':
            return False
        p = after_space(p + 1, end)
    return False


cdef bint read_binary_head(const uint8_t* p, const uint8_t* end, CommandHead* head) noexcept nogil:
    """Read a binary header; False when it is unusual or broken."""
    cdef int32_t size
    if end - p < BINARY_HEAD_BYTES:
        return False
    size = get_i32(p + 13)
    if size < 0 or size > end - p - BINARY_HEAD_BYTES or not is_utf8(p + 17, size):
        return False
    if get_i32(p + 17 + size) != end - p - BINARY_HEAD_BYTES - size:
        return False
    head.code = get_i16(p)
    head.language = p[2]
    head.version = get_i16(p + 3)
    head.opaque = get_i32(p + 5)
    head.flag = get_i32(p + 9)
    if head.language >= LANGUAGES:
        return False
    if size:
        head.remark = TextSpan(p + 17, size, False)
    p += BINARY_HEAD_BYTES + size
    while p < end:
        if end - p < 2 or head.count == ENTRIES_MAX:
            return False
        size = get_i16(p)
        p += 2
        if size < 0 or end - p < <int64_t>size + 4:
            return False
        head.keys[head.count] = TextSpan(p, size, False)
        p += size
        size = get_i32(p)
        p += 4
        if size < 0 or end - p < size or not is_utf8(p, size):
            return False
        head.values[head.count] = TextSpan(p, size, False)
        head.count += 1
        p += size
    ASSERT(p == end)
    return True


cdef bint read_command_head(const uint8_t* frame, int64_t size, CommandHead* head,
                            int64_t* at_body) noexcept nogil:
    """Read the head of a frame without its length word; False if Python must do it."""
    cdef int64_t header_size
    if size < 4:
        return False
    header_size = <uint32_t>get_i32(frame) & 0xFFFFFF
    if header_size > size - 4 or header_size > HEADER_MAX_BYTES:
        return False
    at_body[0] = 4 + header_size
    head.code = head.flag = head.opaque = head.version = head.count = 0
    head.language = LANGUAGE_JAVA
    head.remark = TextSpan(NULL, 0, False)
    if frame[0] == SERIALIZE_JSON:
        return read_json_head(frame + 4, frame + at_body[0], head)
    return frame[0] == SERIALIZE_ROCKETMQ and read_binary_head(frame + 4, frame + at_body[0], head)


cdef inline uint8_t* put_utf8(uint8_t* out, int32_t point) noexcept nogil:
    """Write a code point."""
    if point < 0x80:
        out[0] = <uint8_t>point
        return out + 1
    if point < 0x800:
        out[0] = <uint8_t>(0xC0 | point >> 6)
        out[1] = <uint8_t>(0x80 | point & 0x3F)
        return out + 2
    if point < 0x10000:
        out[0] = <uint8_t>(0xE0 | point >> 12)
        out[1] = <uint8_t>(0x80 | point >> 6 & 0x3F)
        out[2] = <uint8_t>(0x80 | point & 0x3F)
        return out + 3
    out[0] = <uint8_t>(0xF0 | point >> 18)
    out[1] = <uint8_t>(0x80 | point >> 12 & 0x3F)
    out[2] = <uint8_t>(0x80 | point >> 6 & 0x3F)
    out[3] = <uint8_t>(0x80 | point & 0x3F)
    return out + 4


cdef int64_t unescape(uint8_t* to, const TextSpan* span) noexcept nogil:
    """Resolve the escapes of a span, in no more bytes; -1 when one is unusual or half a character."""
    cdef const uint8_t* p = span.at
    cdef const uint8_t* end = p + span.size
    cdef uint8_t* out = to
    cdef int32_t point, low
    while p < end:
        if p[0] != c'\\':
            out[0] = p[0]
            out += 1
            p += 1
            continue
        if end - p < 2:
            return -1
        if p[1] == c'u':
            point = read_code_unit(p + 2, end)
            p += 6
            if 0xD800 <= point < 0xDC00:
                low = read_code_unit(p + 2, end) if end - p >= 6 and p[0] == c'\\' and p[1] == c'u' else -1
                if not 0xDC00 <= low < 0xE000:
                    return -1
                point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
                p += 6
            elif point < 0 or 0xDC00 <= point < 0xE000:
                return -1
        else:
            point = short_escape(p[1])
            p += 2
            if point < 0:
                return -1
        out = put_utf8(out, point)
        ASSERT(p <= end and out - to <= p - span.at)
    return out - to


cdef bytes span_bytes(const TextSpan* span):
    """The text of a span as UTF-8; None when an escape in it is unusual."""
    cdef bytes room
    cdef int64_t size
    if not span.escaped:
        return PyBytes_FromStringAndSize(<const char*>span.at, span.size)
    room = PyBytes_FromStringAndSize(NULL, span.size)
    size = unescape(<uint8_t*>PyBytes_AS_STRING(room), span)
    return None if size < 0 else room[:size]


cdef str span_text(const TextSpan* span):
    """The text of a span; None when an escape in it is unusual. Short texts that come again are kept."""
    cdef bytes plain
    cdef Py_ssize_t size
    cdef const char* known
    cdef int32_t slot
    if span.escaped:
        plain = span_bytes(span)
        return None if plain is None else plain.decode()
    if span.size > CACHED_TEXT_BYTES_MAX:
        return PyUnicode_DecodeUTF8(<const char*>span.at, span.size, NULL)
    slot = <int32_t>(hash_name(span.at, span.size, 0) % TEXT_CACHE_SLOTS)
    text = TEXT_CACHE[slot]
    if text is not None:
        known = PyUnicode_AsUTF8AndSize(text, &size)
        if size == span.size and memcmp(known, span.at, <size_t>size) == 0:
            return text
    text = PyUnicode_DecodeUTF8(<const char*>span.at, span.size, NULL)
    TEXT_CACHE[slot] = text
    return text


cdef str span_value(const TextSpan* span):
    """The text of a span that hardly comes again; None when an escape in it is unusual."""
    cdef bytes plain
    if span.escaped:
        plain = span_bytes(span)
        return None if plain is None else plain.decode()
    return PyUnicode_DecodeUTF8(<const char*>span.at, span.size, NULL)
