# Appends of one entry, of which a member receives thousands: those that arrive together for one group and
# member become one batch, and are answered in one piece of bytes. Also the client's side.
# Anything unusual is left to Python, which is the model that this is tested against.
cimport cython
from _core.layout cimport get_i32, put_i32
from _core.text cimport is_utf8
from cpython.bytes cimport (PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize,
                            PyBytes_GET_SIZE)
from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from pyledger import errors

cdef enum:
    CODE_APPEND = 50001
    CODE_APPEND_RAW = 50912
    CODE_APPENDED = 200
    APPEND_FIXED_BYTES = 384         # most bytes of a request or response without its variable texts
    NO_SEXTET = 255
    ALL_NUMBERS = 15
    APPEND_HEADER_BYTES_MAX = 160

# The class of responses is set from outside, because its module imports this one.
cdef object _appended_class = None


def set_append_response(response_class):
    """Name the class of an append's answer."""
    global _appended_class
    _appended_class = response_class


cdef struct AppendMembers:
    TextSpan group
    TextSpan remote_id
    TextSpan leader_id
    TextSpan body                    # `at` of each is NULL when it is not there
    int64_t code
    int64_t index
    int64_t pos
    int64_t term
    int32_t numbers                  # which of the four are there: bits 1, 2, 4, 8


cdef bint note_append_member(const TextSpan* name, const TextSpan* value, AppendMembers* m) noexcept nogil:
    """Note a member of a request or response; False for one that plain ones do not have."""
    cdef bint is_text = (value.at - 1)[0] == c'"'
    if value.escaped or name.escaped:
        return False
    if is_text:
        if span_is(name, b"group"):
            m.group = value[0]
        elif span_is(name, b"remoteId"):
            m.remote_id = value[0]
        elif span_is(name, b"leaderId"):
            m.leader_id = value[0]
        elif span_is(name, b"body"):
            m.body = value[0]
        else:
            return span_is(name, b"localId")
        return True
    if span_is(name, b"code"):
        m.numbers |= 1
        return parse_i64(value, &m.code)
    if span_is(name, b"term"):
        m.numbers |= 2
        return parse_i64(value, &m.term)
    if span_is(name, b"index"):
        m.numbers |= 4
        return parse_i64(value, &m.index)
    m.numbers |= 8
    return span_is(name, b"pos") and parse_i64(value, &m.pos)


cdef bint read_append_members(const uint8_t* p, int64_t size, AppendMembers* m) noexcept nogil:
    """Read a JSON object without spaces; False if Python must do it."""
    cdef const uint8_t* end = p + size
    cdef TextSpan name, value
    m.group = m.remote_id = m.leader_id = m.body = TextSpan(NULL, 0, False)
    m.code = m.index = m.pos = m.term = m.numbers = 0
    if size < 2 or p[0] != c'{' or not is_utf8(p, size):
        return False
    while True:
        p += 1
        if p >= end or p[0] != c'"':
            return False
        p = read_json_string(p + 1, end, &name)
        if p == NULL or p >= end or p[0] != c':':
            return False
        p = read_json_value(p + 1, end, &value)
        if p == NULL or p >= end or not note_append_member(&name, &value, m):
            return False
        if p[0] != c',':
            return p[0] == c'}' and p + 1 == end


cdef inline uint8_t sextet(uint8_t letter) noexcept nogil:
    """Value of a letter of base64."""
    if c'A' <= letter <= c'Z':
        return letter - c'A'
    if c'a' <= letter <= c'z':
        return letter - c'a' + 26
    if c'0' <= letter <= c'9':
        return letter - c'0' + 52
    return 62 if letter == c'+' else 63 if letter == c'/' else NO_SEXTET


cdef uint8_t[256] SEXTETS
cdef int _letter
for _letter in range(256):
    SEXTETS[_letter] = sextet(<uint8_t>_letter)


