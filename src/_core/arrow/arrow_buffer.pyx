# Buffer grows while a column is filled; ArrowBuffer then owns its memory and lends it to Arrow arrays.
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

cimport cython


cdef extern from *:
    """
    #include <string.h>

    /* Names, tags and keys are a few bytes long, for which the call of memcpy costs more than the copy. */
    static inline void copy_bytes(uint8_t *to, const uint8_t *from, size_t n) {
        uint64_t a[4];
        uint32_t b, c;
        if (n > 32) { memcpy(to, from, n); return; }
        if (n > 16) {
            memcpy(a, from, 16); memcpy(a + 2, from + n - 16, 16);
            memcpy(to, a, 16); memcpy(to + n - 16, a + 2, 16);
        } else if (n >= 8) {
            memcpy(a, from, 8); memcpy(a + 1, from + n - 8, 8);
            memcpy(to, a, 8); memcpy(to + n - 8, a + 1, 8);
        } else if (n >= 4) {
            memcpy(&b, from, 4); memcpy(&c, from + n - 4, 4);
            memcpy(to, &b, 4); memcpy(to + n - 4, &c, 4);
        } else if (n > 0) {
            to[0] = from[0]; to[n / 2] = from[n / 2]; to[n - 1] = from[n - 1];
        }
    }
    """
    void copy_bytes(uint8_t* to, const uint8_t* source, size_t n) noexcept nogil


cdef struct Buffer:
    uint8_t* data
    int64_t size
    int64_t capacity


cdef inline int reserve(Buffer* b, int64_t more) noexcept nogil:
    """Grow the capacity for `more` bytes: 0, or -1 without memory."""
    cdef int64_t capacity = b.capacity
    cdef void* data
    if b.size + more <= capacity:
        return 0
    capacity = max(2 * capacity, b.size + more, <int64_t>4096)
    data = realloc(b.data, <size_t>capacity)
    if data == NULL:
        return -1
    b.data = <uint8_t*>data
    b.capacity = capacity
    return 0


cdef inline int put_bytes(Buffer* b, const uint8_t* p, int64_t n) noexcept nogil:
    if reserve(b, n) != 0:
        return -1
    copy_bytes(b.data + b.size, p, <size_t>n)
    b.size += n
    return 0


cdef inline void put_end(Buffer* offsets, int64_t end) noexcept nogil:
    """Write where an element ends, or where the first one starts; call `reserve` before."""
    (<int32_t*>(offsets.data + offsets.size))[0] = <int32_t>end
    offsets.size += 4


@cython.final
@cython.no_gc
cdef class ArrowBuffer:
    """Memory that a column was filled into; freed with the last Arrow array on it."""

    cdef uint8_t* data
    cdef int64_t size

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)


cdef ArrowBuffer release_buffer(Buffer* b):
    """Hand the memory over; the column continues with an empty buffer."""
    cdef ArrowBuffer out = ArrowBuffer.__new__(ArrowBuffer)
    out.data = b.data
    out.size = b.size
    b.data = NULL
    b.size = 0
    return out
