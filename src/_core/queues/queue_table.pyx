# QueueTable: from (topic bytes, queue id) to what a walk over the log needs to know of that queue, without
# the interpreter lock. And what such a walk reads of each record besides its fixed fields.
from _core.layout cimport (PARSED_BLANK, PARSED_RECORD, SYS_COMPRESSED, SYS_INNER_BATCH, SYS_TRANSACTION_MASK,
                           SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK, Record, get_i32, java_hash)
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

from pyledger import errors

cdef enum:
    WALK_CORRUPT = -30               # the bytes at `where` are no record
    WALK_NO_MEMORY = -31
    WALK_NEEDS_QUEUE = -32
    WALK_DAMAGED = -33               # bytes of the log are gone
    WALK_INDEX = -34                 # added to a status that the index gave

cdef struct QueueEntry:
    uint64_t hash
    uint8_t* topic
    int32_t topic_bytes
    int32_t queue_id
    int32_t topic_hash               # Java's hash of "topic#", the start of each index key's hash
    bint delayed                     # the topic of delayed messages: tags codes are delivery times
    bint batch
    bint nameless                    # topic or queue id cannot name a folder: the queue can have no files
    bint stalled                     # cannot be created or extended: dispatch skips it until `retry`
    int64_t stalled_next_offset      # queue offset after the last skipped record
    UnitCursor* cursor               # NULL until the queue is open
    # Of a walk that gathers units in memory:
    bint seen                        # `batch` is known
    uint8_t* units
    int64_t used_bytes
    int64_t room_bytes
    int64_t first_queue_offset
    int64_t next_queue_offset
    int64_t repeated
    int64_t miscounted
    int64_t odd_where                # physical offset of the first of those; 0 is none without a count

cdef extern from "log/properties.h" nogil:
    ctypedef struct RecordFacts:
        int64_t delay_level
        int64_t inner_base
        int64_t inner_count
        const uint8_t* tags
        const uint8_t* unique_key
        const uint8_t* keys
        int32_t tags_bytes
        int32_t unique_key_bytes
        int32_t keys_bytes
    void read_facts(const uint8_t* text, int32_t length, RecordFacts* facts)

cdef extern from *:
    """
    /* Prefetch the head and the tail of the record after next, assuming that all have this one's size. */
    static inline void prefetch_ahead(const uint8_t *p, int64_t size) {
        __builtin_prefetch(p + 2 * size);
        __builtin_prefetch(p + 2 * size + 64);
        __builtin_prefetch(p + 3 * size - 128);
        __builtin_prefetch(p + 3 * size - 64);
    }
    """
    void prefetch_ahead(const uint8_t* p, int64_t size) noexcept nogil


cdef inline bint has_unit(const Record* record) noexcept nogil:
    """Whether consumers may see the record: half messages and rollbacks have no unit."""
    cdef int32_t kind = record.sys_flag & SYS_TRANSACTION_MASK
    return kind != SYS_TRANSACTION_PREPARED and kind != SYS_TRANSACTION_ROLLBACK


cdef inline int64_t code_of(const QueueEntry* entry, const Record* record, const RecordFacts* facts,
                            const int64_t* delays, int32_t delay_count) noexcept nogil:
    """Tags code of a unit: the hash of the tags, or when a delayed message is due."""
    cdef int64_t level
    if entry.delayed and facts.delay_level > 0 and delay_count > 0:
        level = facts.delay_level if facts.delay_level < delay_count else delay_count
        return record.store_timestamp + delays[level - 1]
    return 0 if facts.tags == NULL else text_hash(0, facts.tags, facts.tags_bytes)


