# UnitCollector: the walk of the Dispatcher with memory in place of files, for folders that must not be
# changed and whose queue files are missing or incomplete.
from _core.layout cimport (BATCH_CQ_UNIT_BYTES, CQ_UNIT_BYTES, PARSED_RECORD, RECORD_MIN_BYTES,
                           SYS_INNER_BATCH, Record)
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int16_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc


cdef class UnitRange:
    """Units of one queue, in memory of its own; a read-only buffer of raw 20-byte (batch: 46-byte) units."""

    cdef readonly str topic
    cdef readonly int queue_id
    cdef readonly bint batch
    cdef readonly int64_t first_queue_offset
    cdef readonly int64_t next_queue_offset
    cdef readonly int64_t repeated      # records left out: their queue offsets cannot be true
    cdef readonly int64_t miscounted    # batches that state another number of messages than they hold
    cdef readonly int64_t odd_where     # physical offset of the first of both; only with such records
    cdef uint8_t* units
    cdef int64_t size_bytes

    def __dealloc__(self):
        free(self.units)

    def __len__(self):
        return self.size_bytes // (BATCH_CQ_UNIT_BYTES if self.batch else CQ_UNIT_BYTES)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.units, self.size_bytes, 1, flags)


cdef int64_t QUEUE_OFFSET_MAX = (<int64_t>1 << 58) // CQ_UNIT_BYTES      # its byte place still fits an int64


cdef class UnitCollector:
    """Gathers the units that dispatch would write."""

    cdef QueueTable table
    cdef object batch_topics
    cdef int64_t* delays
    cdef int32_t delay_count
    cdef readonly int64_t message_count
    cdef int64_t where                  # end of the last range; -1: none yet
    cdef int64_t fill_units             # units that may still be missing from all queues

    def __init__(self, batch_topics=(), *, delays_ms=DELAYS_MS):
        cdef int i
        self.table = QueueTable()
        self.where = -1
        self.batch_topics = frozenset(batch_topics)
        self.delay_count = <int32_t>len(delays_ms)
        self.delays = <int64_t*>malloc(<size_t>(self.delay_count + 1) * sizeof(int64_t))
        if self.delays == NULL:
            raise MemoryError()
        for i in range(self.delay_count):
            self.delays[i] = delays_ms[i]

    def __dealloc__(self):
        free(self.delays)

    def collect(self, LogView view not None, start_offset=None, end_offset=None):
        """Gather the units of records in a range of the log; returns where it ended."""
        cdef int64_t where = view.start_offset if start_offset is None else start_offset
        cdef int64_t end = min(view.end_offset, view.end_offset if end_offset is None else end_offset)
        cdef int status = 0
        cdef int64_t begin = where
        cdef QueueEntry* entry = NULL
        if self.where < 0:
            self.fill_units = GAP_UNITS_FREE
        elif where > self.where:
            self.fill_units += (where - self.where) // RECORD_MIN_BYTES
        while True:
            with nogil:
                cold_enter()
                status = self._walk(view, &where, end, &entry)
                cold_leave()
            if status == WALK_NO_MEMORY:
                raise MemoryError()
            view.check_intact(begin, where + 1)
            if status != WALK_NEEDS_QUEUE:
                self.where = where
                return where
            entry.batch = entry.batch or entry_topic(entry) in self.batch_topics
            entry.seen = True

    cdef int _walk(self, LogView view, int64_t* where, int64_t end, QueueEntry** stop) noexcept nogil:
        cdef Record record
        cdef RecordFacts facts
        cdef QueueEntry* entry
        cdef int status
        while True:
            cold_pause()
            status = step_to_record(view, where, end, &record)
            if status != PARSED_RECORD:
                return status
            prefetch_ahead(record.start, record.size_bytes)
            if has_unit(&record):
                entry = self.table.of(record.topic, record.topic_bytes, record.queue_id)
                if entry == NULL:
                    return WALK_NO_MEMORY
                if not entry.seen:
                    # Seen for the first time: is it a batch queue?
                    entry.batch = (record.sys_flag & SYS_INNER_BATCH) != 0
                    stop[0] = entry
                    return WALK_NEEDS_QUEUE
                read_facts(record.properties, record.properties_bytes, &facts)
                if self._add(entry, &record, &facts) < 0:
                    return WALK_NO_MEMORY
            where[0] += record.size_bytes
            self.message_count += 1

    cdef int _add(self, QueueEntry* entry, const Record* record, const RecordFacts* facts) noexcept nogil:
        cdef int64_t base = record.queue_offset
        cdef int64_t code = code_of(entry, record, facts, self.delays, self.delay_count)
        cdef int16_t count = 1
        cdef uint8_t* unit
        if entry.batch and not batch_place(record, facts, &base, &count):
            note_odd(entry, record)
            entry.miscounted += 1
        if base < entry.next_queue_offset or base < 0 or base > QUEUE_OFFSET_MAX:
            note_odd(entry, record)
            entry.repeated += 1
            return 0
        if entry.first_queue_offset < 0:
            entry.first_queue_offset = entry.next_queue_offset = base
        if not entry.batch and base > entry.next_queue_offset:
            # Units can be missing only where the walk jumped.
            self.fill_units -= base - entry.next_queue_offset
            if self.fill_units < 0:
                self.fill_units += base - entry.next_queue_offset
                note_odd(entry, record)
                entry.repeated += 1
                return 0
            if self._fill(entry, base) < 0:
                return -1
        unit = room_for(entry, BATCH_CQ_UNIT_BYTES if entry.batch else CQ_UNIT_BYTES)
        if unit == NULL:
            return -1
        if entry.batch:
            write_batch_unit(unit, record.physical_offset, record.size_bytes, code, record.store_timestamp,
                             base, count)
        else:
            write_unit(unit, record.physical_offset, record.size_bytes, code)
        entry.next_queue_offset = base + count
        return 0

    cdef int _fill(self, QueueEntry* entry, int64_t queue_offset) noexcept nogil:
        cdef uint8_t* unit
        while entry.next_queue_offset < queue_offset:
            unit = room_for(entry, CQ_UNIT_BYTES)
            if unit == NULL:
                return -1
            write_unit(unit, 0, FILL_SIZE_BYTES, 0)
            entry.next_queue_offset += 1
        return 0

    def take(self):
        """Hand over the gathered units as {(topic, queue id): UnitRange}; later units follow these."""
        cdef QueueEntry* entry
        cdef UnitRange run
        runs = {}
        for address in self.table.entries():
            entry = <QueueEntry*><size_t>address
            if entry.used_bytes == 0 and entry.repeated == 0:
                continue
            run = UnitRange.__new__(UnitRange)
            run.topic = entry_topic(entry)
            run.queue_id = entry.queue_id
            run.batch = entry.batch
            run.first_queue_offset = entry.first_queue_offset
            run.next_queue_offset = entry.next_queue_offset
            run.repeated = entry.repeated
            run.miscounted = entry.miscounted
            run.odd_where = entry.odd_where
            run.units = entry.units
            run.size_bytes = entry.used_bytes
            entry.units = NULL
            entry.used_bytes = entry.room_bytes = entry.repeated = entry.miscounted = 0
            entry.first_queue_offset = entry.next_queue_offset
            runs[run.topic, run.queue_id] = run
        return runs