cdef bytes decode_base64(const TextSpan* span):
    """The bytes of a text; None when it is not exactly what an encoder writes."""
    cdef const uint8_t* p = span.at
    cdef int64_t size = span.size
    cdef int64_t padding = 0
    cdef int64_t _i
    cdef uint8_t wrong = 0
    cdef uint8_t a, b, c, d
    cdef bytes found
    cdef uint8_t* to
    if size % 4:
        return None
    while padding < 2 and size and p[size - 1 - padding] == c'=':
        padding += 1
    found = PyBytes_FromStringAndSize(NULL, size // 4 * 3 - padding)
    to = <uint8_t*>PyBytes_AS_STRING(found)
    for _i in range(size // 4 - (padding > 0), 0, -1):
        a, b, c, d = SEXTETS[p[0]], SEXTETS[p[1]], SEXTETS[p[2]], SEXTETS[p[3]]
        wrong |= a | b | c | d
        to[0] = <uint8_t>(a << 2 | b >> 4)
        to[1] = <uint8_t>(b << 4 | c >> 2)
        to[2] = <uint8_t>(c << 6 | d)
        p += 4
        to += 3
    if padding:
        a, b = SEXTETS[p[0]], SEXTETS[p[1]]
        c = SEXTETS[p[2]] if padding == 1 else 0
        wrong |= a | b | c
        if (c << 6 if padding == 1 else b << 4) & 0xFF:
            return None
        to[0] = <uint8_t>(a << 2 | b >> 4)
        if padding == 1:
            to[1] = <uint8_t>(b << 4 | c >> 2)
    return None if wrong & 0xC0 else found


@cython.final
cdef class AppendBatch(DecodedRequest):
    """Appends of one entry each that came one after the other for one group and member; see _core.pyi."""

    cdef readonly str group
    cdef readonly str remote_id
    cdef readonly list bodies
    cdef readonly list opaques
    cdef list starts                 # where each frame starts in the receive buffer

    @property
    def frames(self):
        """Each request as a frame of its own, without its length word."""
        view = memoryview(self.owner).toreadonly()
        ends = [*[start - 4 for start in self.starts[1:]], self.at_end]
        return [view[start:end] for start, end in zip(self.starts, ends)]


cdef bytes appended_body(const uint8_t* frame, int64_t size, int32_t code, AppendMembers* m):
    """The body of an append of one entry that names its group and member; None if Python must decode it."""
    cdef int64_t head_bytes, body_bytes
    if code == CODE_APPEND:
        if not read_append_members(frame, size, m) or m.body.at == NULL:
            return None
        return decode_base64(&m.body)
    if size < 8:
        return None
    head_bytes = get_i32(frame)
    if not 0 <= head_bytes <= size - 8:
        return None
    body_bytes = get_i32(frame + 4 + head_bytes)
    if body_bytes != size - 8 - head_bytes or not read_append_members(frame + 4, head_bytes, m):
        return None
    return PyBytes_FromStringAndSize(<const char*>frame + 8 + head_bytes, body_bytes)


cdef AppendBatch run_with(AppendBatch run, data, const uint8_t* base, int64_t at, int64_t size):
    """The run that has this frame: the one given, or a new one; None for Python to decode."""
    cdef CommandHead head
    cdef AppendMembers m
    cdef int64_t at_body = 0
    cdef bytes body
    cdef str group, remote_id
    if base[at] != SERIALIZE_JSON or not read_command_head(base + at, size, &head, &at_body):
        return None
    if head.flag or head.remark.size or (head.code != CODE_APPEND_RAW and head.code != CODE_APPEND):
        return None
    body = appended_body(base + at + at_body, size - at_body, head.code, &m)
    if body is None or m.group.at == NULL or m.remote_id.at == NULL:
        return None
    group, remote_id = span_text(&m.group), span_text(&m.remote_id)
    if run is None or group != run.group or remote_id != run.remote_id:
        run = AppendBatch.__new__(AppendBatch)
        run.owner = data
        run.code, run.language, run.version = head.code, head.language, head.version
        run.opaque = head.opaque
        run.at_frame = at
        run.at_body = at + at_body
        run.group, run.remote_id = group, remote_id
        run.bodies, run.opaques, run.starts = [], [], []
    run.bodies.append(body)
    run.opaques.append(head.opaque)
    run.starts.append(at)
    run.at_end = at + size
    return run


@cython.final
cdef class AppendAnswers:
    """Encodes a leader's responses to successful appends; see _core.pyi."""

    cdef bytes before                # the response's JSON up to the index
    cdef bytes middle                # from there up to the offset

    def __init__(self, bytes group not None, bytes leader_id not None):
        self.before = b'{"code":200,"group":%b,"index":' % group
        self.middle = b',"leaderId":%b,"pos":' % leader_id

    def encode(self, list opaques not None, int64_t first_index, offsets not None, int64_t term):
        """Encode the responses to requests of one entry each, in one piece."""
        cdef int64_t count = len(opaques)
        cdef int64_t each = APPEND_FIXED_BYTES + len(self.before) + len(self.middle)
        cdef bytes room = PyBytes_FromStringAndSize(NULL, count * each)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(room)
        cdef uint8_t* to = start
        cdef uint8_t* frame
        cdef uint8_t* body
        for opaque, offset in zip(opaques, offsets, strict=True):
            frame = to
            to = put_decimal(put_ascii(frame + 8, b'{"code":200,"flag":1,"language":"PYTHON","opaque":'),
                             <int32_t>opaque)
            to = put_ascii(to, b',"serializeTypeCurrentRPC":"JSON","version":')
            body = put_ascii(put_decimal(to, CURRENT_VERSION), b"}")
            to = put_decimal(put_text_bytes(body, self.before), first_index)
            to = put_decimal(put_text_bytes(to, self.middle), <int64_t>offset)
            to = put_ascii(put_decimal(put_ascii(to, b',"term":'), term), b"}")
            put_i32(frame, <int32_t>(to - frame - 4))
            put_i32(frame + 4, <int32_t>(body - frame - 8))
            first_index += 1
        return room[:to - start]


@cython.final
cdef class AppendHead:
    """The fields that all appends to one group and member share; see _core.pyi."""

    cdef bytes head

    def __init__(self, bytes head not None):
        self.head = head

    def encode(self, int32_t opaque, bodies not None):
        """A whole request to append these bodies."""
        cdef uint8_t[APPEND_HEADER_BYTES_MAX] header
        cdef uint8_t* to = put_ascii(header, b'{"code":50912,"flag":0,"language":"PYTHON","opaque":')
        cdef int64_t header_bytes
        cdef int64_t size_bytes = 8 + 4 + PyBytes_GET_SIZE(self.head)
        cdef tuple run = (self.head, *bodies)
        cdef bytes frame
        cdef Py_ssize_t length
        to = put_ascii(put_decimal(to, opaque), b',"serializeTypeCurrentRPC":"JSON","version":')
        header_bytes = put_ascii(put_decimal(to, CURRENT_VERSION), b"}") - header
        ASSERT(header_bytes <= APPEND_HEADER_BYTES_MAX)
        for item in run[1:]:
            if not PyBytes_CheckExact(item):
                raise TypeError(f"a body is bytes, not {type(item).__name__}")
            size_bytes += 4 + PyBytes_GET_SIZE(item)
        size_bytes += header_bytes
        if size_bytes > INT32_MAX:
            raise errors.FrameError(f"bodies of {size_bytes} bytes fit in no frame")
        frame = PyBytes_FromStringAndSize(NULL, size_bytes)
        to = <uint8_t*>PyBytes_AS_STRING(frame)
        put_i32(to, <int32_t>(size_bytes - 4))
        put_i32(to + 4, <int32_t>header_bytes)
        memcpy(to + 8, header, <size_t>header_bytes)
        to += 8 + header_bytes
        for item in run:
            length = PyBytes_GET_SIZE(item)
            put_i32(to, <int32_t>length)
            memcpy(to + 4, PyBytes_AS_STRING(item), <size_t>length)
            to += 4 + length
        ASSERT(to == <uint8_t*>PyBytes_AS_STRING(frame) + size_bytes)
        return frame


@cython.final
cdef class AppendFuture(ResponseFuture):
    """An append in flight; see _core.pyi."""

    cdef object response

    cdef object decoded(self):
        return self.response

    cdef bint read(self, const CommandHead* head, const uint8_t* body, int64_t body_bytes):
        """Decode a response; False if Python must decode it."""
        cdef AppendMembers m
        if (head.code != 0 and head.code != CODE_APPENDED) or _appended_class is None:
            return False
        if not read_append_members(body, body_bytes, &m):
            return False
        if m.code != CODE_APPENDED or m.numbers != ALL_NUMBERS:
            return False
        if m.group.at == NULL or m.leader_id.at == NULL or m.remote_id.at != NULL or m.body.at != NULL:
            return False
        response = _appended_class.__new__(_appended_class)
        PyObject_GenericSetAttr(response, "group", span_text(&m.group))
        PyObject_GenericSetAttr(response, "remote_id", None)
        PyObject_GenericSetAttr(response, "local_id", None)
        PyObject_GenericSetAttr(response, "code", CODE_APPENDED)
        PyObject_GenericSetAttr(response, "leader_id", span_text(&m.leader_id))
        PyObject_GenericSetAttr(response, "term", m.term)
        PyObject_GenericSetAttr(response, "index", m.index)
        PyObject_GenericSetAttr(response, "pos", m.pos)
        self.response = response
        return True
