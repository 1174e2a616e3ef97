# Search by store time over 20-byte units: through the units of one file, with upstream's answers where no
# message has the wanted time.
from _core.layout cimport AT_SYS_FLAG, CQ_UNIT_BYTES, RECORD_MIN_BYTES, SYS_BORN_HOST_V6, get_i32, get_i64
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef enum:
    FILL_SIZE_BYTES = 0x7FFFFFFF     # size in a unit that names no record

cdef int64_t FIRST_WHERE_MAX = (<int64_t>1) << 58   # offsets of units in memory stay far from overflow


cdef inline bint is_fill(const uint8_t* unit) noexcept nogil:
    return get_i32(unit + 8) == FILL_SIZE_BYTES and get_i64(unit) == 0


# A stretch of units that one file holds; the search by time works on a row of them.
cdef struct UnitSpan:
    const uint8_t* base
    int64_t start_where
    int64_t length


cdef int64_t stored_time(LogView view, const uint8_t* unit) noexcept nogil:
    """Store time of the record that a unit names; -1 when it does not lie in the log."""
    cdef int64_t offset = get_i64(unit)
    cdef int32_t size = get_i32(unit + 8)
    cdef int64_t available = 0
    cdef const uint8_t* record
    if offset < view.start_offset or size < RECORD_MIN_BYTES or offset > view.end_offset - size:
        return -1
    record = view.at(offset, &available)
    if record == NULL or available < RECORD_MIN_BYTES:
        return -1
    return get_i64(record + (68 if get_i32(record + AT_SYS_FLAG) & SYS_BORN_HOST_V6 else 56))


cdef const UnitSpan* span_by_time(LogView view, const UnitSpan* spans, int count, int64_t timestamp,
                                  bint upper) noexcept nogil:
    """The file to search: the first whose last unit is late enough, or the last whose first is early."""
    cdef int i
    cdef int64_t time
    if upper:
        for i in range(count - 1, -1, -1):
            time = stored_time(view, spans[i].base)
            # A first unit whose record is gone (-1) is early enough for any time.
            if (time if time > 0 else -1) <= timestamp:
                return &spans[i]
        return NULL
    for i in range(count - 1):
        if stored_time(view, spans[i].base + spans[i].length - CQ_UNIT_BYTES) >= timestamp:
            return &spans[i]
    return &spans[count - 1] if count else NULL


cdef int64_t search_span(LogView view, const UnitSpan* span, int64_t min_where, int64_t timestamp,
                         bint upper) noexcept nogil:
    """Queue offset for a store time within one file, with upstream's answers at its edges."""
    cdef int64_t floor = max(<int64_t>0, min_where - span.start_where)
    cdef int64_t ceiling = span.length - CQ_UNIT_BYTES
    cdef int64_t low = floor
    cdef int64_t high = ceiling
    cdef int64_t target = -1
    cdef int64_t left = -CQ_UNIT_BYTES
    cdef int64_t right = -CQ_UNIT_BYTES
    cdef int64_t middle, time
    if ceiling < 0 or floor > ceiling:
        return (span.start_where + max(floor, <int64_t>0)) // CQ_UNIT_BYTES
    if stored_time(view, span.base + ceiling) < timestamp:
        return (span.start_where + ceiling) // CQ_UNIT_BYTES + (0 if upper else 1)
    if stored_time(view, span.base + low) > timestamp:
        return 0 if upper else span.start_where // CQ_UNIT_BYTES
    while high >= low:
        middle = (low + high) // (2 * CQ_UNIT_BYTES) * CQ_UNIT_BYTES
        time = stored_time(view, span.base + middle)
        if get_i64(span.base + middle) < view.start_offset or is_fill(span.base + middle):
            low = middle + CQ_UNIT_BYTES
            left = middle
        elif time < 0:
            return 0
        elif time == timestamp:
            target = middle
            break
        elif time > timestamp:
            high = middle - CQ_UNIT_BYTES
            right = middle
        else:
            low = middle + CQ_UNIT_BYTES
            left = middle
    if target < 0:
        target = left if upper else right
    elif upper:
        while target + CQ_UNIT_BYTES <= ceiling and stored_time(
                view, span.base + target + CQ_UNIT_BYTES) == timestamp:
            target += CQ_UNIT_BYTES
    else:
        while target - CQ_UNIT_BYTES >= floor and stored_time(
                view, span.base + target - CQ_UNIT_BYTES) == timestamp:
            target -= CQ_UNIT_BYTES
    return max((span.start_where + target) // CQ_UNIT_BYTES, <int64_t>0)


cdef int64_t search_spans(LogView view, const UnitSpan* spans, int count, int64_t min_where,
                          int64_t timestamp, bint upper) noexcept nogil:
    cdef const UnitSpan* span
    cdef int64_t answer = 0
    cold_enter()
    span = span_by_time(view, spans, count, timestamp, upper)
    if span != NULL:
        answer = search_span(view, span, min_where, timestamp, upper)
    cold_leave()
    return answer


def search_units_by_time(const uint8_t[::1] units not None, LogView view not None, int64_t timestamp_ms, *,
                         bint upper=False, int64_t first_queue_offset=0, int64_t min_queue_offset=0,
                         int64_t file_size_bytes=6_000_000):
    """Queue offset for a store time over raw 20-byte units in memory, as `ConsumeQueue.offset_by_time`."""
    cdef int64_t length = units.shape[0] // CQ_UNIT_BYTES * CQ_UNIT_BYTES
    cdef int64_t where, end
    cdef int64_t done = 0
    cdef int64_t stop, answer
    cdef int count = 0
    cdef UnitSpan* spans
    if (file_size_bytes <= 0 or file_size_bytes % CQ_UNIT_BYTES or length == 0
            or not 0 <= first_queue_offset <= FIRST_WHERE_MAX // CQ_UNIT_BYTES):
        return max(first_queue_offset, min_queue_offset, 0)
    where = first_queue_offset * CQ_UNIT_BYTES
    end = where + length
    spans = <UnitSpan*>malloc(<size_t>((end - where) // file_size_bytes + 2) * sizeof(UnitSpan))
    if spans == NULL:
        raise MemoryError()
    while where < end:
        stop = min(end, (where // file_size_bytes + 1) * file_size_bytes)
        spans[count].base = &units[done]
        spans[count].start_where = where
        spans[count].length = stop - where
        done += stop - where
        where = stop
        count += 1
    answer = search_spans(view, spans, count, min_queue_offset * CQ_UNIT_BYTES, timestamp_ms, upper)
    free(spans)
    return min(max(answer, min_queue_offset, first_queue_offset), end // CQ_UNIT_BYTES)
