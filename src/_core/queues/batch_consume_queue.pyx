# BatchConsumeQueue: 46-byte units, one for a record that may hold many messages. Queue offsets do not follow
# from byte positions here: a lookup is a binary search on the base offsets. See
# docs/formats/consume_queue.md.
from _core.layout cimport (BATCH_CQ_UNIT_BYTES, Record, get_i16, get_i32, get_i32_first, get_i64,
                           put_i16, put_i32, put_i32_last, put_i64)
from _core.posix cimport load_acquire
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from pyledger import errors

cdef enum:
    AT_BATCH_STORE_TIME = 20
    AT_BATCH_BASE = 28
    AT_BATCH_COUNT = 36
    AT_COMPACTED_OFFSET = 38
    AT_BATCH_RESERVED = 42


cdef inline void write_batch_unit(uint8_t* unit, int64_t physical_offset, int32_t size_bytes,
                                  int64_t tags_code, int64_t store_timestamp, int64_t base_offset,
                                  int16_t count) noexcept nogil:
    put_i64(unit, physical_offset)
    put_i64(unit + 12, tags_code)
    put_i64(unit + AT_BATCH_STORE_TIME, store_timestamp)
    put_i64(unit + AT_BATCH_BASE, base_offset)
    put_i16(unit + AT_BATCH_COUNT, count)
    put_i32(unit + AT_COMPACTED_OFFSET, -1)
    put_i32(unit + AT_BATCH_RESERVED, 0)
    put_i32_last(unit + 8, size_bytes)


cdef inline int put_batch_unit(UnitCursor* c, int64_t physical_offset, int32_t size_bytes, int64_t tags_code,
                               int64_t store_timestamp, int64_t base_offset, int16_t count) noexcept nogil:
    """Append one unit, unless the queue has it. PUT_*, or what must be done before putting again."""
    cdef uint8_t* unit
    cdef int status = 0
    if physical_offset <= c.max_physical_offset or base_offset < c.next_queue_offset or count <= 0:
        return PUT_PRESENT
    unit = next_unit(c, &status)
    if unit == NULL:
        return status
    write_batch_unit(unit, physical_offset, size_bytes, tags_code, store_timestamp, base_offset, count)
    c.filled_units += base_offset - c.next_queue_offset
    publish_unit(c, base_offset + count, physical_offset)
    return PUT_APPENDED


cdef int64_t check_batch_units(const uint8_t* units, int64_t length, int64_t limit, int64_t* highest,
                               int64_t* next_offset) noexcept nogil:
    """Bytes of valid units: physical and base offsets ascend, and each record ends below `limit`."""
    cdef int64_t at = 0
    cdef int64_t offset, base
    cdef int32_t size
    cdef int16_t count
    while at + BATCH_CQ_UNIT_BYTES <= length:
        size = get_i32_first(units + at + 8)
        offset = get_i64(units + at)
        base = get_i64(units + at + AT_BATCH_BASE)
        count = get_i16(units + at + AT_BATCH_COUNT)
        if size <= 0 or count <= 0 or offset <= highest[0] or offset > limit - size or base < next_offset[0]:
            break
        highest[0] = offset
        next_offset[0] = base + count
        at += BATCH_CQ_UNIT_BYTES
    return at


cdef int64_t search_batch_units(const uint8_t* units, int64_t length, int64_t timestamp,
                                bint upper) noexcept nogil:
    """Byte position of the unit for a store time in one file, or -1, by upstream's steps: its answers for
    times that no record has follow from them alone."""
    cdef int64_t low = 0
    cdef int64_t high = length // BATCH_CQ_UNIT_BYTES - 1
    cdef int64_t middle, time
    if timestamp >= get_i64(units + high * BATCH_CQ_UNIT_BYTES + AT_BATCH_STORE_TIME):
        return high * BATCH_CQ_UNIT_BYTES
    while low <= high:
        middle = (low + high) // 2
        time = get_i64(units + middle * BATCH_CQ_UNIT_BYTES + AT_BATCH_STORE_TIME)
        if middle == low:
            if time >= timestamp:
                return middle * BATCH_CQ_UNIT_BYTES
            low += 1
        elif upper and time <= timestamp:
            low = middle
        elif upper:
            high = middle - 1
        elif time < timestamp:
            low = middle + 1
        else:
            high = middle
    return -1


cdef int64_t search_batch_spans(const UnitSpan* spans, int count, int64_t timestamp,
                                bint upper) noexcept nogil:
    """Base of the unit for a store time, or -1: in the last file whose first unit is early enough."""
    cdef int chosen = 0
    cdef int i
    cdef int64_t at
    for i in range(1, count):
        if get_i64(spans[i].base + AT_BATCH_STORE_TIME) <= timestamp:
            chosen = i
    at = search_batch_units(spans[chosen].base, spans[chosen].length, timestamp, upper) if count else -1
    return -1 if at < 0 else get_i64(spans[chosen].base + at + AT_BATCH_BASE)


