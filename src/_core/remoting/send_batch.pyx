# Plain sends in batches: those to one queue that a connection received together are appended directly from
# the receive buffer and answered in one piece of bytes. A send that is not plain ends the batch
# and is left to Python, which is the model that this is tested against.
cimport cython
from _core.layout cimport PROPERTY_END, SYS_INNER_BATCH, SYS_TRANSACTION_MASK
from _core.text cimport is_utf8
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy

from pyledger import errors

cdef enum:
    RUN_REQUESTS_MAX = 512
    RUN_BYTES_MAX = 1 << 20
    PROPERTY_NAMES_MAX = 24
    NAME_END = 1


cdef struct PropertyFacts:
    const uint8_t* unique_key        # NULL: none
    int64_t unique_key_bytes
    bint is_closed                   # the last value has its end, or there is none


cdef inline bint is_name(const uint8_t* name, int64_t size, bytes wanted) noexcept:
    return size == PyBytes_GET_SIZE(wanted) and memcmp(name, PyBytes_AS_STRING(wanted), <size_t>size) == 0


cdef bint read_ordinary_properties(bytes encoded, tuple special, PropertyFacts* facts) noexcept:
    """Whether properties can be stored as they are: well formed, no name twice, none of the special names."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(encoded)
    cdef const uint8_t* end = p + PyBytes_GET_SIZE(encoded)
    cdef const uint8_t* item_end
    cdef const uint8_t* name_end
    cdef const uint8_t* names[PROPERTY_NAMES_MAX]
    cdef int64_t sizes[PROPERTY_NAMES_MAX]
    cdef int count = 0
    cdef Py_ssize_t i
    facts.unique_key = NULL
    facts.is_closed = p == end or (end - 1)[0] == PROPERTY_END
    if not is_utf8(p, end - p):
        return False
    while p < end:
        item_end = <const uint8_t*>memchr(p, PROPERTY_END, <size_t>(end - p))
        if item_end == NULL:
            item_end = end
        name_end = <const uint8_t*>memchr(p, NAME_END, <size_t>(item_end - p))
        if name_end == NULL or name_end == p or name_end + 1 == item_end or count == PROPERTY_NAMES_MAX:
            return False
        names[count] = p
        sizes[count] = name_end - p
        for i in range(count):
            if sizes[i] == sizes[count] and memcmp(names[i], p, <size_t>sizes[i]) == 0:
                return False
        for i in range(len(special)):
            if is_name(p, sizes[count], <bytes>special[i]):
                return False
        if is_name(p, sizes[count], b"UNIQ_KEY"):
            facts.unique_key = name_end + 1
            facts.unique_key_bytes = item_end - name_end - 1
        elif is_name(p, sizes[count], b"WAIT") and item_end - name_end == 6:
            if memcmp(name_end + 1, b"false", 5) == 0:
                return False
        count += 1
        p = item_end + 1
    return True


cdef inline const uint8_t* body_of(DecodedRequest request) noexcept:
    """The body where it was received."""
    if PyBytes_CheckExact(request.owner):
        return <const uint8_t*>PyBytes_AS_STRING(request.owner) + request.at_body
    return <const uint8_t*>PyByteArray_AS_STRING(request.owner) + request.at_body


@cython.final
cdef class SendBatch:
    """Sends that were appended, one after another, to one queue."""

    cdef SendBatchAppender maker
    cdef readonly list requests
    cdef readonly str topic
    cdef readonly int queue_id
    cdef readonly int64_t size_bytes
    cdef readonly int64_t end_offset
    cdef readonly int64_t queue_end
    cdef OffsetList written          # of all messages
    cdef list ends                   # for each request, how many messages there are up to it
    cdef list queue_offsets          # of its first message, for each request

    def __init__(self):
        raise TypeError("SendBatchAppender makes these")

    def __dealloc__(self):
        free(self.written.offsets)

    @property
    def message_count(self):
        """Messages in all requests."""
        return self.written.count

    @property
    def properties(self):
        """Properties of the message as they came, if there is but one."""
        cdef SendRequest request = self.requests[0]
        return request.properties if self.written.count == 1 and not request.batch else None

    def answers(self, int code, str remark):
        """The responses to all requests that want one, in one piece; see _core.pyi."""
        cdef SendRequest request
        cdef PropertyFacts facts
        cdef Py_ssize_t i
        cdef int64_t begin = 0
        cdef int64_t end
        cdef list found = []
        cdef bytes ids
        for i in range(len(self.requests)):
            request = self.requests[i]
            end = self.ends[i]
            if not request.flag & COMMAND_ONEWAY:
                facts.unique_key = NULL
                facts.unique_key_bytes = 0
                if request.properties is not None:
                    read_ordinary_properties(request.properties, (), &facts)
                ids = self.message_ids(begin, end)
                found.append(write_send_response(
                    request.serialize, request.opaque, code, remark, PyBytes_AS_STRING(ids),
                    PyBytes_GET_SIZE(ids), self.queue_id, self.queue_offsets[i],
                    <const char*>facts.unique_key, facts.unique_key_bytes, self.maker.region,
                    self.maker.trace_on))
            begin = end
        return found[0] if len(found) == 1 else b"".join(found)

    cdef bytes message_ids(self, int64_t begin, int64_t end):
        """Ids of messages of one request, with commas between them."""
        cdef bytes prefix = self.maker.id_prefix
        cdef int64_t prefix_bytes = PyBytes_GET_SIZE(prefix)
        cdef int64_t each = prefix_bytes + 17
        cdef bytes ids = PyBytes_FromStringAndSize(NULL, (end - begin) * each - 1)
        cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(ids)
        cdef int64_t i, offset
        cdef int digit
        for i in range(begin, end):
            if i > begin:
                to[0] = c','
                to += 1
            memcpy(to, PyBytes_AS_STRING(prefix), <size_t>prefix_bytes)
            to += prefix_bytes
            offset = self.written.offsets[i]
            for digit in range(16):
                to[15 - digit] = <uint8_t>HEX_DIGITS[offset & 15]
                offset >>= 4
            to += 16
        ASSERT(to == <uint8_t*>PyBytes_AS_STRING(ids) + PyBytes_GET_SIZE(ids))
        return ids


@cython.final
cdef class SendBatchAppender:
    """Appends plain sends in batches; see _core.pyi."""

    cdef CommitLog log
    cdef bytes added
    cdef bytes id_prefix
    cdef tuple special
    cdef str region
    cdef bint trace_on
    # The template of the last run, and what it was made for.
    cdef RecordTemplate template
    cdef QueueAppender appender
    cdef object born_host

    def __init__(self, CommitLog log not None, bytes added_properties not None, tuple special not None,
                 str region not None, bint trace_on):
        self.log = log
        self.added = added_properties
        self.special = special + (b"__CRC32#",)
        self.region = region
        self.trace_on = trace_on
        self.id_prefix = log.store_host_bytes.hex().upper().encode()

    def append(self, list frames not None, Py_ssize_t begin, born_host, Py_ssize_t requests_max):
        """Append frames from `begin` on as far as they are one run; see _core.pyi."""
        cdef SendBatch run = SendBatch.__new__(SendBatch)
        cdef SendRequest request
        # A copy of its own: other threads may run while a file is added.
        cdef RecordTemplate template
        cdef QueueAppender appender = None
        cdef Draft draft
        cdef Py_ssize_t i
        cdef int64_t size_bytes
        cdef int64_t count = 0
        run.maker = self
        run.requests = []
        run.ends = []
        run.queue_offsets = []
        for i in range(begin, min(<Py_ssize_t>len(frames), begin + min(requests_max, RUN_REQUESTS_MAX))):
            if type(frames[i]) is not SendRequest or run.size_bytes > RUN_BYTES_MAX:
                break
            request = frames[i]
            if appender is not None and (request.queue_id != run.queue_id or request.topic != run.topic):
                break
            try:
                if appender is None:
                    run.topic = request.topic
                    run.queue_id = request.queue_id
                    appender = self.log.appender(run.topic, run.queue_id)
                    self.prepare(appender, born_host)
                    template = self.template
                size_bytes = self.place_request(&template, appender, request, &draft, &run.written)
            except errors.PyLedgerError:
                # Python takes this request next, gets the same error, and responds with it.
                run.written.count = count
                break
            if size_bytes == 0:
                break
            run.queue_end = draft.queue_offset + 1
            run.queue_offsets.append(run.queue_end - (run.written.count - count))
            count = run.written.count
            run.requests.append(request)
            run.ends.append(count)
            run.size_bytes += size_bytes
            run.end_offset = self.log.queue.last.start_offset + self.log.queue.last.wrote
        if count == 0:
            return None
        self.log.wake()
        return run

    cdef int prepare(self, QueueAppender appender, born_host) except -1:
        """Make the template of a queue and a peer, unless it is that of the last run."""
        if appender is self.appender and born_host is self.born_host:
            return 0
        self.appender = None
        if born_host is None:
            self.template = appender.template
        else:
            appender.template_from(born_host, &self.template)
        self.appender = appender
        self.born_host = born_host
        return 0

    cdef int64_t place_request(self, const RecordTemplate* template, QueueAppender appender,
                               SendRequest request, Draft* draft, OffsetList* written) except -1:
        """Append one request; return the bytes of its records, 0 if it is not plain."""
        cdef PropertyFacts facts
        cdef bytes properties = request.properties
        cdef const uint8_t* body = body_of(request)
        cdef int64_t body_bytes = request.at_end - request.at_body
        cdef int64_t size_bytes
        if request.sys_flag & (SYS_TRANSACTION_MASK | SYS_INNER_BATCH) or body_bytes == 0:
            return 0
        if request.reconsume_times is not None and request.reconsume_times < 0:
            return 0
        if properties is None:
            properties = b""
        if not read_ordinary_properties(properties, self.special, &facts):
            return 0
        start_draft(draft, self.log.crc_property)
        draft.sys_flag = request.sys_flag
        draft.born_timestamp = request.born_timestamp
        if request.reconsume_times is not None:
            draft.reconsume_times = request.reconsume_times
        if request.batch:
            return self.log.place_batch(template, appender, draft, body, body_bytes, written)
        properties = properties + self.added if facts.is_closed else properties + b"\x02" + self.added
        draft.flag = request.message_flag
        draft.body = body
        draft.body_bytes = body_bytes
        draft.properties = <const uint8_t*>PyBytes_AS_STRING(properties)
        draft.properties_bytes = PyBytes_GET_SIZE(properties)
        keep_offsets(written, 1)
        size_bytes = self.log.place(template, appender, draft, 1)
        written.offsets[written.count] = draft.physical_offset
        written.count += 1
        return size_bytes
