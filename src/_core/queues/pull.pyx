# What one pull gives: the records of a queue from an offset on, as far as count, bytes and tags allow.
# The walk holds the interpreter lock: it touches a few hundred units at most.
from _core.layout cimport (BATCH_CQ_UNIT_BYTES, CHECK_POSITION, CQ_UNIT_BYTES, PARSED_RECORD, Record,
                           find_property, get_i16, get_i32, get_i64)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

cimport cython

cdef enum:
    # In the order of upstream's GetMessageStatus.
    PULL_FOUND = 0
    PULL_NO_MATCHED_MESSAGE = 1
    PULL_MESSAGE_WAS_REMOVING = 2
    PULL_OFFSET_FOUND_NULL = 3
    PULL_OFFSET_OVERFLOW_BADLY = 4
    PULL_OFFSET_OVERFLOW_ONE = 5
    PULL_OFFSET_TOO_SMALL = 6
    PULL_NO_MESSAGE_IN_QUEUE = 8
    PULL_UNITS_SCANNED_MIN = 800     # units that a pull may pass in search of a match, at least
    TAG_CODES_MAX = 64


@cython.final
cdef class PullLimits:
    """What one pull may give at most: counts and bytes, for records in memory and for older ones on disk."""

    cdef readonly int memory_count
    cdef readonly int64_t memory_bytes
    cdef readonly int disk_count
    cdef readonly int64_t disk_bytes
    cdef readonly int64_t resident_bytes

    def __init__(self, *, int memory_count=32, int64_t memory_bytes=262_144, int disk_count=8,
                 int64_t disk_bytes=65_536, int64_t resident_bytes=(<int64_t>1) << 62):
        self.memory_count = memory_count
        self.memory_bytes = memory_bytes
        self.disk_count = disk_count
        self.disk_bytes = disk_bytes
        self.resident_bytes = resident_bytes


@cython.final
@cython.freelist(64)
cdef class RecordRanges:
    """Places of whole records in the log, in queue order; neighbours in the log are one range."""

    cdef LogView log
    cdef int count
    cdef int64_t* starts             # of each range, followed by as many lengths
    cdef int64_t* lengths
    cdef readonly int64_t size_bytes

    def __cinit__(self, LogView log not None, int records_max):
        self.log = log
        self.starts = <int64_t*>malloc(2 * <size_t>records_max * sizeof(int64_t))
        if self.starts == NULL:
            raise MemoryError()
        self.lengths = self.starts + records_max

    def __dealloc__(self):
        free(self.starts)

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t index):
        if index < 0:
            index += self.count
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.log.view(self.starts[index], self.lengths[index])

    @property
    def places(self):
        """(physical offset, length) of each range, in bytes."""
        cdef int i
        return [(self.starts[i], self.lengths[i]) for i in range(self.count)]

    cdef void load(self, int64_t resident_bytes) noexcept:
        """Read records that may be on disk only without the interpreter lock; `LogView.view` reads others."""
        cdef int i
        if self.count == 0 or self.log.end_offset - self.starts[0] <= resident_bytes:
            return
        with nogil:
            for i in range(self.count):
                self.log.touch(self.starts[i], self.lengths[i])

    cdef int add(self, int64_t start, int64_t length, int64_t file_size) noexcept:
        cdef int last = self.count - 1
        self.size_bytes += length
        if last >= 0 and self.starts[last] + self.lengths[last] == start and start % file_size != 0:
            self.lengths[last] += length
        else:
            self.starts[self.count] = start
            self.lengths[self.count] = length
            self.count += 1
        return 0


cdef bint has_tag(const Record* record, tuple tags) noexcept:
    """Whether the record's own TAGS is one of the wanted ones: codes may collide."""
    cdef const uint8_t* value = NULL
    cdef int32_t length = 0
    cdef Py_ssize_t i
    if not find_property(record, b"TAGS", 4, &value, &length):
        return False
    for i in range(len(tags)):
        wanted = <bytes>tags[i]
        if PyBytes_GET_SIZE(wanted) == length and memcmp(PyBytes_AS_STRING(wanted), value,
                                                         <size_t>length) == 0:
            return True
    return False


