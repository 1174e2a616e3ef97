# QueueAppender: the hot path from Python to one queue. Arguments are made ready first; `CommitLog.place`
# then runs no Python code, so that nothing comes between reading the log's end and publishing the new one.
from _core.layout cimport SYS_INNER_BATCH
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from pyledger import errors

cdef enum:
    YIELD_BYTES = 1 << 20            # bytes of one call after which other threads may run


cdef inline int64_t yield_if_due(Draft* d, int64_t since_yield) noexcept:
    """Let other threads run after many bytes of one call; return the bytes appended since then."""
    if since_yield <= YIELD_BYTES:
        return since_yield
    if let_others_run() and d.follows_clock:
        d.store_timestamp = 0
    return 0


cdef class QueueAppender:
    """The prepared way to one queue: its header is encoded once, and its queue offsets are counted here."""

    cdef readonly CommitLog log
    cdef readonly str topic
    cdef readonly int queue_id
    cdef int64_t next_offset
    cdef bytes topic_bytes
    cdef RecordTemplate template

    @property
    def next_queue_offset(self):
        """Queue offset (units) that the next message gets."""
        return self.next_offset

    cdef int prepare(self, CommitLog log, str topic, int queue_id) except -1:
        self.log = log
        self.topic = topic
        self.queue_id = queue_id
        self.topic_bytes = check_topic(topic, log.strict_topics)
        fill_template(&self.template, self.topic_bytes, is_long(topic, self.topic_bytes), queue_id,
                      log.store_host_bytes, log.store_host_bytes)
        return 0

    cdef inline const RecordTemplate* template_from(self, born_host, RecordTemplate* with_host) except NULL:
        """The header for another born host than the store host, built in the caller's memory."""
        if born_host is None:
            return &self.template
        fill_template(with_host, self.topic_bytes, is_long(self.topic, self.topic_bytes), self.queue_id,
                      encode_host(born_host), self.log.store_host_bytes)
        return with_host

    def put(self, body, tags=None, keys=None, properties=None, *, int flag=0, int sys_flag=0,
            int64_t born_timestamp_ms=0, born_host=None, int reconsume_times=0,
            int64_t prepared_transaction_offset=0, int64_t store_timestamp_ms=0):
        """Append one message; return its physical offset (bytes). Arguments as `CommitLog.append`."""
        cdef Draft draft
        start_draft(&draft, self.log.crc_property)
        draft.flag = flag
        draft.sys_flag = sys_flag
        draft.born_timestamp = born_timestamp_ms
        draft.reconsume_times = reconsume_times
        draft.prepared_transaction_offset = prepared_transaction_offset
        draft.store_timestamp = store_timestamp_ms
        self.append_draft(&draft, body, tags, keys, properties, born_host)
        return draft.physical_offset

    cdef inline const RecordTemplate* fill_draft(self, Draft* d, tags, keys, bytes properties, born_host,
                                                 RecordTemplate* with_host) except NULL:
        """Point the draft at what the caller keeps alive; the template to use."""
        if tags is not None:
            borrow_text(tags, "tags", &d.tags, &d.tags_bytes)
        if keys is not None:
            borrow_text(keys, "keys", &d.keys, &d.keys_bytes)
        if properties is not None:
            d.properties = <const uint8_t*>PyBytes_AS_STRING(properties)
            d.properties_bytes = PyBytes_GET_SIZE(properties)
        return self.template_from(born_host, with_host)

    cdef inline int64_t append_draft(self, Draft* d, body, tags, keys, properties,
                                     born_host) except -1:
        """Fill in what one message brings and place it; its size."""
        cdef RecordTemplate with_host
        cdef const RecordTemplate* template
        cdef bytes encoded = None
        cdef int64_t size_bytes
        if d.sys_flag & SYS_INNER_BATCH and not d.keep_queue_offset:
            raise errors.IllegalMessageError("an inner batch is appended with append_inner_batch")
        if properties is not None:
            encoded = properties_to_bytes(properties)
        template = self.fill_draft(d, tags, keys, encoded, born_host, &with_host)
        if PyBytes_CheckExact(body):
            d.body = <const uint8_t*>PyBytes_AS_STRING(body)
            d.body_bytes = PyBytes_GET_SIZE(body)
            size_bytes = self.log.place(template, self, d, queue_units(d.sys_flag))
        else:
            size_bytes = self.place_buffer(template, d, body)
        self.log.wake()
        return size_bytes

    cdef int64_t place_buffer(self, const RecordTemplate* template, Draft* d, body) except -1:
        """Place a message whose body is another bytes-like object than `bytes`."""
        cdef Py_buffer view
        if body is None:
            raise errors.IllegalMessageError("a message needs a body; it may be empty")
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            d.body = <const uint8_t*>view.buf
            d.body_bytes = view.len
            return self.log.place(template, self, d, queue_units(d.sys_flag))
        finally:
            PyBuffer_Release(&view)

    def put_many(self, bodies, tags=None, keys=None, properties=None, *, int64_t born_timestamp_ms=0,
                 int64_t store_timestamp_ms=0):
        """Append many messages that share all but their bodies; return the physical offset of the first."""
        cdef Draft draft
        cdef CommitLog log = self.log
        # A tuple of our own: other threads may change the caller's list while this one waits for a file.
        cdef tuple items = tuple(bodies)
        cdef bytes encoded = None
        cdef Py_ssize_t i
        cdef int64_t first = -1
        cdef int64_t since_yield = 0
        start_draft(&draft, log.crc_property)
        draft.born_timestamp = born_timestamp_ms
        draft.store_timestamp = store_timestamp_ms
        draft.follows_clock = store_timestamp_ms == 0
        if properties is not None:
            encoded = properties_to_bytes(properties)
        self.fill_draft(&draft, tags, keys, encoded, None, &self.template)
        items = self.check_bodies(items, &draft)
        for i in range(len(items)):
            draft.body = <const uint8_t*>PyBytes_AS_STRING(items[i])
            draft.body_bytes = PyBytes_GET_SIZE(items[i])
            since_yield += log.place(&self.template, self, &draft, 1)
            if first < 0:
                first = draft.physical_offset
            since_yield = yield_if_due(&draft, since_yield)
        log.wake()
        return first

    cdef tuple check_bodies(self, tuple items, Draft* d):
        """The bodies as bytes, each checked against the limits."""
        cdef Py_ssize_t i
        cdef int64_t longest = 0
        if not items:
            raise errors.IllegalMessageError("there are no bodies to append")
        for i in range(len(items)):
            if not PyBytes_CheckExact(items[i]):
                if None in items:
                    raise errors.IllegalMessageError("a message needs a body; it may be empty")
                return self.check_bodies(tuple([bytes(memoryview(item)) for item in items]), d)
            longest = max(longest, PyBytes_GET_SIZE(items[i]))
        d.body_bytes = longest
        self.log.check_record(&self.template, d)
        return items
