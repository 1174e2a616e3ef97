# LogView: an immutable list of adjacent mapped files with a pinned end. All readers of records use one, so
# that a reader without the interpreter lock never sees a list that changes. A view keeps its files mapped:
# a closed file is unmapped with the last view on it. Files that are not mapped are mapped when they are first
# read, so that a plan over ten thousand files maps only those that it needs.
from _core.layout cimport (LEAST_PAGE_BYTES, MAGIC_V1, MAGIC_V2, PARSED_BLANK, PARSED_RECORD, PARSED_SHORT,
                           Record, get_i32, parse_record)
from _core.posix cimport MADV_RANDOM, madvise, open_regular, page_ceiling
from _core.dledger_layout cimport ENTRY_HEAD_BYTES, FILLER_BYTES_MIN, Entry, parse_entry
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport ENOENT, errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_RDONLY
from posix.mman cimport PROT_READ
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as c_close

cimport cython

from pyledger import errors


cdef extern from *:
    """
    /* Any address may be given. */
    static inline void prefetch_bytes(const uint8_t *p, int64_t size) {
        for (int64_t at = 0; at < size; at += 64) __builtin_prefetch(p + at);
    }
    """
    void prefetch_bytes(const uint8_t* p, int64_t size) noexcept nogil

cdef enum:
    PREFETCH_BYTES_MAX = 1024        # of one record: the processor notices a longer run by itself


cdef bint load_cold_record(cold_segment* cold, int64_t position, int64_t available) noexcept nogil:
    """Have the record at a position in place, or the rest of the block; False when the index is damaged."""
    cdef const uint8_t* where = cold.base + position
    cdef int64_t loaded = cold_range(cold, position, 1)
    if loaded >= 8 and get_i32(where + 4) in (MAGIC_V1, MAGIC_V2) and loaded < get_i32(where) <= available:
        loaded = cold_range(cold, position, get_i32(where))
    return loaded > 0


cdef struct Span:
    const uint8_t* base
    file_mapping* mapping
    int64_t start                    # physical offset of the first byte
    int64_t readable                 # bytes that may be read from base
    int64_t wanted                   # the same, once it is mapped
    int failed                       # errno of a mapping that could not be made
    cold_segment* cold               # decompresses them on demand; NULL for an ordinary file
    const char* path
    bint is_late                     # mapped by the view alone, when it is needed


cdef void map_span(Span* span) noexcept nogil:
    """Map a file that is not mapped yet. A file that is gone has no readable bytes; without memory or
    descriptors the view is in error, until a later call can map the file."""
    cdef struct_stat facts
    cdef int fd = open_regular(span.path, O_RDONLY)
    span.readable = span.failed = 0
    if fd < 0:
        span.failed = 0 if errno == ENOENT else errno
        return
    # The size may have changed since it was read, and touching a page after the end is a SIGBUS.
    span.readable = min(span.wanted, facts.st_size if fstat(fd, &facts) == 0 else 0)
    if span.readable > 0:
        span.mapping = map_file(fd, span.readable, PROT_READ)
        if span.mapping == NULL:
            span.failed = errno
            span.readable = 0
        else:
            span.base = span.mapping.base
    c_close(fd)


