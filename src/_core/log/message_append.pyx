# Messages as users describe them become records: of those that come together either all are written or none.
# A message is checked and kept alive before the first record is written; its fields may change meanwhile.
cimport cython
from _core.layout cimport SYS_INNER_BATCH
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from pyledger import errors


@cython.final
cdef class _PreparedMessage:
    """One message that can be written without running any Python code."""

    cdef QueueAppender appender
    cdef RecordTemplate with_host
    cdef const RecordTemplate* template
    cdef Draft draft                 # points into the objects below
    cdef bytes body
    cdef bytes properties
    cdef object tags
    cdef object keys

    cdef int64_t prepare(self, CommitLog log, message) except -1:
        """Take over a message's fields; the size of its record, every limit checked."""
        cdef Draft* d = &self.draft
        body, properties, born_timestamp_ms = message.body, message.properties, message.born_timestamp_ms
        self.appender = log.appender(message.topic, message.queue_id)
        if body is None:
            raise errors.IllegalMessageError("a message needs a body; it may be empty")
        self.body = body if type(body) is bytes else bytes(memoryview(body))
        self.properties = properties_to_bytes(properties) if properties else None
        self.tags, self.keys = message.tags, message.keys
        start_draft(d, log.crc_property)
        d.body = <const uint8_t*>PyBytes_AS_STRING(self.body)
        d.body_bytes = PyBytes_GET_SIZE(self.body)
        d.flag = message.flag
        d.sys_flag = message.sys_flag
        d.born_timestamp = 0 if born_timestamp_ms is None else born_timestamp_ms
        d.reconsume_times = message.reconsume_times
        d.prepared_transaction_offset = message.prepared_transaction_offset
        if d.sys_flag & SYS_INNER_BATCH:
            raise errors.IllegalMessageError("an inner batch is appended with append_inner_batch")
        self.template = self.appender.fill_draft(d, self.tags, self.keys, self.properties, message.born_host,
                                                 &self.with_host)
        return log.check_record(self.template, d)


cdef list append_all_or_none(CommitLog log, messages):
    """What `CommitLog.append` returns, for each message."""
    cdef _PreparedMessage one
    cdef list prepared = []
    cdef list results = []
    cdef int64_t total = 0
    cdef int64_t size_bytes
    for message in messages:
        one = _PreparedMessage.__new__(_PreparedMessage)
        total += log.head_bytes + one.prepare(log, message)
        prepared.append(one)
    if len(prepared) > 1 and total + BLANK_BYTES > log.queue.file_size_bytes:
        raise errors.RecordTooLargeError("batch", total, log.queue.file_size_bytes - BLANK_BYTES)
    if prepared and not log.has_space(total, len(prepared)):
        log.make_space(total, len(prepared))
    for one in prepared:
        size_bytes = log.place(one.template, one.appender, &one.draft, queue_units(one.draft.sys_flag))
        results.append((one.draft.physical_offset, size_bytes, one.draft.queue_offset,
                        one.draft.store_timestamp))
    log.wake()
    return results