cdef int64_t messages_of(const Record* record) noexcept nogil:
    """Messages that the body of an inner batch holds; -1 where it cannot be taken apart."""
    cdef int64_t at = 0
    cdef int64_t count = 0
    cdef int32_t size_bytes
    if (record.sys_flag & SYS_INNER_BATCH) == 0 or record.sys_flag & SYS_COMPRESSED:
        return -1
    while at < record.body_bytes:
        if record.body_bytes - at < BATCH_ITEM_MIN_BYTES:
            return -1
        size_bytes = get_i32(record.body + at)
        if size_bytes < BATCH_ITEM_MIN_BYTES or size_bytes > record.body_bytes - at:
            return -1
        at += size_bytes
        count += 1
    return count if 0 < count <= 32767 else -1


cdef inline bint batch_place(const Record* record, const RecordFacts* facts, int64_t* base,
                             int16_t* count) noexcept nogil:
    """First queue offset and number of messages of a record in a batch queue; whether they are plausible.

    No digest covers properties. A number that is too high would hide the records that follow.
    """
    cdef int64_t held = messages_of(record)
    base[0] = record.queue_offset
    count[0] = 1
    if facts.inner_base >= 0 and 0 < facts.inner_count <= 32767:
        base[0] = facts.inner_base
        count[0] = <int16_t>facts.inner_count
    if held > 0 and held != count[0]:
        count[0] = <int16_t>held
        return False
    return True


cdef bint names_folder(const uint8_t* topic, int32_t length) noexcept nogil:
    """Whether `queue_folder` would take a topic. No broker stores another; a damaged record may name one."""
    if length <= 0 or length > 255 or memchr(topic, 0, <size_t>length) or memchr(topic, 47, <size_t>length):
        return False
    return topic[0] != 46 or length > 2 or length == 2 and topic[1] != 46


cdef inline uint64_t topic_hash(const uint8_t* topic, int32_t length, int32_t queue_id) noexcept nogil:
    cdef uint64_t h = <uint64_t><uint32_t>queue_id * 0x9E3779B97F4A7C15ULL + <uint64_t>length
    cdef uint64_t word
    cdef int32_t i = 0
    while i + 8 <= length:
        memcpy(&word, topic + i, 8)
        h = (h ^ word) * 0xBF58476D1CE4E5B9ULL
        h ^= h >> 29
        i += 8
    while i < length:
        h = (h ^ topic[i]) * 0x94D049BB133111EBULL
        i += 1
    return h ^ (h >> 32)


