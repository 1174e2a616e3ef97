# DurableAppender: a QueueAppender whose messages are on disk when a call returns. Append and wait are one
# native call: a thread that holds the interpreter lock for a moment only is out of the next one's way.
from libc.stdint cimport int64_t

from pyledger import errors


cdef class DurableAppender:
    """The prepared way to one queue of a store with sync flush; the face of QueueAppender."""

    cdef readonly QueueAppender appender
    cdef GroupCommit group
    cdef int64_t timeout_ms

    def __cinit__(self, QueueAppender appender not None, GroupCommit group not None, int64_t timeout_ms):
        self.appender = appender
        self.group = group
        self.timeout_ms = timeout_ms

    @property
    def topic(self):
        """Topic of the queue."""
        return self.appender.topic

    @property
    def queue_id(self):
        """Number of the queue."""
        return self.appender.queue_id

    @property
    def next_queue_offset(self):
        """Queue offset (units) that the next message gets."""
        return self.appender.next_offset

    def put(self, body, tags=None, keys=None, properties=None, *, int flag=0, int sys_flag=0,
            int64_t born_timestamp_ms=0, born_host=None, int reconsume_times=0,
            int64_t prepared_transaction_offset=0, int64_t store_timestamp_ms=0):
        """Append one message and wait until it is on disk; return its physical offset (bytes)."""
        cdef Draft draft
        cdef int64_t size_bytes
        start_draft(&draft, self.appender.log.crc_property)
        draft.flag = flag
        draft.sys_flag = sys_flag
        draft.born_timestamp = born_timestamp_ms
        draft.reconsume_times = reconsume_times
        draft.prepared_transaction_offset = prepared_transaction_offset
        draft.store_timestamp = store_timestamp_ms
        size_bytes = self.appender.append_draft(&draft, body, tags, keys, properties, born_host)
        self.await_end(draft.physical_offset, draft.physical_offset + size_bytes)
        return draft.physical_offset

    def put_many(self, bodies, tags=None, keys=None, properties=None, *, int64_t born_timestamp_ms=0,
                 int64_t store_timestamp_ms=0):
        """Append many messages and wait until all are on disk; return the physical offset of the first."""
        cdef int64_t offset = self.appender.put_many(
            bodies, tags, keys, properties, born_timestamp_ms=born_timestamp_ms,
            store_timestamp_ms=store_timestamp_ms)
        self.await_end(offset, self.appender.log.queue.wrote_where)
        return offset

    cdef int await_end(self, int64_t offset, int64_t end_offset) except -1:
        if self.group.wait_until(end_offset, self.timeout_ms) == 0:
            raise errors.FlushTimeoutError(offset, self.timeout_ms)
        return 0