def search_batch_units_by_time(const uint8_t[::1] units not None, int64_t timestamp_ms, *, bint upper=False,
                               int64_t first_where=0, int64_t min_queue_offset=0,
                               int64_t file_size_bytes=300_000 * BATCH_CQ_UNIT_BYTES):
    """Queue offset for a store time over raw 46-byte units, as `BatchConsumeQueue.offset_by_time`."""
    cdef int64_t length = units.shape[0] // BATCH_CQ_UNIT_BYTES * BATCH_CQ_UNIT_BYTES
    cdef int64_t done = 0
    cdef int64_t answer
    cdef int count = 0
    cdef UnitSpan* spans
    if (length == 0 or file_size_bytes <= 0 or file_size_bytes % BATCH_CQ_UNIT_BYTES
            or not 0 <= first_where <= FIRST_WHERE_MAX or first_where % BATCH_CQ_UNIT_BYTES):
        return max(min_queue_offset, 0)
    spans = <UnitSpan*>malloc(<size_t>(length // file_size_bytes + 2) * sizeof(UnitSpan))
    if spans == NULL:
        raise MemoryError()
    while done < length:
        spans[count].base = &units[done]
        spans[count].start_where = first_where + done
        spans[count].length = min(length - done, file_size_bytes - (first_where + done) % file_size_bytes)
        done += spans[count].length
        count += 1
    answer = search_batch_spans(spans, count, timestamp_ms, upper)
    free(spans)
    return max(answer, min_queue_offset, 0)


cdef class BatchConsumeQueue(UnitQueue):
    """The index of one topic and queue whose records are batches; the face of ConsumeQueue."""

    def __init__(self, str folder, str topic, int queue_id, file_size_bytes=None, *, bint readonly=False):
        if file_size_bytes is None and not readonly:
            file_size_bytes = 300_000 * BATCH_CQ_UNIT_BYTES
        self._open(folder, topic, queue_id, file_size_bytes, readonly, BATCH_CQ_UNIT_BYTES)
        self.min_where = self.first_where()
        self._note_end()

    cdef int _note_end(self) except -1:
        cdef int64_t available = 0
        cdef const uint8_t* unit = self.unit_at(self.cursor.end_where - BATCH_CQ_UNIT_BYTES, &available)
        self.cursor.max_physical_offset = -1 if unit == NULL else get_i64(unit)
        self.cursor.next_queue_offset = (
            0 if unit == NULL else get_i64(unit + AT_BATCH_BASE) + get_i16(unit + AT_BATCH_COUNT))
        return 0

    @property
    def min_offset(self):
        cdef int64_t available = 0
        cdef const uint8_t* unit = self.unit_at(self.min_where, &available)
        return self.max_offset if unit == NULL else get_i64(unit + AT_BATCH_BASE)

    @property
    def max_offset(self):
        return load_acquire(&self.cursor.next_queue_offset)

    @property
    def unit_count(self):
        return (load_acquire(&self.cursor.end_where) - self.min_where) // BATCH_CQ_UNIT_BYTES

    def put(self, int64_t physical_offset, int32_t size_bytes, int64_t tags_code, int64_t store_timestamp_ms,
            int64_t base_offset, int count=1):
        """Append a unit for a record of several messages; False when it is already there."""
        cdef int status
        self._check_writable()
        if not 0 < count <= 32767:
            raise errors.IllegalMessageError(f"a batch of {count} messages; 1 to 32767 can be stored")
        while True:
            status = put_batch_unit(&self.cursor, physical_offset, size_bytes, tags_code, store_timestamp_ms,
                                    base_offset, <int16_t>count)
            if status >= 0:
                return status == PUT_APPENDED
            self._make_space(status, base_offset, physical_offset)

    cdef int64_t _find(self, int64_t queue_offset) except? -2:
        """Byte offset of the last unit whose base is at or below `queue_offset`; -1 when all are above."""
        cdef int64_t low = self.min_where
        cdef int64_t high = load_acquire(&self.cursor.end_where)
        cdef int64_t first = low
        cdef int64_t middle, available
        cdef const uint8_t* unit
        available = 0
        while low < high:
            middle = first + (low - first + high - first) // (2 * BATCH_CQ_UNIT_BYTES) * BATCH_CQ_UNIT_BYTES
            unit = self.unit_at(middle, &available)
            if unit != NULL and get_i64(unit + AT_BATCH_BASE) <= queue_offset:
                low = middle + BATCH_CQ_UNIT_BYTES
            else:
                high = middle
        return low - BATCH_CQ_UNIT_BYTES if low > first else -1

    def get(self, int64_t queue_offset):
        """Return the fields of the unit that holds an offset."""
        cdef int64_t available = 0
        cdef int64_t where = self._find(queue_offset)
        cdef const uint8_t* unit = NULL
        if where >= 0:
            unit = self.unit_at(where, &available)
        if unit == NULL or queue_offset >= get_i64(unit + AT_BATCH_BASE) + get_i16(unit + AT_BATCH_COUNT):
            raise errors.OffsetOutOfRangeError(queue_offset, self.min_offset, self.max_offset)
        return (get_i64(unit), get_i32(unit + 8), get_i64(unit + 12), get_i64(unit + AT_BATCH_STORE_TIME),
                get_i64(unit + AT_BATCH_BASE), get_i16(unit + AT_BATCH_COUNT))

    def units(self, int64_t start, int64_t count):
        """View raw 46-byte units from the one that holds queue offset `start`; ends at the file's end."""
        cdef int64_t available = 0
        cdef int64_t where
        cdef const uint8_t* unit
        if start >= self.max_offset:
            return memoryview(b"")
        where = max(self._find(start), self.min_where)
        unit = self.unit_at(where, &available)
        # More than one step only over units that do not ascend.
        while unit != NULL and start >= get_i64(unit + AT_BATCH_BASE) + get_i16(unit + AT_BATCH_COUNT):
            where += BATCH_CQ_UNIT_BYTES
            unit = self.unit_at(where, &available)
        return self.view_units_at(where, count)

    def recover(self, LogView view=None, *, int files=3):
        """Find the last valid unit in the last `files` files (0: in all), and truncate the queue after it."""
        cdef int64_t where, good, end, available
        cdef int64_t highest = -1
        cdef int64_t next_offset = 0
        cdef int64_t limit = view.end_offset if view is not None else ((<int64_t>1) << 62)
        cdef const uint8_t* unit
        cdef Record record
        available = 0
        end = self.cursor.end_where
        good = where = self.first_where()
        if files and len(self.files) > files:
            good = where = (<MappedFile>self.files[len(self.files) - files]).start_offset
        while where < end:
            unit = self.unit_at(where, &available)
            if unit == NULL:
                break
            good = where + check_batch_units(unit, available, limit, &highest, &next_offset)
            where += available
            if good < where:
                break
        while view is not None and good > self.first_where():
            unit = self.unit_at(good - BATCH_CQ_UNIT_BYTES, &available)
            if unit == NULL or get_i64(unit) < view.start_offset or (
                    view.parse(get_i64(unit), &record) == 1 and record.size_bytes == get_i32(unit + 8)
                    and record.queue_id == self.queue_id
                    and record.store_timestamp == get_i64(unit + AT_BATCH_STORE_TIME)):
                break
            good -= BATCH_CQ_UNIT_BYTES
        dropped = self._count_dropped(good, limit)
        self._set_end(good)
        self._note_end()
        self.min_where = min(max(self.min_where, self.first_where()), self.cursor.end_where)
        return dropped

    def truncate_to_physical(self, int64_t physical_offset):
        """Drop units whose records end after `physical_offset`. Durable on return."""
        cdef int64_t available = 0
        cdef int64_t where = self.cursor.end_where
        cdef const uint8_t* unit
        self._check_writable()
        while where > self.first_where():
            unit = self.unit_at(where - BATCH_CQ_UNIT_BYTES, &available)
            if unit != NULL and get_i64(unit) + get_i32(unit + 8) <= physical_offset:
                break
            where -= BATCH_CQ_UNIT_BYTES
        if where != self.cursor.end_where:
            self._set_end(where)
            self._note_end()
            self.min_where = min(self.min_where, self.cursor.end_where)

    def correct_min_offset(self, int64_t min_physical_offset):
        """Move `min_offset` to the first unit that names a record at or above the log's start."""
        cdef int64_t low = max(self.min_where, self.first_where())
        cdef int64_t high = self.cursor.end_where
        cdef int64_t middle, available
        cdef const uint8_t* unit
        available = 0
        while low < high:
            middle = low + (high - low) // (2 * BATCH_CQ_UNIT_BYTES) * BATCH_CQ_UNIT_BYTES
            unit = self.unit_at(middle, &available)
            if unit == NULL or get_i64(unit) >= min_physical_offset:
                high = middle
            else:
                low = middle + BATCH_CQ_UNIT_BYTES
        self.min_where = low

    def offset_by_time(self, LogView view, int64_t timestamp_ms, *, bint upper=False):
        """Queue offset for a store time in ms, from the times in the units; `view` is not needed."""
        cdef int64_t available = 0
        cdef int64_t answer
        cdef int count = 0
        cdef const uint8_t* unit
        cdef MappedFile file
        cdef UnitSpan* spans = <UnitSpan*>malloc((<size_t>len(self.files) + 1) * sizeof(UnitSpan))
        if spans == NULL:
            raise MemoryError()
        for file in self.files:
            unit = self.unit_at(file.start_offset, &available)
            if unit != NULL:
                spans[count] = UnitSpan(unit, file.start_offset, available)
                count += 1
        answer = search_batch_spans(spans, count, timestamp_ms, upper)
        free(spans)
        return min(max(answer, self.min_offset, 0), self.max_offset)

    def delete_head(self, int64_t min_physical_offset):
        """Remove files of deleted records only, never the last file; returns their paths."""
        self._check_writable()
        self.correct_min_offset(min_physical_offset)
        return self._delete_head()