cdef class QueueTable:
    """Open addressing over malloc'ed entries; entries never move."""

    cdef QueueEntry** buckets
    cdef QueueEntry* last
    cdef int64_t mask
    cdef int64_t count

    def __cinit__(self):
        self.buckets = <QueueEntry**>calloc(256, sizeof(QueueEntry*))
        if self.buckets == NULL:
            raise MemoryError()
        self.mask = 255

    def __dealloc__(self):
        cdef int64_t i
        if self.buckets == NULL:
            return
        for i in range(self.mask + 1):
            if self.buckets[i] != NULL:
                free(self.buckets[i].units)
                free(self.buckets[i].topic)
                free(self.buckets[i])
        free(self.buckets)

    cdef QueueEntry* of(self, const uint8_t* topic, int32_t topic_bytes, int32_t queue_id) noexcept nogil:
        """The entry of a queue, made when it is new; NULL without memory."""
        cdef QueueEntry* entry = self.last
        cdef uint64_t hash
        cdef int64_t i
        if entry != NULL and entry.queue_id == queue_id and entry.topic_bytes == topic_bytes and (
                memcmp(entry.topic, topic, <size_t>topic_bytes) == 0):
            return entry
        hash = topic_hash(topic, topic_bytes, queue_id)
        i = <int64_t>(hash & <uint64_t>self.mask)
        while self.buckets[i] != NULL:
            entry = self.buckets[i]
            if entry.hash == hash and entry.queue_id == queue_id and entry.topic_bytes == topic_bytes and (
                    memcmp(entry.topic, topic, <size_t>topic_bytes) == 0):
                self.last = entry
                return entry
            i = (i + 1) & self.mask
        return self._add(hash, topic, topic_bytes, queue_id)

    cdef QueueEntry* _add(self, uint64_t hash, const uint8_t* topic, int32_t topic_bytes,
                          int32_t queue_id) noexcept nogil:
        cdef QueueEntry* entry
        cdef int64_t i
        if self.count * 2 > self.mask and not self._grow():
            return NULL
        entry = <QueueEntry*>calloc(1, sizeof(QueueEntry))
        if entry == NULL:
            return NULL
        entry.topic = <uint8_t*>malloc(<size_t>topic_bytes + 1)
        if entry.topic == NULL:
            free(entry)
            return NULL
        memcpy(entry.topic, topic, <size_t>topic_bytes)
        entry.topic[topic_bytes] = 35                        # "#"
        entry.hash = hash
        entry.topic_bytes = topic_bytes
        entry.queue_id = queue_id
        entry.topic_hash = java_hash(0, entry.topic, topic_bytes + 1)
        entry.delayed = topic_bytes == 19 and memcmp(topic, b"SCHEDULE_TOPIC_XXXX", 19) == 0
        entry.nameless = queue_id < 0 or not names_folder(topic, topic_bytes)
        entry.first_queue_offset = -1
        i = <int64_t>(hash & <uint64_t>self.mask)
        while self.buckets[i] != NULL:
            i = (i + 1) & self.mask
        self.buckets[i] = entry
        self.count += 1
        self.last = entry
        return entry

    cdef bint _grow(self) noexcept nogil:
        cdef int64_t size = (self.mask + 1) * 2
        cdef int64_t i, j
        cdef QueueEntry** buckets = <QueueEntry**>calloc(<size_t>size, sizeof(QueueEntry*))
        if buckets == NULL:
            return False
        for i in range(self.mask + 1):
            if self.buckets[i] != NULL:
                j = <int64_t>(self.buckets[i].hash & <uint64_t>(size - 1))
                while buckets[j] != NULL:
                    j = (j + 1) & (size - 1)
                buckets[j] = self.buckets[i]
        free(self.buckets)
        self.buckets = buckets
        self.mask = size - 1
        return True

    cdef list entries(self):
        """Addresses of all entries, as integers."""
        cdef int64_t i
        return [<size_t>self.buckets[i] for i in range(self.mask + 1) if self.buckets[i] != NULL]


cdef str entry_topic(const QueueEntry* entry):
    return (<const char*>entry.topic)[:entry.topic_bytes].decode("utf-8", "surrogateescape")


cdef int step_to_record(LogView view, int64_t* where, int64_t end, Record* record) noexcept nogil:
    """Parse the record at `where`, or after the blank there. PARSED_RECORD, its offset in `where`; 0 when
    none ends at or before `end`; WALK_CORRUPT when the bytes at `where` are no record."""
    cdef const Span* span
    cdef int64_t at = where[0]
    cdef bint is_filler = False
    cdef int status
    while at < end:
        status = view.parse(at, record)
        if status == PARSED_RECORD:
            if record.physical_offset != at:
                return WALK_CORRUPT
            if record.size_bytes > end - at:
                return 0
            where[0] = at
            return PARSED_RECORD
        if status == PARSED_BLANK:
            span = view.find(at)
            if span == NULL:
                return WALK_CORRUPT
            at = span.start + view.file_size_bytes
            is_filler = True
        else:
            at = view.after_head(at, &is_filler)
            if at < 0:
                return WALK_CORRUPT
        if at > end:
            return 0
        if is_filler:
            where[0] = at            # else the walk comes back to the entry's head
    return 0


cdef int raise_corrupt(LogView view, int64_t physical_offset, str problem) except -1:
    paths = [(<MappedFile>file).path for file in view.files
             if (<MappedFile>file).start_offset <= physical_offset]
    raise errors.CorruptRecordError(paths[len(paths) - 1] if paths else "", physical_offset, problem)
