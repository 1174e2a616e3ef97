# Pulls of ours: the request, and what its answer says.
cimport cython
from _core.layout cimport put_i16, put_i32
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    # ResponseCode
    CODE_FOUND = 0
    CODE_NOT_FOUND = 19
    CODE_RETRY_IMMEDIATELY = 20
    CODE_OFFSET_MOVED = 21


@cython.final
cdef class PullFuture(ResponseFuture):
    """A pull in flight; see _core.pyi."""

    cdef readonly int32_t code
    cdef readonly int64_t suggest_which_broker_id
    cdef readonly int64_t next_begin_offset
    cdef readonly int64_t min_offset
    cdef readonly int64_t max_offset
    cdef readonly int64_t offset_delta
    cdef readonly bytes body

    cdef bint read(self, const CommandHead* head, const uint8_t* body, int64_t body_bytes):
        """Take what an answer says; False for Python to read it."""
        cdef int32_t i
        cdef int found = 0
        if head.code not in (CODE_FOUND, CODE_NOT_FOUND, CODE_RETRY_IMMEDIATELY, CODE_OFFSET_MOVED):
            return False
        for i in range(head.count):
            if span_is(&head.keys[i], b"suggestWhichBrokerId"):
                found += parse_i64(&head.values[i], &self.suggest_which_broker_id)
            elif span_is(&head.keys[i], b"nextBeginOffset"):
                found += parse_i64(&head.values[i], &self.next_begin_offset)
            elif span_is(&head.keys[i], b"minOffset"):
                found += parse_i64(&head.values[i], &self.min_offset)
            elif span_is(&head.keys[i], b"maxOffset"):
                found += parse_i64(&head.values[i], &self.max_offset)
            elif span_is(&head.keys[i], b"offsetDelta"):
                if not parse_i64(&head.values[i], &self.offset_delta):
                    return False
        if found != 4:
            return False
        self.code = head.code
        self.body = PyBytes_FromStringAndSize(<const char*>body, body_bytes)
        return True


@cython.final
cdef class PullHead:
    """What the pulls of one queue have in common; see _core.pyi."""

    cdef int32_t code
    cdef bint binary
    cdef bytes before                # the fields up to the queue id
    cdef bytes middle                # the most messages
    cdef bytes behind                # those from the time to wait on

    def __init__(self, int32_t code, bint binary, dict before not None, dict middle not None,
                 dict behind not None):
        self.code = code
        self.binary = binary
        self.before = rendered_fields(before, binary)
        self.middle = rendered_fields(middle, binary)
        self.behind = rendered_fields(behind, binary)

    def encode(self, int32_t opaque, int64_t queue_offset, int32_t sys_flag, int64_t commit_offset):
        """A whole request."""
        cdef bytes frame = PyBytes_FromStringAndSize(
            NULL, RESPONSE_BYTES + len(self.before) + len(self.middle) + len(self.behind))
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
            to = put_text_bytes(to, self.behind)
            put_i32(fields - 4, <int32_t>(to - fields))
        else:
            to = put_decimal(put_ascii(to, b'{"code":'), self.code)
            to = put_text_bytes(put_ascii(to, b',"extFields":{'), self.before)
            to = put_decimal(put_ascii(to, b',"queueOffset":"'), queue_offset)
            to = put_text_bytes(put_ascii(to, b'",'), self.middle)
            to = put_decimal(put_ascii(to, b',"sysFlag":"'), sys_flag)
            to = put_decimal(put_ascii(to, b'","commitOffset":"'), commit_offset)
            to = put_text_bytes(put_ascii(to, b'",'), self.behind)
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