@cython.final
@cython.no_gc
cdef class LogView:
    """A pinned range of the commit log: mapped files in order, readable below `end_offset`."""

    cdef readonly tuple files
    cdef readonly int64_t start_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t file_size_bytes
    cdef Span* spans
    cdef int span_count
    cdef bint has_cold               # some file is a cold segment
    cdef bint has_failed             # some file could not be mapped when it was needed

    def __cinit__(self, files, int64_t end_offset):
        cdef int i
        cdef MappedFile file
        self.files = tuple(files)
        self.end_offset = end_offset
        if not self.files:
            self.start_offset = end_offset
            return
        self.spans = <Span*>malloc(<size_t>len(self.files) * sizeof(Span))
        if self.spans == NULL:
            raise MemoryError()
        for i in range(<int>len(self.files)):
            file = self.files[i]
            if file.mapped_bytes:
                file._check_usable()
            file.pin()
            self.span_count = i + 1
            self.spans[i].base = file.base
            self.spans[i].cold = file.cold
            self.spans[i].mapping = file.mapping if file.cold == NULL else file.cold.mapping
            self.has_cold |= file.cold != NULL
            self.spans[i].start = file.start_offset
            self.spans[i].readable = max(0, min(file.mapped_bytes, end_offset - file.start_offset))
            self.spans[i].wanted = self.spans[i].readable
            self.spans[i].failed = 0
            self.spans[i].path = file.c_path
            self.spans[i].is_late = file.base == NULL
        file = self.files[0]
        self.start_offset = file.start_offset
        self.file_size_bytes = file.size_bytes

    def __dealloc__(self):
        cdef int i
        for i in range(self.span_count):
            if self.spans[i].is_late and self.spans[i].mapping != NULL:
                unmap_file(self.spans[i].mapping, False)
            (<MappedFile>self.files[i]).unpin()
        free(self.spans)

    cdef const Span* find(self, int64_t offset) noexcept nogil:
        """The file that holds `offset`; NULL when none does. Files may have gaps between them."""
        cdef int low = 0
        cdef int high = self.span_count - 1
        cdef int middle
        while low <= high:
            middle = (low + high) >> 1
            if offset < self.spans[middle].start:
                high = middle - 1
            elif offset >= self.spans[middle].start + self.file_size_bytes:
                low = middle + 1
            else:
                if self.spans[middle].base == NULL and (
                        self.spans[middle].readable > 0 or self.spans[middle].failed):
                    map_span(&self.spans[middle])
                    self.has_failed |= self.spans[middle].failed != 0
                return &self.spans[middle]
        return NULL

    cdef bint intact(self, int64_t begin, int64_t end, bint exact=False) noexcept nogil:
        """Whether what was read in a range of the log, until now, were bytes of its files.

        A walk also reads the record after its range, so the rest of the last file counts, unless `exact`.
        """
        cdef int i
        if damaged_mappings == 0 and not self.has_failed:
            return True
        for i in range(self.span_count):
            if not self.span_intact(&self.spans[i], begin, end, exact):
                return False
        return True

    cdef bint span_intact(self, const Span* span, int64_t begin, int64_t end, bint exact) noexcept nogil:
        if span.start >= end or begin >= span.start + self.file_size_bytes:
            return True
        if span.cold != NULL:            # its blocks have other positions
            return span.failed == 0 and not is_damaged(span.mapping, 0, INT64_MAX)
        return span.failed == 0 and not is_damaged(span.mapping, begin - span.start,
                                                   end - span.start if exact else INT64_MAX)

    cdef inline int check_intact(self, int64_t begin, int64_t end, bint exact=False) except -1:
        """Raise when what was read in a range were not bytes of its files: before any of it is given away."""
        if not self.intact(begin, end, exact):
            self.raise_damaged(begin, end, exact)
        return 0

    cdef int raise_damaged(self, int64_t begin, int64_t end, bint exact) except -1:
        cdef int i
        for i in range(self.span_count):
            if not self.span_intact(&self.spans[i], begin, end, exact):
                if self.spans[i].failed:
                    raise_errno(self.spans[i].failed, (<MappedFile>self.files[i]).path, "map")
                raise_damaged((<MappedFile>self.files[i]).path)
        return 0

    cdef const uint8_t* at(self, int64_t offset, int64_t* available) noexcept nogil:
        """Pointer to `offset` and the bytes readable from there within its file; NULL outside.

        Of a cold segment the record that starts there is decompressed, or else its block. Callers that hold
        no interpreter lock, or keep the pointer, must be between `cold_enter` and `cold_leave`.
        """
        cdef const Span* span = NULL
        return self.walk_to(offset, &span, available)

    cdef inline const uint8_t* walk_to(self, int64_t offset, const Span** near,
                                       int64_t* available) noexcept nogil:
        """As `at`, for callers that mostly stay in one file, which `near` remembers."""
        cdef const Span* span = near[0]
        if span == NULL or not 0 <= offset - span.start < span.readable:
            span = near[0] = self.find(offset)
            if span == NULL or offset - span.start >= span.readable:
                return NULL
        available[0] = span.readable - (offset - span.start)
        if span.cold != NULL and not load_cold_record(span.cold, offset - span.start, available[0]):
            return NULL
        return span.base + (offset - span.start)

    cdef const uint8_t* range_at(self, int64_t offset, int64_t length) noexcept nogil:
        """Pointer to `length` bytes of one file, all in place; NULL when they are not there."""
        cdef const Span* span = self.find(offset)
        if span == NULL or length < 0 or length > span.readable - (offset - span.start):
            return NULL
        if span.cold != NULL and length > 0 and cold_range(span.cold, offset - span.start, length) == 0:
            return NULL
        return span.base + (offset - span.start)

    cdef void show_page(self, int64_t end) noexcept nogil:
        """Have the bytes from `end` to the end of its least page in place, as in a plain file."""
        cdef const Span* span = self.find(end - 1)
        cdef int64_t position, page_end
        if span != NULL and span.cold != NULL:
            position = end - span.start
            page_end = min((position + LEAST_PAGE_BYTES - 1) & -LEAST_PAGE_BYTES, span.readable)
            cold_range(span.cold, position - 1, page_end - (position - 1))

    cdef int64_t window(self, int64_t offset, int64_t available) noexcept nogil:
        """How many of the bytes that `at` returned may be searched: of a cold segment those of one block."""
        cdef const Span* span = self.find(offset)
        if span.cold == NULL:
            return available
        return min(available, cold_range(span.cold, offset - span.start, 1))

    cdef void pin_record(self, int64_t offset, int64_t size_bytes, int by) noexcept:
        """Keep a record of a cold segment decompressed (1), or no longer (-1)."""
        cdef const Span* span = self.find(offset)
        if span != NULL and span.cold != NULL:
            cold_pin(span.cold, offset - span.start, offset - span.start + size_bytes, by)

    cdef int parse(self, int64_t offset, Record* record) noexcept nogil:
        """parse_record at a physical offset; PARSED_SHORT outside the view."""
        cdef int64_t available = 0
        cdef const uint8_t* where
        cdef int status = PARSED_SHORT
        cold_enter()
        where = self.at(offset, &available)
        if where != NULL:
            status = parse_record(where, available, record)
        cold_leave()
        return status

    cdef inline void prefetch(self, int64_t offset, int64_t size_bytes) noexcept nogil:
        """Bring bytes that will soon be read into the cache; what lies outside the view is passed over."""
        cdef const Span* span = self.find(offset)
        cdef int64_t available
        if span != NULL and span.cold == NULL and offset - span.start < span.readable:
            available = min(span.readable - (offset - span.start), <int64_t>PREFETCH_BYTES_MAX)
            prefetch_bytes(span.base + (offset - span.start), min(size_bytes, available))

    cdef int64_t next_file_offset(self, int64_t offset) noexcept nogil:
        """Where the file after the one that holds `offset` starts; the view's end outside any file."""
        cdef const Span* span = self.find(offset)
        if span == NULL:
            return self.end_offset
        return span.start + self.file_size_bytes

    cdef int64_t after_head(self, int64_t offset, bint* is_filler) noexcept nogil:
        """Where a walk continues if `offset` has no record but the head of a DLedger entry, or a filler
        between entries; -1 for neither. In such a log each record is the body of an entry."""
        cdef Entry entry
        cdef int64_t available = 0
        cdef const uint8_t* where = self.at(offset, &available)
        cdef int status = PARSED_SHORT if where == NULL else parse_entry(where, available, &entry)
        cdef int64_t start
        is_filler[0] = status == PARSED_BLANK
        if status == PARSED_RECORD:
            return offset + ENTRY_HEAD_BYTES if entry.pos == offset else -1
        if status == PARSED_BLANK:
            start = self.find(offset).start
            if entry.size_bytes == start + self.file_size_bytes - offset or (
                    offset == start and FILLER_BYTES_MIN <= entry.size_bytes < available):
                return offset + entry.size_bytes
        return -1

    cdef str path_at(self, int64_t offset):
        """The file that holds an offset, for an error message."""
        cdef const Span* span = self.find(offset)
        if span != NULL:
            return (<MappedFile>self.files[span - self.spans]).path
        return (<MappedFile>self.files[0]).path if self.files else "commitlog"

    def await_growth(self):
        """Have the kernel read nothing ahead past the end of the view; see _core.pyi."""
        cdef int64_t begin
        cdef MappedFile file
        for file in self.files:
            begin = page_ceiling(max(<int64_t>0, self.end_offset - file.start_offset))
            if file.base != NULL and file.cold == NULL and begin < file.mapped_bytes:
                madvise(file.base + begin, <size_t>(file.mapped_bytes - begin), MADV_RANDOM)

    cdef void touch(self, int64_t offset, int64_t length) noexcept nogil:
        """Read the pages of a range of one file from disk; those of a cold segment are in memory already."""
        cdef const Span* span = self.find(offset)
        if span != NULL and span.base != NULL and span.cold == NULL:
            touch_pages(span.base + (offset - span.start), length)

    def read(self, int64_t offset, int64_t length):
        """Copy `length` bytes at a physical offset; they must lie in one file."""
        cdef const Span* span = self.find(offset)
        cdef int64_t position = -1 if span == NULL else offset - span.start
        if position < 0 or position >= span.readable or not 0 <= length <= span.readable - position:
            raise errors.OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if span.cold != NULL:
            return bytes(self.view(offset, length))
        copy = PyBytes_FromStringAndSize(<const char*>span.base + position, length)
        self.check_intact(offset, offset + length, True)
        return copy

    def view(self, int64_t offset, int64_t length):
        """View `length` bytes at a physical offset without copying; the file stays mapped meanwhile.

        Its pages are read now: a socket, for example, would send the zeroes that replace what the disk cannot
        read.
        """
        cdef const Span* span = self.find(offset)
        cdef int64_t position
        if span == NULL or length < 0 or length > span.readable - (offset - span.start):
            raise errors.OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        position = offset - span.start
        self.touch(offset, length)
        self.check_intact(offset, offset + length, True)
        return (<MappedFile>self.files[span - self.spans]).export_range(position, length)
