# The walk over the log: record after record, over blank records into the next file, every digest checked. In
# a DLedger log it passes over the heads of entries, whose bodies the records are.
# Runs without the interpreter lock in slices: short enough for Ctrl-C and progress, long enough that taking
# the lock back costs nothing (each take may wait for another thread's switch interval).
from _core.layout cimport (AT_MAGIC, CHECK_ALL, CHECK_BODY_CRC, CHECK_CRC_PROPERTY, CHECK_POSITION,
                           CHECK_TAIL, CRC_PROPERTY_BYTES, LEAST_PAGE_BYTES, PARSED_BAD_CRC,
                           PARSED_BAD_MAGIC, PARSED_BAD_POSITION, PARSED_BAD_SIZE, PARSED_BLANK,
                           PARSED_RECORD, PARSED_SHORT, PARSED_TORN, RECORD_MIN_BYTES, Record,
                           ends_in_crc_property, get_i64, parse_record)
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr

cimport cython

cdef enum:
    SCAN_END = 2                     # the end of the range is reached
    SCAN_ZEROES = 3                  # zeroes follow: the ordinary end of a log
    SCAN_PAUSED = 4                  # the slice's budget is used up
    SCAN_SLICE_BYTES = 33554432

cdef dict _STOP_NAMES = {
    SCAN_END: "end", SCAN_ZEROES: "zeroes", PARSED_SHORT: "short", PARSED_BAD_MAGIC: "bad magic",
    PARSED_BAD_SIZE: "bad size", PARSED_BAD_CRC: "bad crc", PARSED_BAD_POSITION: "bad position",
    PARSED_BLANK: "blank", PARSED_TORN: "torn",
}
cdef dict _PROBLEMS = {
    SCAN_ZEROES: "zeroes where a record should start",
    PARSED_SHORT: "the bytes end before the record does",
    PARSED_BAD_MAGIC: "no record starts here (unknown magic code)",
    PARSED_BAD_SIZE: "its lengths do not add up",
    PARSED_BAD_CRC: "its bytes do not match the CRC stored with them",
    PARSED_BAD_POSITION: "its stored physical offset is not its own",
    PARSED_TORN: "there are zeroes instead of its topic or properties",
    PARSED_BLANK: "there is a blank record, the end of a file",
}


cdef struct ScanState:
    int64_t offset                   # where the next record is expected
    int64_t record_count
    int64_t blank_count
    int64_t last_record_offset       # -1: none yet
    int64_t last_store_timestamp
    const Span* span                 # where the walk is; NULL: not yet known


cdef bint crc_property_holds(const Record* r) noexcept nogil:
    """Whether the reserved block at a record's end, where there is one, names the record's CRC."""
    cdef const uint8_t* block = r.start + r.size_bytes - CRC_PROPERTY_BYTES
    cdef int64_t stored = 0
    cdef int i
    if not ends_in_crc_property(r.properties, r.properties_bytes):
        return True
    for i in range(18, 8, -1):       # ten digits, the lowest first
        if not 48 <= block[i] <= 57:
            return False
        stored = stored * 10 + (block[i] - 48)
    return stored == (crc32_update(0, r.start, <size_t>(block - r.start)) & 0x7FFFFFFF)


cdef bint tail_is_torn(const Record* r) noexcept nogil:
    """Whether a part of the topic or the properties, which no CRC covers, was replaced by zeroes.

    Java lets users put NUL into properties. So only zeroes count that a crash leaves: a whole page, or all
    from a byte of the last page to the end of that page, beyond the record. A mapping consists of whole
    pages, so the last one can be read to its end. A larger page that was lost shows as several least pages.
    """
    cdef const uint8_t* end = r.start + r.size_bytes
    cdef const uint8_t* at = r.properties
    cdef const uint8_t* page_end
    if memchr(r.topic, 0, <size_t>r.topic_bytes) != NULL:
        return True
    while at < end:
        page_end = at + (LEAST_PAGE_BYTES - (<size_t>at & (LEAST_PAGE_BYTES - 1)))
        if page_end >= end:
            return (end - 1)[0] == 0 and not any_set(end, page_end - end)
        if (page_end - 1)[0] == 0 and not any_set(at, page_end - at):
            return True
        at = page_end
    return False


