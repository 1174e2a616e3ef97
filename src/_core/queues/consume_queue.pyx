# ConsumeQueue: 20-byte units (physical offset i64, size i32, tags code i64), unit n at byte n * 20.
# An accelerator, never an authority: everything in it comes from the log. See docs/formats/consume_queue.md.
from _core.layout cimport (CQ_UNIT_BYTES, Record, find_property, get_i32, get_i32_first, get_i64, java_hash,
                           put_i32_last, put_i64)
from _core.posix cimport load_acquire
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from pyledger import errors


cdef inline void write_unit(uint8_t* unit, int64_t physical_offset, int32_t size_bytes,
                            int64_t tags_code) noexcept nogil:
    # A unit without a size is none: a process that is killed in between must not leave half of one.
    put_i64(unit + 12, tags_code)
    put_i64(unit, physical_offset)
    put_i32_last(unit + 8, size_bytes)


cdef inline int put_unit(UnitCursor* c, int64_t physical_offset, int32_t size_bytes, int64_t tags_code,
                         int64_t queue_offset) noexcept nogil:
    """Append one unit, unless the queue has it. PUT_*, or what must be done before putting again."""
    cdef uint8_t* unit
    cdef int status = 0
    if physical_offset + size_bytes <= c.max_physical_offset or queue_offset < c.next_queue_offset:
        return PUT_PRESENT
    if queue_offset > c.next_queue_offset:
        return PUT_GAP
    unit = next_unit(c, &status)
    if unit == NULL:
        return status
    write_unit(unit, physical_offset, size_bytes, tags_code)
    publish_unit(c, queue_offset + 1, physical_offset + size_bytes)
    return PUT_APPENDED


cdef int64_t check_units(const uint8_t* units, int64_t length, int64_t limit,
                         int64_t* highest) noexcept nogil:
    """Bytes of valid units: physical offsets ascend and are below `limit`."""
    cdef int64_t at = 0
    cdef int64_t offset
    cdef int32_t size
    while at + CQ_UNIT_BYTES <= length:
        size = get_i32_first(units + at + 8)
        offset = get_i64(units + at)
        if not is_fill(units + at):
            if size <= 0 or offset < 0 or offset < highest[0] or offset > limit - size:
                break
            highest[0] = offset + size
        at += CQ_UNIT_BYTES
    return at


cdef int64_t tags_hash_of(const Record* record) noexcept nogil:
    """Java's hash of TAGS, 0 without; the delivery times of delayed messages are the dispatcher's matter."""
    cdef const uint8_t* tags = NULL
    cdef int32_t tags_bytes = 0
    if not find_property(record, b"TAGS", 4, &tags, &tags_bytes):
        return 0
    return java_hash(0, tags, tags_bytes)