cdef bint has_code(int64_t tags_code, const int32_t* codes, int count) noexcept nogil:
    cdef int i
    for i in range(count):
        if codes[i] == <int32_t>tags_code:
            return True
    return False


cdef class _PullWalk:
    """One walk over a queue's units. Collects messages, or ranges when `ranges` is given."""

    cdef LogView log
    cdef RecordRanges ranges
    cdef list messages
    cdef tuple tags
    cdef int32_t[TAG_CODES_MAX] codes
    cdef int code_count
    cdef int max_count
    cdef int64_t max_bytes
    cdef int count                   # messages, those of a batch counted each
    cdef int records
    cdef int records_max
    cdef int64_t size_bytes
    cdef int status
    cdef int64_t min_offset          # of the queue
    cdef int64_t max_offset

    cdef bint full(self, PullLimits limits, int64_t physical_offset, int32_t size_bytes, int batch) noexcept:
        """Upstream's rule; the first record always fits."""
        if self.records == 0:
            return False
        if (self.count + batch > self.max_count or self.size_bytes + size_bytes > self.max_bytes
                or self.records >= self.records_max):
            return True
        if self.log.end_offset - physical_offset <= limits.resident_bytes:
            return self.size_bytes + size_bytes > limits.memory_bytes or self.count >= limits.memory_count
        return self.size_bytes + size_bytes > limits.disk_bytes or self.count >= limits.disk_count

    cdef int take(self, int64_t physical_offset, int32_t size_bytes, int batch) except -1:
        """Collect the record that a unit names, unless it is gone or only its tags code matches."""
        cdef Record record
        cdef int64_t available = 0
        cdef int status
        if self.ranges is not None:
            if self.log.at(physical_offset, &available) == NULL or size_bytes > available:
                self.status = PULL_MESSAGE_WAS_REMOVING if self.records == 0 else self.status
                return 0
            self.ranges.add(physical_offset, size_bytes, self.log.file_size_bytes)
        else:
            status = self.log.parse(physical_offset, &record)
            if status == PARSED_RECORD:
                status = check_record(&record, physical_offset, CHECK_POSITION)
            self.log.check_intact(physical_offset, physical_offset + max(size_bytes, 1), True)
            if status != PARSED_RECORD:
                self.status = PULL_MESSAGE_WAS_REMOVING if self.records == 0 else self.status
                return 0
            if self.code_count and not has_tag(&record, self.tags):
                return 0
            self.messages.append(wrap_record(self.log, &record, physical_offset))
        self.size_bytes += size_bytes
        self.count += batch
        self.records += 1
        self.status = PULL_FOUND
        return 0

    cdef int64_t walk(self, UnitQueue queue, PullLimits limits, int64_t where, int64_t next_offset) except -1:
        """Collect from the unit at byte offset `where` to its file's end at most; the next queue offset."""
        cdef int64_t available = 0
        cdef int32_t unit_bytes = queue.cursor.unit_bytes
        cdef bint batched = unit_bytes == BATCH_CQ_UNIT_BYTES
        cdef const uint8_t* unit = queue.unit_at(where, &available)
        cdef const uint8_t* end = unit + available
        cdef int64_t scanned_max = max(<int64_t>PULL_UNITS_SCANNED_MIN, <int64_t>self.max_count)
        cdef int64_t physical_offset
        cdef int32_t size_bytes
        cdef int batch = 1
        if unit == NULL:
            self.status = PULL_OFFSET_FOUND_NULL
            where += queue.file_size_bytes - where % queue.file_size_bytes
            return next_offset if batched else where // CQ_UNIT_BYTES
        while unit < end and scanned_max > 0:
            physical_offset = get_i64(unit)
            size_bytes = get_i32(unit + 8)
            if batched:
                batch = get_i16(unit + AT_BATCH_COUNT)
            if self.full(limits, physical_offset, size_bytes, batch):
                break
            next_offset = get_i64(unit + AT_BATCH_BASE) + batch if batched else next_offset + 1
            if not is_fill(unit) and (self.code_count == 0 or has_code(get_i64(unit + 12), self.codes,
                                                                       self.code_count)):
                cold_enter()
                try:
                    self.take(physical_offset, size_bytes, batch)
                finally:
                    cold_leave()
            unit += unit_bytes
            scanned_max -= 1
        queue.check_intact()
        if self.ranges is not None:
            self.ranges.load(limits.resident_bytes)
        return next_offset

    cdef int64_t read(self, UnitQueue queue, PullLimits limits, int64_t queue_offset) except -1:
        """Read a queue from an offset on; return the offset of the next pull."""
        cdef int64_t where = queue_offset * CQ_UNIT_BYTES
        self.min_offset = queue.min_offset
        self.max_offset = queue.max_offset
        if self.max_offset == 0:
            self.status = PULL_NO_MESSAGE_IN_QUEUE
            return 0
        if queue_offset < self.min_offset:
            self.status = PULL_OFFSET_TOO_SMALL
            return self.min_offset
        if queue_offset == self.max_offset:
            self.status = PULL_OFFSET_OVERFLOW_ONE
            return queue_offset
        if queue_offset > self.max_offset:
            self.status = PULL_OFFSET_OVERFLOW_BADLY
            return self.max_offset
        self.status = PULL_NO_MATCHED_MESSAGE
        if isinstance(queue, BatchConsumeQueue):
            where = (<BatchConsumeQueue>queue)._find(queue_offset)
        return self.walk(queue, limits, where, queue_offset)


