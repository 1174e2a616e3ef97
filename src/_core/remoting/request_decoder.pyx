# The requests that a broker gets by the million, sends and pulls, decoded straight from a receive buffer.
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from pyledger import errors

cdef enum:
    CODE_SEND_MESSAGE = 10
    CODE_PULL_MESSAGE = 11
    CODE_SEND_MESSAGE_V2 = 310
    CODE_SEND_BATCH_MESSAGE = 320
    CODE_LITE_PULL_MESSAGE = 361
    COMMAND_RESPONSE = 1
    COMMAND_ONEWAY = 2
    # Indexes of fields in a header; the first eight are required.
    SEND_PRODUCER_GROUP = 0
    SEND_TOPIC = 1
    SEND_DEFAULT_TOPIC = 2
    SEND_DEFAULT_TOPIC_QUEUE_NUMS = 3
    SEND_QUEUE_ID = 4
    SEND_SYS_FLAG = 5
    SEND_BORN_TIMESTAMP = 6
    SEND_FLAG = 7
    SEND_PROPERTIES = 8
    SEND_RECONSUME_TIMES = 9
    SEND_UNIT_MODE = 10
    SEND_MAX_RECONSUME_TIMES = 11
    SEND_BATCH = 12
    SEND_BNAME = 13
    SEND_FIELDS = 14
    SEND_REQUIRED = 0xFF
    PULL_CONSUMER_GROUP = 0
    PULL_TOPIC = 1
    PULL_QUEUE_ID = 2
    PULL_QUEUE_OFFSET = 3
    PULL_MAX_MSG_NUMS = 4
    PULL_SYS_FLAG = 5
    PULL_COMMIT_OFFSET = 6
    PULL_SUSPEND_TIMEOUT_MILLIS = 7
    PULL_SUB_VERSION = 8
    PULL_SUBSCRIPTION = 9
    PULL_EXPRESSION_TYPE = 10
    PULL_MAX_MSG_BYTES = 11
    PULL_REQUEST_SOURCE = 12
    PULL_BNAME = 13
    PULL_FIELDS = 14
    PULL_REQUIRED = 0x1FF
    FIELDS_MAX = 14


cdef const char** SEND_NAMES = [b"producerGroup", b"topic", b"defaultTopic", b"defaultTopicQueueNums",
                                b"queueId", b"sysFlag", b"bornTimestamp", b"flag", b"properties",
                                b"reconsumeTimes", b"unitMode", b"maxReconsumeTimes", b"batch", b"bname"]
cdef const char** PULL_NAMES = [b"consumerGroup", b"topic", b"queueId", b"queueOffset", b"maxMsgNums",
                                b"sysFlag", b"commitOffset", b"suspendTimeoutMillis", b"subVersion",
                                b"subscription", b"expressionType", b"maxMsgBytes", b"requestSource",
                                b"bname"]


cdef class DecodedRequest:
    """What the requests that come often share. Everything else of a command is in `frame`."""

    cdef object owner
    cdef int64_t at_frame
    cdef int64_t at_body
    cdef int64_t at_end
    cdef readonly int32_t code
    cdef readonly int32_t flag
    cdef readonly int32_t opaque
    cdef readonly int32_t language
    cdef readonly int32_t version
    cdef readonly int32_t serialize
    cdef readonly bint has_other_fields
    cdef readonly str topic
    cdef readonly str bname
    cdef readonly int32_t queue_id
    cdef readonly int32_t sys_flag

    def __init__(self):
        raise TypeError("decode_frames makes these")

    @property
    def is_oneway(self):
        """Whether no response is wanted."""
        return self.flag & COMMAND_ONEWAY != 0

    @property
    def frame(self):
        """The whole frame without its length word, for `pyledger.wire.remoting.command.decode`."""
        return memoryview(self.owner).toreadonly()[self.at_frame:self.at_end]

    @property
    def frame_bytes(self):
        """Size of that."""
        return self.at_end - self.at_frame

    @property
    def body(self):
        """The body, a view of the receive buffer."""
        return memoryview(self.owner).toreadonly()[self.at_body:self.at_end]


@cython.final
cdef class SendRequest(DecodedRequest):
    """10, 310 or 320: store a message, or a batch."""

    cdef readonly str producer_group
    cdef readonly str default_topic
    cdef readonly int32_t default_topic_queue_nums
    cdef readonly int64_t born_timestamp
    cdef readonly int32_t message_flag
    cdef readonly bytes properties
    cdef readonly object reconsume_times
    cdef readonly object max_reconsume_times
    cdef readonly bint unit_mode
    cdef readonly bint batch


