# ColumnBuilder: records to Arrow buffers, row by row, without a Python object for a row. Two drivers share
# one append: a walk over a range of the log, and a list of consume queue units.
#
# Invariant: a batch's variable-length bytes stay below 2^31, so 32-bit Arrow offsets hold: a row that would
# pass `batch_bytes` starts the next batch, and text grows at most threefold when it is made well-formed.
from _core.layout cimport (CHECK_ALL, CHECK_POSITION, CQ_UNIT_BYTES, LEAST_PAGE_BYTES, PARSED_RECORD,
                           SYS_COMPRESSED, Record, get_i64)
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

cimport cython

from pyledger import errors

cdef enum:
    FILL_FULL = 16                   # the batch has its rows or bytes
    FILL_COMPRESSED = 17                 # the body of the current record must be decompressed first
    FILL_PAUSED = 18                 # a slice of the walk is over
    FILL_NO_MEMORY = 19
    FILL_SLICE_BYTES = 33554432
    BATCH_ROWS_MAX = 16777216
    BATCH_BYTES_MAX = 536870912      # so that threefold growth and one more row stay below 2^31
    GATHER_SLICE_UNITS = 65536
    RECORD_HEAD_BYTES = 96           # what the narrow columns are made of
    HOSTS_BYTES = 168                # both hosts and the message id of a row, at most