cdef class ConsumeQueue(UnitQueue):
    """The index of one topic and queue into the commit log."""

    cdef readonly object ext

    def __init__(self, str folder, str topic, int queue_id, file_size_bytes=None, *, bint readonly=False,
                 ext_folder=None):
        if file_size_bytes is None and not readonly:
            file_size_bytes = 6_000_000
        self._open(folder, topic, queue_id, file_size_bytes, readonly, CQ_UNIT_BYTES)
        self.cursor.next_queue_offset = self.cursor.end_where // CQ_UNIT_BYTES
        self.min_where = self.first_where()
        self.ext = None if ext_folder is None else ConsumeQueueExt(ext_folder, topic, queue_id)

    @property
    def min_offset(self):
        return self.min_where // CQ_UNIT_BYTES

    @property
    def max_offset(self):
        return load_acquire(&self.cursor.end_where) // CQ_UNIT_BYTES

    def put(self, int64_t physical_offset, int32_t size_bytes, int64_t tags_code, int64_t queue_offset):
        """Append a unit. False when the queue has it already; missing units before it become fill units."""
        cdef int status
        self._check_writable()
        while True:
            status = put_unit(&self.cursor, physical_offset, size_bytes, tags_code, queue_offset)
            if status >= 0:
                return status == PUT_APPENDED
            self._make_space(status, queue_offset, physical_offset)

    cdef int _make_space(self, int status, int64_t queue_offset, int64_t physical_offset) except -1:
        self._check_writable()
        if status == PUT_GAP:
            return self._fill_to(queue_offset, physical_offset)
        return UnitQueue._make_space(self, status, queue_offset, physical_offset)

    cdef int _fill_to(self, int64_t queue_offset, int64_t physical_offset) except -1:
        """Write fill units up to `queue_offset`, so that unit n is always at byte n * 20."""
        cdef UnitCursor* c = &self.cursor
        cdef uint8_t* unit
        cdef int status = 0
        cdef int64_t start = self.file_size_bytes
        cdef bint fresh = not self.files
        cdef int64_t distance = physical_offset - c.max_physical_offset
        if queue_offset > ((<int64_t>1) << 58) // CQ_UNIT_BYTES or (
                not fresh and queue_offset - c.next_queue_offset > gap_units_max(distance)):
            raise errors.StoreFormatError(
                self.folder, f"the log continues with queue offset {queue_offset}, the queue ends "
                f"at {c.next_queue_offset}", "check the log with `pyledger verify`")
        if fresh:
            start = queue_offset * CQ_UNIT_BYTES // self.file_size_bytes * self.file_size_bytes
            self._add_file(start)
            c.next_queue_offset = start // CQ_UNIT_BYTES
            c.filled_units += c.next_queue_offset
        while c.next_queue_offset < queue_offset:
            unit = next_unit(c, &status)
            if unit == NULL:
                UnitQueue._make_space(self, status, queue_offset, physical_offset)
                continue
            write_unit(unit, 0, FILL_SIZE_BYTES, 0)
            publish_unit(c, c.next_queue_offset + 1, c.max_physical_offset)
            c.filled_units += 1
        if fresh or self.min_where == self.first_where() and c.max_physical_offset < 0:
            self.min_where = queue_offset * CQ_UNIT_BYTES
        return 0

    def get(self, int64_t queue_offset):
        """Return offset, size and tags code of one unit."""
        cdef int64_t available = 0
        cdef const uint8_t* unit = NULL
        cdef int64_t physical_offset, tags_code
        cdef int32_t size_bytes
        if self.min_offset <= queue_offset < self.max_offset:
            unit = self.unit_at(queue_offset * CQ_UNIT_BYTES, &available)
        if unit == NULL:
            raise errors.OffsetOutOfRangeError(queue_offset, self.min_offset, self.max_offset)
        tags_code = get_i64(unit + 12)
        physical_offset = get_i64(unit)
        size_bytes = get_i32(unit + 8)
        self.check_intact()
        if self.ext is not None and tags_code <= EXT_ADDRESS_MAX:
            tags_code = self.ext.tags_code(tags_code)
        return physical_offset, size_bytes, tags_code

    def units(self, int64_t start, int64_t count):
        """View raw 20-byte units from queue offset `start` without copying; ends at the file's end."""
        if start < 0 or start > (<int64_t>1) << 58:
            return memoryview(b"")
        return self.view_units_at(start * CQ_UNIT_BYTES, count)

    def recover(self, LogView view=None, *, int files=3):
        """Find the last valid unit in the last `files` files (0: in all), and truncate the queue after it."""
        cdef int64_t where, end, available
        cdef int64_t highest = -1
        cdef int64_t good
        cdef const uint8_t* unit
        cdef int64_t limit = view.end_offset if view is not None else ((<int64_t>1) << 62)
        available = 0
        end = self.cursor.end_where
        good = where = self.first_where()
        if files and len(self.files) > files:
            where = (<MappedFile>self.files[len(self.files) - files]).start_offset
            good = where
        while where < end:
            unit = self.unit_at(where, &available)
            if unit == NULL:
                break
            good = where + check_units(unit, available, limit, &highest)
            where += available
            if good < where:
                break
        if view is not None:
            good = self._match_last(view, good)
        dropped = self._count_dropped(good, limit)
        self.cursor.max_physical_offset = self._last_end(good)
        self._set_end(good)
        self.cursor.next_queue_offset = self.cursor.end_where // CQ_UNIT_BYTES
        self.min_where = min(max(self.min_where, self.first_where()), self.cursor.end_where)
        return dropped

    cdef int64_t _match_last(self, LogView view, int64_t good) except -1:
        """Drop units that their record disowns, from the end. A record that was deleted cannot disown one."""
        cdef int64_t available = 0
        cdef const uint8_t* unit
        cdef Record record
        while good > self.first_where():
            unit = self.unit_at(good - CQ_UNIT_BYTES, &available)
            if unit == NULL or get_i64(unit) < view.start_offset and not is_fill(unit):
                break
            if not is_fill(unit) and view.parse(get_i64(unit), &record) == 1 and (
                    record.size_bytes == get_i32(unit + 8)
                    and record.queue_offset == good // CQ_UNIT_BYTES - 1
                    and record.queue_id == self.queue_id
                    and self._tags_agree(&record, get_i64(unit + 12))):
                break
            good -= CQ_UNIT_BYTES
        return good

    cdef bint _tags_agree(self, const Record* record, int64_t tags_code) noexcept:
        # Delivery times of delayed messages exceed a hash's range, addresses of extended units fall below it.
        return tags_code == tags_hash_of(record) or tags_code > 0x7FFFFFFF or tags_code <= EXT_ADDRESS_MAX

    cdef int64_t _last_end(self, int64_t where) except -2:
        """End of the record that the last real unit below `where` names; -1 without one."""
        cdef int64_t available = 0
        cdef const uint8_t* unit
        while where > self.first_where():
            where -= CQ_UNIT_BYTES
            unit = self.unit_at(where, &available)
            if unit != NULL and not is_fill(unit):
                return get_i64(unit) + get_i32(unit + 8)
        return -1

    def truncate_to_physical(self, int64_t physical_offset):
        """Drop units whose records end after `physical_offset`. Durable on return."""
        cdef int64_t available = 0
        cdef int64_t where = self.cursor.end_where
        cdef const uint8_t* unit
        self._check_writable()
        while where > self.first_where():
            unit = self.unit_at(where - CQ_UNIT_BYTES, &available)
            if unit != NULL and not is_fill(unit) and get_i64(unit) + get_i32(unit + 8) <= physical_offset:
                break
            where -= CQ_UNIT_BYTES
        if where == self.cursor.end_where:
            return
        self.cursor.max_physical_offset = self._last_end(where)
        self._set_end(where)
        self.cursor.next_queue_offset = self.cursor.end_where // CQ_UNIT_BYTES
        self.min_where = min(self.min_where, self.cursor.end_where)

    def correct_min_offset(self, int64_t min_physical_offset):
        """Move `min_offset` to the first unit that names a record at or above the log's start."""
        cdef int64_t low = max(self.min_where, self.first_where())
        cdef int64_t end = self.cursor.end_where
        cdef int64_t high = end
        cdef int64_t middle, real, available
        available = 0
        while low < high:
            middle = (low + high) // (2 * CQ_UNIT_BYTES) * CQ_UNIT_BYTES
            real = self._next_real(middle, end)
            if real == end or get_i64(self.unit_at(real, &available)) >= min_physical_offset:
                high = middle
            else:
                low = real + CQ_UNIT_BYTES
        self.min_where = self._next_real(low, end)

    cdef int64_t _next_real(self, int64_t where, int64_t end) except -1:
        """The first unit at or after `where` that names a record; `end` without one."""
        cdef int64_t available = 0
        cdef const uint8_t* unit
        while where < end:
            unit = self.unit_at(where, &available)
            if unit != NULL and not is_fill(unit):
                return where
            where += CQ_UNIT_BYTES
        return end

    def offset_by_time(self, LogView view not None, int64_t timestamp_ms, *, bint upper=False):
        """Queue offset for a store time in ms."""
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
        answer = search_spans(view, spans, count, self.min_where, timestamp_ms, upper)
        free(spans)
        self.check_intact()
        view.check_intact(view.start_offset, view.end_offset)
        return min(max(answer, self.min_offset), self.max_offset)

    def delete_head(self, int64_t min_physical_offset):
        """Remove files of deleted records only, never the last file; returns their paths."""
        self._check_writable()
        self.correct_min_offset(min_physical_offset)
        return self._delete_head()
