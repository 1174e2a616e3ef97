# LogView: an immutable run of mapped files with a pinned end. Everything that reads records takes one,
# so that a reader without the interpreter lock never meets a file list in change. A view keeps its files
# mapped: closing one of them takes effect with the last view on it.
from _core.layout cimport PARSED_SHORT, Record, parse_record
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

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


cdef struct Span:
    const uint8_t* base
    int64_t start                    # physical offset of the first byte
    int64_t readable                 # bytes that may be read from base


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
            self.spans[i].start = file.start_offset
            self.spans[i].readable = max(0, min(file.mapped_bytes, end_offset - file.start_offset))
        file = self.files[0]
        self.start_offset = file.start_offset
        self.file_size_bytes = file.size_bytes

    def __dealloc__(self):
        cdef int i
        for i in range(self.span_count):
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
                return &self.spans[middle]
        return NULL

    cdef const uint8_t* at(self, int64_t offset, int64_t* available) noexcept nogil:
        """Pointer to `offset` and the bytes readable from there within its file; NULL outside."""
        cdef const Span* span = self.find(offset)
        if span == NULL or offset - span.start >= span.readable:
            return NULL
        available[0] = span.readable - (offset - span.start)
        return span.base + (offset - span.start)

    cdef int parse(self, int64_t offset, Record* record) noexcept nogil:
        """parse_record at a physical offset; PARSED_SHORT outside the view."""
        cdef int64_t available = 0
        cdef const uint8_t* where = self.at(offset, &available)
        if where == NULL:
            return PARSED_SHORT
        return parse_record(where, available, record)

    cdef inline void prefetch(self, int64_t offset, int64_t size_bytes) noexcept nogil:
        """Bring bytes that will soon be read into the cache; what lies outside the view is passed over."""
        cdef int64_t available = 0
        cdef const uint8_t* where = self.at(offset, &available)
        if where != NULL:
            prefetch_bytes(where, min(min(size_bytes, available), <int64_t>PREFETCH_BYTES_MAX))

    cdef int64_t next_file_offset(self, int64_t offset) noexcept nogil:
        """Where the file after the one that holds `offset` starts; the view's end outside any file."""
        cdef const Span* span = self.find(offset)
        if span == NULL:
            return self.end_offset
        return span.start + self.file_size_bytes

    cdef str path_at(self, int64_t offset):
        """The file that holds an offset, for an error message."""
        cdef const Span* span = self.find(offset)
        if span != NULL:
            return (<MappedFile>self.files[span - self.spans]).path
        return (<MappedFile>self.files[0]).path if self.files else "commitlog"

    def read(self, int64_t offset, int64_t length):
        """Copy `length` bytes at a physical offset; they must lie in one file."""
        cdef int64_t available = 0
        cdef const uint8_t* where = self.at(offset, &available)
        if where == NULL or length < 0 or length > available:
            raise errors.OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        return PyBytes_FromStringAndSize(<const char*>where, length)

    def view(self, int64_t offset, int64_t length):
        """View `length` bytes at a physical offset without copying; the file stays mapped meanwhile."""
        cdef const Span* span = self.find(offset)
        cdef int64_t position
        if span == NULL or length < 0 or length > span.readable - (offset - span.start):
            raise errors.OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        position = offset - span.start
        return memoryview(self.files[span - self.spans])[position:position + length]