@cython.final
cdef class PullRequest(DecodedRequest):
    """11 or 361: read messages of a queue."""

    cdef readonly str consumer_group
    cdef readonly int64_t queue_offset
    cdef readonly int32_t max_msg_nums
    cdef readonly int64_t commit_offset
    cdef readonly int64_t suspend_timeout_millis
    cdef readonly int64_t sub_version
    cdef readonly str subscription
    cdef readonly str expression_type
    cdef readonly object max_msg_bytes
    cdef readonly object request_source


cdef bint sort_fields(const CommandHead* head, const char** names, int32_t count, bint by_letter,
                      const TextSpan** fields) noexcept nogil:
    """Store the values of a head by field index, the last one of a name; True if it has other fields."""
    cdef bint others = False
    cdef int32_t i, place
    for i in range(FIELDS_MAX):
        fields[i] = NULL
    for i in range(head.count):
        place = count
        if by_letter:
            if head.keys[i].size == 1 and c'a' <= head.keys[i].at[0] < c'a' + count:
                place = head.keys[i].at[0] - c'a'
        else:
            for place in range(count):
                if span_is(&head.keys[i], names[place]):
                    break
            else:
                place = count
        if place < count:
            fields[place] = &head.values[i]
        else:
            others = True
    return others


cdef inline bint has_all(const TextSpan** fields, uint32_t required) noexcept nogil:
    """Whether the required fields are there."""
    cdef int32_t i
    for i in range(FIELDS_MAX):
        if required >> i & 1 and fields[i] == NULL:
            return False
    return True


cdef inline bint is_true(const TextSpan* span) noexcept nogil:
    """Java's reading of a boolean; letters in either case."""
    return (span != NULL and span.size == 4 and (span.at[0] | 0x20) == c't' and (span.at[1] | 0x20) == c'r'
            and (span.at[2] | 0x20) == c'u' and (span.at[3] | 0x20) == c'e')


cdef object optional_number(const TextSpan* span, bint* usual):
    """A number of 32 bits or None; what cannot be read is unusual."""
    cdef int32_t number = 0
    if span == NULL:
        return None
    if not parse_i32(span, &number):
        usual[0] = False
    return number


cdef str optional_text(const TextSpan* span, bint* usual):
    """A text or None; what cannot be read is unusual."""
    if span == NULL:
        return None
    text = span_text(span)
    if text is None:
        usual[0] = False
    return text


cdef DecodedRequest decode_send(const CommandHead* head):
    """A send, or None for Python to decode."""
    cdef SendRequest request
    cdef const TextSpan* fields[FIELDS_MAX]
    cdef bint usual = True
    cdef bint others = sort_fields(head, SEND_NAMES, SEND_FIELDS, head.code != CODE_SEND_MESSAGE, fields)
    if not has_all(fields, SEND_REQUIRED):
        return None
    request = SendRequest.__new__(SendRequest)
    request.has_other_fields = others
    if not (parse_i32(fields[SEND_DEFAULT_TOPIC_QUEUE_NUMS], &request.default_topic_queue_nums)
            and parse_i32(fields[SEND_QUEUE_ID], &request.queue_id)
            and parse_i32(fields[SEND_SYS_FLAG], &request.sys_flag)
            and parse_i64(fields[SEND_BORN_TIMESTAMP], &request.born_timestamp)
            and parse_i32(fields[SEND_FLAG], &request.message_flag)):
        return None
    request.producer_group = optional_text(fields[SEND_PRODUCER_GROUP], &usual)
    request.topic = optional_text(fields[SEND_TOPIC], &usual)
    request.default_topic = optional_text(fields[SEND_DEFAULT_TOPIC], &usual)
    request.bname = optional_text(fields[SEND_BNAME], &usual)
    request.reconsume_times = optional_number(fields[SEND_RECONSUME_TIMES], &usual)
    request.max_reconsume_times = optional_number(fields[SEND_MAX_RECONSUME_TIMES], &usual)
    request.unit_mode = is_true(fields[SEND_UNIT_MODE])
    request.batch = is_true(fields[SEND_BATCH])
    if fields[SEND_PROPERTIES] != NULL:
        request.properties = span_bytes(fields[SEND_PROPERTIES])
        usual = usual and request.properties is not None
    return request if usual else None