cdef int check_record(const Record* r, int64_t offset, int checks) noexcept nogil:
    """PARSED_RECORD, or why a parsed record is invalid. As in upstream, an empty body has no CRC."""
    if checks & CHECK_POSITION and r.physical_offset != offset:
        return PARSED_BAD_POSITION
    if checks & CHECK_BODY_CRC and r.body_bytes > 0:
        if <int32_t>(crc32_update(0, r.body, <size_t>r.body_bytes) & 0x7FFFFFFF) != r.body_crc:
            return PARSED_BAD_CRC
    if checks & CHECK_CRC_PROPERTY and not crc_property_holds(r):
        return PARSED_BAD_CRC
    if checks & CHECK_TAIL and tail_is_torn(r):
        return PARSED_TORN
    return PARSED_RECORD


cdef int next_record(LogView view, int64_t end, int checks, ScanState* s, Record* r) noexcept nogil:
    """Step to the next valid record that starts below `end`: PARSED_RECORD, or why there is none."""
    cdef int64_t head = -1           # of the entry that should hold it
    cdef int status = find_record(view, end, checks, s, r, &head)
    if status != PARSED_RECORD and head >= 0:
        s.offset = head
    return status


cdef int find_record(LogView view, int64_t end, int checks, ScanState* s, Record* r,
                     int64_t* head) noexcept nogil:
    cdef int64_t available = 0
    cdef int64_t beyond
    cdef const uint8_t* where
    cdef bint is_filler = False
    cdef int status
    while s.offset < end:
        where = view.walk_to(s.offset, &s.span, &available)
        if where == NULL:
            return PARSED_SHORT if s.offset < view.end_offset else SCAN_END
        status = parse_record(where, available, r)
        if status == PARSED_BAD_MAGIC:
            beyond = view.after_head(s.offset, &is_filler)
            if beyond >= 0:
                s.blank_count += is_filler
                head[0] = -1 if is_filler else s.offset
                s.offset = beyond
                continue
        if status == PARSED_BLANK:
            s.offset = view.next_file_offset(s.offset)
            s.blank_count += 1
            continue
        if status == PARSED_RECORD:
            if checks & CHECK_TAIL:
                view.show_page(s.offset + r.size_bytes)
            status = check_record(r, s.offset, checks)
        if status == PARSED_RECORD:
            s.last_record_offset = s.offset
            s.last_store_timestamp = r.store_timestamp
            s.record_count += 1
            s.offset += r.size_bytes
        elif status == PARSED_BAD_MAGIC and get_i64(where) == 0:
            status = SCAN_ZEROES
        return status
    return SCAN_END


cdef int scan_slice(LogView view, int64_t end, int64_t budget_bytes, int checks, ScanState* s) noexcept nogil:
    """Walk records until `end`, a fault, or the budget: SCAN_PAUSED."""
    cdef Record record
    cdef int64_t pause = s.offset + budget_bytes if s.offset < INT64_MAX - budget_bytes else INT64_MAX
    cdef int status
    while s.offset < pause:
        cold_pause()
        status = next_record(view, end, checks, s, &record)
        if status != PARSED_RECORD:
            return status
    return SCAN_PAUSED if s.offset < end else SCAN_END


cdef int64_t find_valid_record(LogView view, int64_t offset, int64_t end) noexcept nogil:
    """The first offset in [offset, end) of a whole valid record; -1 without one.

    The work is bounded: forged headers cannot make it digest the same bytes again and again.
    """
    cdef Record record
    cdef int64_t available = 0
    cdef int64_t digest_budget = 16 * (max(0, min(end, view.end_offset) - offset)) + 67108864
    cdef int64_t window
    cdef const uint8_t* where
    cdef const uint8_t* hit
    while offset < end:
        cold_pause()
        where = view.at(offset, &available)
        if where == NULL:
            offset = next_span_start(view, offset)
            if offset < 0:
                return -1
            continue
        if available < RECORD_MIN_BYTES:
            offset += available
            continue
        window = view.window(offset, available)
        if window < RECORD_MIN_BYTES:
            offset += max(window, <int64_t>1)
            continue
        # Not beyond `end`: the rest of a file may be a gigabyte of zeroes.
        hit = <const uint8_t*>memchr(where + AT_MAGIC, 0xDA, <size_t>min(window - AT_MAGIC, end - offset))
        if hit == NULL:
            offset += window
            continue
        offset += hit - where - AT_MAGIC
        view.at(offset, &available)
        if (parse_record(hit - AT_MAGIC, available, &record) == PARSED_RECORD
                and record.physical_offset == offset):
            digest_budget -= 2 * record.size_bytes
            if digest_budget < 0:
                return -1
            if check_record(&record, offset, CHECK_ALL) == PARSED_RECORD:
                return offset
        offset += 1
    return -1