cdef _PullWalk start_walk(LogView log, int max_count, int64_t max_bytes, PullLimits limits, tuple codes,
                          tuple tags, bint as_ranges):
    """A walk that has collected nothing yet."""
    cdef _PullWalk walk = _PullWalk.__new__(_PullWalk)
    cdef Py_ssize_t i
    walk.log = log
    walk.max_count = max_count
    walk.max_bytes = max_bytes
    walk.records_max = max(1, min(max_count, max(limits.memory_count, limits.disk_count)))
    walk.tags = tags
    walk.code_count = <int>len(codes)
    if walk.code_count > TAG_CODES_MAX:
        raise errors.IllegalMessageError(f"{walk.code_count} tags in one filter, {TAG_CODES_MAX} are allowed")
    for i in range(walk.code_count):
        walk.codes[i] = codes[i]
    if as_ranges:
        walk.ranges = RecordRanges.__new__(RecordRanges, log, walk.records_max)
    else:
        walk.messages = []
    return walk


def pull(UnitQueue queue not None, LogView log not None, int64_t queue_offset, int max_count,
         int64_t max_bytes, PullLimits limits not None, tuple codes=(), tuple tags=(), *,
         bint as_ranges=False):
    """Read a queue from an offset on, within upstream's limits."""
    cdef _PullWalk walk = start_walk(log, max_count, max_bytes, limits, codes, tags, as_ranges)
    cdef int64_t next_offset = walk.read(queue, limits, queue_offset)
    return (walk.status, next_offset, walk.min_offset, walk.max_offset,
            walk.ranges if as_ranges else walk.messages, walk.count)


def count_tagged_units(UnitQueue queue not None, int64_t start, int64_t end, tuple codes, int64_t units_max,
                       int64_t matches_max):
    """Count the units of a plain queue in [start, end) whose tags code is wanted."""
    cdef int32_t[TAG_CODES_MAX] wanted
    cdef int count = <int>min(len(codes), <Py_ssize_t>TAG_CODES_MAX)
    cdef int64_t where = start * CQ_UNIT_BYTES
    cdef int64_t stop = min(end, start + units_max) * CQ_UNIT_BYTES
    cdef int64_t matched = 0
    cdef int64_t available = 0
    cdef const uint8_t* unit
    cdef int i
    for i in range(count):
        wanted[i] = codes[i]
    while where < stop and matched < matches_max:
        unit = queue.unit_at(where, &available)
        if unit == NULL:
            break
        available = min(available, stop - where)
        while available > 0 and matched < matches_max:
            if not is_fill(unit) and has_code(get_i64(unit + 12), wanted, count):
                matched += 1
            unit += CQ_UNIT_BYTES
            where += CQ_UNIT_BYTES
            available -= CQ_UNIT_BYTES
    queue.check_intact()
    return where // CQ_UNIT_BYTES - start, matched