cdef DecodedRequest decode_pull(const CommandHead* head):
    """A pull, or None for Python to decode."""
    cdef PullRequest request
    cdef const TextSpan* fields[FIELDS_MAX]
    cdef bint usual = True
    cdef bint others = sort_fields(head, PULL_NAMES, PULL_FIELDS, False, fields)
    if not has_all(fields, PULL_REQUIRED):
        return None
    request = PullRequest.__new__(PullRequest)
    request.has_other_fields = others
    if not (parse_i32(fields[PULL_QUEUE_ID], &request.queue_id)
            and parse_i64(fields[PULL_QUEUE_OFFSET], &request.queue_offset)
            and parse_i32(fields[PULL_MAX_MSG_NUMS], &request.max_msg_nums)
            and parse_i32(fields[PULL_SYS_FLAG], &request.sys_flag)
            and parse_i64(fields[PULL_COMMIT_OFFSET], &request.commit_offset)
            and parse_i64(fields[PULL_SUSPEND_TIMEOUT_MILLIS], &request.suspend_timeout_millis)
            and parse_i64(fields[PULL_SUB_VERSION], &request.sub_version)):
        return None
    request.consumer_group = optional_text(fields[PULL_CONSUMER_GROUP], &usual)
    request.topic = optional_text(fields[PULL_TOPIC], &usual)
    request.subscription = optional_text(fields[PULL_SUBSCRIPTION], &usual)
    request.expression_type = optional_text(fields[PULL_EXPRESSION_TYPE], &usual)
    request.bname = optional_text(fields[PULL_BNAME], &usual)
    request.max_msg_bytes = optional_number(fields[PULL_MAX_MSG_BYTES], &usual)
    request.request_source = optional_number(fields[PULL_REQUEST_SOURCE], &usual)
    return request if usual else None


cdef DecodedRequest decode_plain_request(const uint8_t* frame, int64_t size):
    """A request of one of the codes above, or None for Python to decode."""
    cdef CommandHead head
    cdef DecodedRequest request
    cdef int64_t at_body = 0
    if not read_command_head(frame, size, &head, &at_body):
        return None
    if head.flag & COMMAND_RESPONSE or head.remark.size:
        return None
    if head.code in (CODE_SEND_MESSAGE, CODE_SEND_MESSAGE_V2, CODE_SEND_BATCH_MESSAGE):
        request = decode_send(&head)
    elif head.code in (CODE_PULL_MESSAGE, CODE_LITE_PULL_MESSAGE):
        request = decode_pull(&head)
    else:
        return None
    if request is not None:
        request.code = head.code
        request.flag = head.flag
        request.opaque = head.opaque
        request.language = head.language
        request.version = head.version
        request.serialize = frame[0]
        request.at_body = at_body
    return request


def decode_head(frame):
    """What a frame has before its body, and where that is; None when it is unusual."""
    cdef Py_buffer view
    cdef CommandHead head
    cdef int64_t at_body = 0
    cdef int32_t i
    cdef dict fields = {}
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        if not read_command_head(<const uint8_t*>view.buf, view.len, &head, &at_body):
            return None
        remark = None
        if head.remark.at != NULL:
            remark = span_text(&head.remark)
            if remark is None:
                return None
        for i in range(head.count):
            # Keys of a binary header were not checked yet.
            if not is_utf8(head.keys[i].at, head.keys[i].size):
                return None
            value = span_value(&head.values[i])
            if value is None:
                return None
            fields[span_text(&head.keys[i])] = value
        return (head.code, head.flag, head.opaque, head.language, head.version, remark, fields,
                (<const uint8_t*>view.buf)[0], at_body)
    finally:
        PyBuffer_Release(&view)


def decode_frames(data, int64_t max_frame_bytes, dict calls=None, *, bint appends=False):
    """Split received bytes into frames, and decode frequent requests; see _core.pyi."""
    cdef const uint8_t* base
    cdef int64_t size, length
    cdef int64_t at = 0
    cdef int64_t length_max = max_frame_bytes - 4
    cdef DecodedRequest request
    cdef list found = []
    view = run = None
    if PyBytes_CheckExact(data):
        base = <const uint8_t*>PyBytes_AS_STRING(data)
        size = PyBytes_GET_SIZE(data)
    elif PyByteArray_CheckExact(data):
        base = <const uint8_t*>PyByteArray_AS_STRING(data)
        size = PyByteArray_GET_SIZE(data)
    else:
        raise TypeError("data must be bytes, or a bytearray that does not change any more")
    while size - at >= 4:
        length = get_i32(base + at)
        if length < 4 or length > length_max:
            raise errors.FrameError(f"a frame of {length} bytes is announced, the limit is {length_max}")
        if length > size - at - 4:
            break
        at += 4
        if calls is not None:
            item = answered_call(base + at, length, calls)
        elif appends:
            item = run_with(run, data, base, at, length)
            if item is not None and item is run:
                at += length
                continue
            run = item
        else:
            item = request = decode_plain_request(base + at, length)
            if request is not None:
                request.owner = data
                request.at_frame = at
                request.at_body += at
                request.at_end = at + length
        if item is None:
            if view is None:
                view = memoryview(data).toreadonly()
            item = view[at:at + length]
        found.append(item)
        at += length
    return found, at
