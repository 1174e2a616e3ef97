# KeyCollector: the keys that dispatch would put into the index, in memory: for folders that must not change
# and whose index files are missing or incomplete, and to compare index files with the log.
from _core.layout cimport (PARSED_RECORD, SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK, Record)
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr

cimport cython

# One key of one record; the fields are in the machine's byte order.
cdef struct CollectedKey:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t hash
    int32_t of_tags                  # RocketMQ 5.4 and later index `topic#T#tags`, too; others do not


@cython.final
cdef class KeyCollector:
    """Gathers the key hashes of records, oldest first; a read-only buffer of 24-byte entries."""

    cdef CollectedKey* entries
    cdef int64_t count
    cdef int64_t room
    cdef readonly int64_t of_tags_count
    cdef int exports
    cdef bint with_tags

    def __init__(self, *, bint with_tags=False):
        self.with_tags = with_tags

    def __dealloc__(self):
        free(self.entries)

    def __len__(self):
        return self.count

    def collect(self, LogView view not None, int64_t start_offset, end_offset=None):
        """Gather the keys of records in a range of the log; returns where it ended."""
        cdef int64_t where = start_offset
        cdef int64_t limit = view.end_offset
        cdef int64_t end = limit if end_offset is None else min(<int64_t>end_offset, limit)
        cdef int status
        if self.exports:
            raise BufferError("the keys are in use")
        with nogil:
            cold_enter()
            status = self._walk(view, &where, end)
            cold_leave()
        if status == WALK_NO_MEMORY:
            raise MemoryError()
        view.check_intact(start_offset, where + 1)
        return where

    cdef int _walk(self, LogView view, int64_t* where, int64_t end) noexcept nogil:
        cdef Record record
        cdef RecordFacts facts
        cdef int status
        while True:
            cold_pause()
            status = step_to_record(view, where, end, &record)
            if status != PARSED_RECORD:
                return status
            if (record.sys_flag & SYS_TRANSACTION_MASK) != SYS_TRANSACTION_ROLLBACK:
                read_facts(record.properties, record.properties_bytes, &facts)
                if self._add_keys(&record, &facts) < 0:
                    return WALK_NO_MEMORY
            where[0] += record.size_bytes

    cdef int _add_keys(self, const Record* record, const RecordFacts* facts) noexcept nogil:
        cdef int32_t topic_hash = java_hash(java_hash(0, record.topic, record.topic_bytes), b"#", 1)
        cdef const uint8_t* at = facts.keys
        cdef const uint8_t* stop
        cdef const uint8_t* end
        if facts.unique_key != NULL:
            if self._add(record, key_hash(topic_hash, facts.unique_key, facts.unique_key_bytes)) < 0:
                return -1
        end = at + facts.keys_bytes if at != NULL else at
        while at < end:
            stop = <const uint8_t*>memchr(at, 32, <size_t>(end - at))
            if stop == NULL:
                stop = end
            if stop > at and self._add(record, key_hash(topic_hash, at, stop - at)) < 0:
                return -1
            at = stop + 1
        if self.with_tags and facts.tags != NULL and facts.tags_bytes > 0:
            topic_hash = java_hash(topic_hash, b"T#", 2)
            return self._add(record, key_hash(topic_hash, facts.tags, facts.tags_bytes), of_tags=True)
        return 0

    cdef int _add(self, const Record* record, int32_t hash, bint of_tags=False) noexcept nogil:
        cdef void* entries
        cdef int64_t room
        if self.count == self.room:
            room = self.room * 2 if self.room else 1024
            entries = realloc(self.entries, <size_t>room * sizeof(CollectedKey))
            if entries == NULL:
                return -1
            self.entries = <CollectedKey*>entries
            self.room = room
        self.entries[self.count] = CollectedKey(record.physical_offset, record.store_timestamp, hash,
                                                of_tags)
        self.count += 1
        self.of_tags_count += of_tags
        return 0

    def query(self, str topic not None, str key not None, int64_t begin_ms=0,
              int64_t end_ms=0x7FFFFFFFFFFFFFFF, int64_t limit=64):
        """Physical offsets of records that may have a key, newest first. Only hashes are compared."""
        cdef int32_t wanted = index_key_hash(topic, key)
        cdef int64_t i
        cdef CollectedKey* entry
        found = []
        for i in range(self.count - 1, -1, -1):
            entry = &self.entries[i]
            if entry.hash == wanted and begin_ms <= entry.store_timestamp <= end_ms:
                if <int64_t>len(found) >= limit:
                    break
                found.append(entry.physical_offset)
        return found

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.entries, self.count * <int64_t>sizeof(CollectedKey), 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.exports -= 1
