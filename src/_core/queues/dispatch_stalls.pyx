# What dispatch keeps of parsed records, and of records that a queue or the index could not take.
from _core.posix cimport store_release
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t

from pyledger import errors

cdef tuple REFUSED = (errors.StoreFullError, errors.StoreIOError, OSError)


cdef struct PendingRecord:
    QueueEntry* queue
    int64_t physical_offset
    int64_t queue_offset
    int64_t tags_code
    int64_t store_timestamp
    int64_t inner_base
    int32_t size_bytes
    int32_t keys_end                 # its keys are keys[previous record's keys_end:keys_end]
    int16_t inner_count
    bint unit
    bint inner_batch

cdef struct PendingKey:
    uint8_t* slot
    int32_t hash


cdef class _Stall:
    """A queue or the index that could not take a record."""

    cdef PendingRecord record        # the first missing one
    cdef int32_t key_hash            # the first one missing in the index
    cdef object error


cdef void pass_over(const PendingRecord* pending) noexcept nogil:
    """Skip the unit of a stalled queue, but note its next queue offset."""
    cdef QueueEntry* entry = pending.queue
    cdef int64_t end = pending.queue_offset + 1
    if entry.batch or pending.inner_batch:
        end = pending.inner_base + pending.inner_count
    if end > entry.stalled_next_offset:
        entry.stalled_next_offset = end


cdef class _Stalls:
    """All that waits. Changed under the dispatcher's lock; `least` is read without it."""

    cdef dict queues                 # (topic, queue id) -> _Stall
    cdef _Stall index
    cdef bint has_index
    cdef int64_t least               # published: first record missing in a queue or the index

    def __cinit__(self):
        self.queues = {}
        self.least = INT64_MAX

    cdef int add(self, PendingRecord* pending, error) except -1:
        cdef _Stall stall = _Stall()
        stall.record = pending[0]
        stall.error = error
        pending.queue.stalled = True
        pending.queue.stalled_next_offset = 0
        self.queues[entry_topic(pending.queue), pending.queue.queue_id] = stall
        store_release(&self.least, min(self.least, pending.physical_offset))
        return 0

    cdef int add_index(self, PendingRecord* pending, int32_t key_hash, error) except -1:
        self.index = _Stall()
        self.index.record = pending[0]
        self.index.key_hash = key_hash
        self.index.error = error
        self.has_index = True
        store_release(&self.least, min(self.least, pending.physical_offset))
        return 0

    cdef int lift(self, tuple key) except -1:
        """Let a queue have units again; `least` stays until its missing units are added."""
        cdef _Stall stall = self.queues.pop(key, None)
        if stall is not None:
            stall.record.queue.stalled = False
        return 0

    cdef int lift_index(self) except -1:
        self.index = None
        self.has_index = False
        return 0

    cdef int restore(self, dict queues, _Stall index) except -1:
        cdef _Stall stall
        self.queues.update(queues)
        for stall in queues.values():
            stall.record.queue.stalled = True
        if index is not None:
            self.index = index
            self.has_index = True
        return self.publish()

    cdef int remove(self, tuple key) except -1:
        self.lift(key)
        return self.publish()

    cdef int clear(self) except -1:
        for key in list(self.queues):
            self.lift(key)
        self.lift_index()
        return self.publish()

    cdef int publish(self) except -1:
        cdef _Stall stall
        cdef int64_t least = INT64_MAX
        for stall in self.queues.values():
            least = min(least, stall.record.physical_offset)
        if self.index is not None:
            least = min(least, self.index.record.physical_offset)
        store_release(&self.least, least)
        return 0

    cdef list listed(self):
        """[(topic, queue id, physical offset, next queue offset, error)]; the index is ("", -1, …)."""
        cdef _Stall stall
        found = []
        for (topic, queue_id), stall in self.queues.items():
            found.append((topic, queue_id, stall.record.physical_offset,
                          stall.record.queue.stalled_next_offset, stall.error))
        if self.index is not None:
            found.append(("", -1, self.index.record.physical_offset, 0, self.index.error))
        return found
