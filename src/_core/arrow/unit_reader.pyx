# UnitReader: the records that consume queue units name, one after the other, without the interpreter lock.
#
# Records that are far apart are read from their files: touching one page of a mapping makes the kernel map 64
# KiB around it, so that one record in a hundred would map the whole log. Records that are close together, or
# cannot be read, come from the view: its mappings stay valid after a file was deleted or compressed.
from _core.layout cimport (CHECK_POSITION, CQ_UNIT_BYTES, PARSED_BAD_SIZE, PARSED_RECORD, Record, get_i32,
                           get_i64, parse_record)
from _core.posix cimport open_regular
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close as c_close, pread

cimport cython

cdef enum:
    UNIT_AHEAD = 6                   # work on this many records hides the latency of memory
    UNIT_READ_BYTES_MAX = 32768      # longer records fill the pages that they touch
    UNIT_APART_BYTES = 8192          # eight reads cost about what mapping 64 KiB does


@cython.final
@cython.no_gc
cdef class UnitReader:
    """Parses the record of one unit after another; its bytes hold until the next one."""

    cdef uint8_t* bytes
    cdef int64_t file_start          # physical offset of the file that is open; -1: none
    cdef int fd
    cdef bint is_sparse

    def __cinit__(self):
        self.fd = -1
        self.file_start = -1
        self.bytes = <uint8_t*>malloc(UNIT_READ_BYTES_MAX)
        if self.bytes == NULL:
            raise MemoryError()

    def __dealloc__(self):
        self.close_file()
        free(self.bytes)

    cdef void close_file(self) noexcept nogil:
        if self.fd >= 0:
            c_close(self.fd)
        self.fd = -1
        self.file_start = -1

    cdef void survey(self, const uint8_t* units, int64_t count) noexcept nogil:
        """Choose how to read, by the distance between the records of all units."""
        cdef int64_t low = INT64_MAX
        cdef int64_t high = 0
        cdef int64_t i, offset
        for i in range(count):
            offset = get_i64(units + i * CQ_UNIT_BYTES)
            low = min(low, offset)
            high = max(high, offset)
        self.is_sparse = count > 0 and low >= 0 and (high - low) // count >= UNIT_APART_BYTES

    cdef int parse(self, LogView view, const uint8_t* units, int64_t index, int64_t count, bint whole,
                   Record* record) noexcept nogil:
        """The record of unit `index`: PARSED_RECORD, or why it is invalid; `whole`: not only its head."""
        cdef const uint8_t* unit = units + index * CQ_UNIT_BYTES
        cdef int64_t offset = get_i64(unit)
        cdef int status
        if not self.is_sparse and index + UNIT_AHEAD < count:
            # Records of one queue lie apart: without this each is waited for.
            self.fetch(view, unit + UNIT_AHEAD * CQ_UNIT_BYTES, whole)
        if not (self.is_sparse and self.read(view, offset, get_i32(unit + 8), record)):
            status = view.parse(offset, record)
            if status != PARSED_RECORD:
                return status
        status = check_record(record, offset, CHECK_POSITION)
        # A unit of zeroes must not pass for the first record of the log.
        if status == PARSED_RECORD and record.size_bytes != get_i32(unit + 8):
            status = PARSED_BAD_SIZE
        return status

    cdef void fetch(self, LogView view, const uint8_t* unit, bint whole) noexcept nogil:
        view.prefetch(get_i64(unit), get_i32(unit + 8) if whole else RECORD_HEAD_BYTES)

    cdef bint read(self, LogView view, int64_t offset, int64_t size_bytes, Record* record) noexcept nogil:
        """Read one record from its file; False if the view must provide it, or must name the fault."""
        cdef const Span* span = view.find(offset)
        cdef int64_t position
        if span == NULL or span.cold != NULL or size_bytes > UNIT_READ_BYTES_MAX:
            return False
        position = offset - span.start
        if size_bytes <= 0 or size_bytes > span.readable - position:
            return False
        if self.file_start != span.start:
            self.close_file()
            self.file_start = span.start
            self.fd = open_regular(span.path, O_RDONLY)
        if self.fd < 0 or pread(self.fd, self.bytes, <size_t>size_bytes, position) != size_bytes:
            return False
        return parse_record(self.bytes, size_bytes, record) == PARSED_RECORD