cdef int64_t next_span_start(LogView view, int64_t offset) noexcept nogil:
    """Start of the first file that starts after `offset`; -1 without one."""
    cdef int i
    for i in range(view.span_count):
        if view.spans[i].start > offset:
            return view.spans[i].start
    return -1


@cython.final
cdef class ScanStop:
    """Where and why a walk ended, and what it found."""

    cdef readonly int64_t next_offset
    cdef readonly str status
    cdef readonly int64_t record_count
    cdef readonly int64_t blank_count
    cdef readonly int64_t last_record_offset
    cdef readonly int64_t last_store_timestamp
    cdef int code

    @property
    def ordinary(self):
        """Whether the walk ended as an undamaged log ends: at the range's end or at zeroes."""
        return self.code == SCAN_END or self.code == SCAN_ZEROES

    @property
    def problem(self):
        """The fault in words; empty after an ordinary end."""
        return "" if self.ordinary else _PROBLEMS[self.code]

    def __repr__(self):
        return (f"ScanStop(next_offset={self.next_offset}, status={self.status!r}, "
                f"record_count={self.record_count}, blank_count={self.blank_count})")


cdef ScanStop scan_stop(const ScanState* s, int status):
    cdef ScanStop stop = ScanStop.__new__(ScanStop)
    stop.next_offset = s.offset
    stop.code = status
    stop.status = _STOP_NAMES[status]
    stop.record_count = s.record_count
    stop.blank_count = s.blank_count
    stop.last_record_offset = s.last_record_offset
    stop.last_store_timestamp = s.last_store_timestamp
    return stop


def scan(LogView view not None, int64_t start, end=None, *, bint check=True, bint check_tail=False,
         progress=None):
    """Walk the records that start in [start, end) and check each one."""
    cdef ScanState s = [start, 0, 0, -1, 0, NULL]
    cdef int64_t stop = view.end_offset if end is None else end
    cdef int checks = (CHECK_ALL if check else CHECK_POSITION) | (CHECK_TAIL if check_tail else 0)
    cdef int status = SCAN_PAUSED
    while status == SCAN_PAUSED:
        with nogil:
            cold_enter()
            status = scan_slice(view, stop, SCAN_SLICE_BYTES, checks, &s)
            cold_leave()
        view.check_intact(start, s.offset + 1)
        PyErr_CheckSignals()
        if progress is not None:
            progress(s.offset)
    return scan_stop(&s, status)


def split_log(LogView view not None, int64_t start, int64_t end, *, int64_t step_bytes, step_records=None):
    """Split [start, end) into ranges that begin at records."""
    cdef ScanState s = [start, 0, 0, -1, 0, NULL]
    cdef Record record
    cdef int64_t records_max = INT64_MAX if step_records is None else max(1, <int64_t>step_records)
    cdef int64_t begin, stop
    cdef int status = PARSED_RECORD
    cdef list cuts = [start]
    while s.offset < end:
        begin = s.offset
        stop = min(end, begin + max(<int64_t>1, min(step_bytes, end - begin)))
        s.record_count = 0
        with nogil:
            cold_enter()
            while s.offset < stop and s.record_count < records_max:
                cold_pause()
                status = next_record(view, end, CHECK_POSITION, &s, &record)
                if status != PARSED_RECORD:
                    if status != SCAN_END:
                        s.offset = find_valid_record(view, s.offset + 1, end)
                    if status == SCAN_END or s.offset < 0:
                        s.offset = end
            if view.parse(s.offset, &record) == PARSED_BLANK:
                s.offset = view.next_file_offset(s.offset)
            cold_leave()
        view.check_intact(begin, s.offset + 1)
        PyErr_CheckSignals()
        if s.offset < end:
            cuts.append(s.offset)
    return cuts


def find_next_record(LogView view not None, int64_t offset, end=None):
    """The first physical offset in [offset, end) of a whole valid record, or None."""
    cdef int64_t stop = view.end_offset if end is None else end
    cdef int64_t found
    with nogil:
        cold_enter()
        found = find_valid_record(view, offset, stop)
        cold_leave()
    view.check_intact(offset, stop if found < 0 else found + 1)
    return None if found < 0 else found