@cython.final
@cython.no_gc
cdef class ColumnBuilder:
    """Fills the buffers of one Arrow batch after another from records of a log view."""

    cdef readonly tuple columns
    cdef readonly int64_t row_count
    cdef readonly int64_t next_offset       # where the walk continues
    cdef readonly int64_t next_index        # unit at which gathering continues
    cdef readonly int64_t fault_offset
    cdef readonly str fault                 # what is wrong at fault_offset; None without a fault
    cdef RowFilter row_filter
    cdef Column* table
    cdef int column_count
    cdef int64_t batch_rows
    cdef int64_t batch_bytes
    cdef int64_t decompress_limit_bytes
    cdef int64_t used_bytes
    cdef int checks                         # on every row
    cdef bint decompress
    cdef bint wants_text
    cdef bint wants_properties
    cdef bint wants_body
    cdef bint is_bounded                    # some column has bytes of varying length
    cdef PropertyTable text
    cdef UnitReader reader

    def __init__(self, columns, row_filter=None, *, int64_t batch_rows=8192, int64_t batch_bytes=8388608,
                 bint check_crcs=True, bint decompress=False,
                 int64_t decompress_limit_bytes=PLAIN_BODY_LIMIT_BYTES):
        cdef int i
        if self.table != NULL:
            raise errors.InvariantError("a ColumnBuilder is made once")
        self.columns = tuple(columns)
        self.row_filter = RowFilter() if row_filter is None else row_filter
        self.batch_rows = max(1, min(batch_rows, <int64_t>BATCH_ROWS_MAX))
        self.batch_bytes = max(1, min(batch_bytes, <int64_t>BATCH_BYTES_MAX))
        self.decompress = decompress
        self.decompress_limit_bytes = max(0, min(decompress_limit_bytes, <int64_t>BATCH_BYTES_MAX))
        self.table = <Column*>calloc(<size_t>len(self.columns) + 1, sizeof(Column))
        if self.table == NULL:
            raise MemoryError()
        self.text = PropertyTable()
        self.reader = UnitReader()
        self.column_count = <int>len(self.columns)
        for i in range(self.column_count):
            if self.columns[i] not in _COLUMN_KINDS:
                raise errors.InvariantError(f"no column {self.columns[i]!r}")
            self._plan_column(&self.table[i], <int>_COLUMN_KINDS.index(self.columns[i]))
        self.wants_text = self.wants_text or self.wants_properties or self.row_filter.needs_properties
        if check_crcs:
            self.checks = CHECK_ALL & ~CHECK_POSITION
        self.next_index = 0
        self._start_batch()

    def __dealloc__(self):
        cdef int i
        cdef Column* c
        for i in range(self.column_count):
            c = &self.table[i]
            free(c.validity.data)
            free(c.values.data)
            free(c.data.data)
            free(c.name_offsets.data)
            free(c.names.data)
            free(c.value_offsets.data)
        free(self.table)

    cdef void _plan_column(self, Column* c, int kind) noexcept:
        c.kind = kind
        if kind in (TOPIC, TAGS, KEYS, BODY, PROPERTIES, BORN_HOST, STORE_HOST, MSG_ID):
            c.width = 0
        elif kind in (QUEUE_OFFSET, STORE_TIMESTAMP, BORN_TIMESTAMP, PHYSICAL_OFFSET, TAGS_CODE,
                      PREPARED_TRANSACTION_OFFSET):
            c.width = 8
        else:
            c.width = 4
        self.wants_text |= kind == TAGS or kind == KEYS
        self.wants_properties |= kind == PROPERTIES
        self.wants_body |= kind == BODY
        self.is_bounded |= c.width == 0

    cdef int _start_batch(self) except -1:
        """Allocate fixed-size buffers in full, so that a row only ever grows text and bodies."""
        cdef int i
        cdef Column* c
        cdef int64_t validity_bytes = (self.batch_rows + 7) // 8
        self.row_count = 0
        self.used_bytes = 0
        for i in range(self.column_count):
            c = &self.table[i]
            c.null_count = 0
            c.values.capacity = c.values.size = c.data.size = c.names.size = 0
            if reserve(&c.values, self.batch_rows * c.width if c.width else 4 * (self.batch_rows + 1)) != 0:
                raise MemoryError()
            if c.width == 0:
                put_end(&c.values, 0)
                self._restore(&c.data)
            if c.kind == TAGS or c.kind == KEYS:
                c.validity.capacity = c.validity.size = 0
                if reserve(&c.validity, validity_bytes) != 0:
                    raise MemoryError()
                memset(c.validity.data, 0, <size_t>validity_bytes)
            elif c.kind == PROPERTIES:
                self._restore(&c.names)
                self._restore(&c.name_offsets)
                self._restore(&c.value_offsets)
                put_end(&c.name_offsets, 0)
                put_end(&c.value_offsets, 0)
        return 0

    cdef int _restore(self, Buffer* b) except -1:
        """Allocate as much as the last batch took: the next one is most likely similar."""
        cdef int64_t wanted = max(min(b.capacity, 2 * self.batch_bytes), <int64_t>4096)
        b.size = b.capacity = 0
        if reserve(b, wanted) != 0:
            raise MemoryError()
        return 0

    # One row.

    cdef int take(self, const Record* r, int64_t offset, const uint8_t* plain,
                  int64_t plain_bytes) noexcept nogil:
        """Append the record if it is wanted: PARSED_RECORD when done, else why not.

        `plain` is the decompressed body, on the call after FILL_COMPRESSED.
        """
        cdef int64_t body_bytes = r.body_bytes
        cdef int64_t room
        cdef int status
        if not self.row_filter.wants(r):
            return PARSED_RECORD
        if self.wants_text:
            self.text.parse(r, self.wants_properties)
            if self.row_filter.needs_properties and not self.row_filter.wants_properties(
                    &self.text.found):
                return PARSED_RECORD
        if self.checks and plain == NULL:
            status = check_record(r, offset, self.checks)
            if status != PARSED_RECORD:
                return status
        # Decompress whatever the columns are: a body that cannot be decompressed is damage of the row.
        if self.decompress and r.sys_flag & SYS_COMPRESSED:
            if plain == NULL:
                return FILL_COMPRESSED
            body_bytes = plain_bytes
        if self.is_bounded:
            room = (body_bytes if self.wants_body else 0) + r.properties_bytes + r.topic_bytes + HOSTS_BYTES
            if self.row_count > 0 and self.used_bytes + room > self.batch_bytes:
                return FILL_FULL
            self.used_bytes += room
        if self.append_row(r, r.body if plain == NULL else plain, body_bytes) != 0:
            return FILL_NO_MEMORY
        self.row_count += 1
        return PARSED_RECORD

    cdef int append_row(self, const Record* r, const uint8_t* body, int64_t body_bytes) noexcept nogil:
        cdef int i
        cdef int failed = 0
        cdef int64_t row = self.row_count
        cdef Column* c
        for i in range(self.column_count):
            c = &self.table[i]
            if c.width == 8:
                (<int64_t*>c.values.data)[row] = wide_value(c.kind, r)
            elif c.width == 4:
                (<int32_t*>c.values.data)[row] = narrow_value(c.kind, r)
            elif c.kind == BODY:
                failed |= put_value(c, body, body_bytes)
            elif c.kind == PROPERTIES:
                failed |= put_properties(c, &self.text.found, self.text.text_bytes)
            elif c.kind == TAGS:
                failed |= put_nullable(c, self.text.found.tags, row)
            elif c.kind == KEYS:
                failed |= put_nullable(c, self.text.found.keys, row)
            elif c.kind == TOPIC:
                failed |= put_topic(c, r)
            else:
                failed |= put_address(c, r)
        return failed

    # Drivers.

    def scan(self, LogView view not None, int64_t start, end=None):
        """Walk the records that start in [start, end) and append those wanted."""
        cdef Record record
        cdef ScanState s = [start, 0, 0, -1, 0, NULL]
        cdef int64_t stop = view.end_offset if end is None else end
        cdef int64_t walked = start
        cdef int status = FILL_PAUSED
        self.fault = None
        while status == FILL_PAUSED or status == FILL_COMPRESSED:
            if status == FILL_COMPRESSED:
                status = self._take_compressed(view, s.offset, &record)
                if status == PARSED_RECORD:
                    s.offset += record.size_bytes
                    status = FILL_PAUSED
            else:
                with nogil:
                    cold_enter()
                    status = self.fill_by_scan(view, stop, &s)
                    cold_leave()
                if s.offset - walked >= FILL_SLICE_BYTES:
                    walked = s.offset
                    PyErr_CheckSignals()
        view.check_intact(start, s.offset + 1)
        self.next_offset = s.offset
        return self._end_fill(status, s.offset)

    cdef int fill_by_scan(self, LogView view, int64_t end, ScanState* s) noexcept nogil:
        cdef Record record
        cdef int64_t place
        cdef int64_t pause = min(end, s.offset + FILL_SLICE_BYTES)
        cdef int status
        while s.offset < pause:
            if self.row_count == self.batch_rows:
                return FILL_FULL
            cold_pause()
            status = next_record(view, end, CHECK_POSITION, s, &record)
            if status != PARSED_RECORD:
                return status
            # The processor prefetches by itself, but never past a page of 4 KiB.
            prefetch_bytes(record.start + LEAST_PAGE_BYTES,
                           min(record.size_bytes, <int64_t>PREFETCH_BYTES_MAX))
            place = s.last_record_offset
            status = self.take(&record, place, NULL, 0)
            if status != PARSED_RECORD:
                s.offset = place
                return status
        return FILL_PAUSED if s.offset < end else SCAN_END

    def gather(self, LogView view not None, units, int64_t start=0):
        """Append the records that consume queue units name, from unit number `start` on, those wanted."""
        cdef Py_buffer buffer
        cdef Record record
        cdef const uint8_t* first
        cdef int64_t count, offset
        cdef int status = FILL_PAUSED
        self.fault = None
        self.next_index = max(0, start)
        PyObject_GetBuffer(units, &buffer, PyBUF_SIMPLE)
        try:
            first = <const uint8_t*>buffer.buf
            count = buffer.len // CQ_UNIT_BYTES
            if start <= 0:
                self.reader.survey(first, count)
            while status == FILL_PAUSED or status == FILL_COMPRESSED:
                if status == FILL_COMPRESSED:
                    offset = get_i64(first + self.next_index * CQ_UNIT_BYTES)
                    status = self._take_compressed(view, offset, &record)
                    if status == PARSED_RECORD:
                        self.next_index += 1
                        status = FILL_PAUSED
                else:
                    with nogil:
                        cold_enter()
                        status = self.fill_by_units(view, first, count)
                        cold_leave()
                    PyErr_CheckSignals()
            offset = get_i64(first + self.next_index * CQ_UNIT_BYTES) if self.next_index < count else 0
        finally:
            PyBuffer_Release(&buffer)
        view.check_intact(view.start_offset, view.end_offset)
        return self._end_fill(status, offset)

    cdef int fill_by_units(self, LogView view, const uint8_t* units, int64_t count) noexcept nogil:
        cdef Record record
        cdef int64_t offset
        cdef int64_t looked_at = 0
        cdef int status
        while self.next_index < count:
            if self.row_count == self.batch_rows:
                return FILL_FULL
            if looked_at == GATHER_SLICE_UNITS:
                return FILL_PAUSED
            looked_at += 1
            cold_pause()
            offset = get_i64(units + self.next_index * CQ_UNIT_BYTES)
            status = self.reader.parse(view, units, self.next_index, count,
                                       self.is_bounded or self.checks != 0, &record)
            if status == PARSED_RECORD:
                status = self.take(&record, offset, NULL, 0)
            if status != PARSED_RECORD:
                return status
            self.next_index += 1
        return SCAN_END

    cdef int _take_compressed(self, LogView view, int64_t offset, Record* record) except -128:
        """Append the record at `offset` with its body decompressed."""
        cdef StoredMessage message
        cdef bytes plain
        message = read_valid(view, offset, CHECK_POSITION)
        record[0] = message.record
        try:
            plain = message.decompress_body(self.decompress_limit_bytes)
        except errors.CorruptBodyError as error:
            self.fault = error.problem
            return PARSED_BAD_CRC
        return self.take(record, offset, <const uint8_t*><char*>plain, len(plain))

    cdef bint _end_fill(self, int status, int64_t offset) except -1:
        if status == FILL_NO_MEMORY:
            raise MemoryError()
        if status != FILL_FULL and status != SCAN_END:
            self.fault_offset = offset
            if self.fault is None:
                self.fault = _PROBLEMS[status]
        return status == FILL_FULL

    def finish(self):
        """Hand over the batch and start the next one."""
        cdef Column* c
        cdef int i
        cdef list out = []
        for i in range(self.column_count):
            c = &self.table[i]
            if c.width:
                c.values.size = self.row_count * c.width
                out.append((0, [None, release_buffer(&c.values)]))
            elif c.kind == PROPERTIES:
                out.append((0, [release_buffer(&c.values), release_buffer(&c.name_offsets),
                                release_buffer(&c.names), release_buffer(&c.value_offsets),
                                release_buffer(&c.data)]))
            elif c.kind == TAGS or c.kind == KEYS:
                c.validity.size = (self.row_count + 7) // 8
                out.append((c.null_count, [release_buffer(&c.validity), release_buffer(&c.values),
                                           release_buffer(&c.data)]))
            else:
                out.append((0, [None, release_buffer(&c.values), release_buffer(&c.data)]))
        self._start_batch()
        return out