cdef inline void note_odd(QueueEntry* entry, const Record* record) noexcept nogil:
    if entry.repeated == 0 and entry.miscounted == 0:
        entry.odd_where = record.physical_offset


cdef inline uint8_t* room_for(QueueEntry* entry, int64_t size_bytes) noexcept nogil:
    """The next free bytes of a gathering entry; NULL without memory."""
    cdef int64_t room
    cdef void* units
    if entry.used_bytes + size_bytes > entry.room_bytes:
        room = entry.room_bytes * 2 if entry.room_bytes else 1024
        units = realloc(entry.units, <size_t>room)
        if units == NULL:
            return NULL
        entry.units = <uint8_t*>units
        entry.room_bytes = room
    ASSERT(entry.used_bytes + size_bytes <= entry.room_bytes)
    entry.used_bytes += size_bytes
    return entry.units + entry.used_bytes - size_bytes


def collect_units(LogView view not None, start_offset=None, end_offset=None, *, batch_topics=()):
    """Units that dispatch of a range of the log would write, as {(topic, queue id): UnitRange}."""
    collector = UnitCollector(batch_topics)
    cdef int64_t end = min(view.end_offset, view.end_offset if end_offset is None else end_offset)
    cdef int64_t where = collector.collect(view, start_offset, end)
    cdef Record record
    if step_to_record(view, &where, end, &record) == WALK_CORRUPT:
        raise_corrupt(view, where, "there is no record")
    return collector.take()
