# Raw units of consume queues, many at a time: their fields as columns, and those that a consumer wants.
from _core.layout cimport CQ_UNIT_BYTES, get_i32, get_i64
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy


def unit_offsets(const uint8_t[::1] raw not None):
    """The physical offset of each unit."""
    cdef int64_t i, count = raw.shape[0] // CQ_UNIT_BYTES
    column = PyBytes_FromStringAndSize(NULL, count * <int64_t>sizeof(int64_t))
    cdef int64_t* numbers = <int64_t*>PyBytes_AsString(column)
    for i in range(count):
        numbers[i] = get_i64(&raw[i * CQ_UNIT_BYTES])
    return memoryview(column).cast("q")


def unit_sizes(const uint8_t[::1] raw not None):
    """The size of each unit's record."""
    cdef int64_t i, count = raw.shape[0] // CQ_UNIT_BYTES
    column = PyBytes_FromStringAndSize(NULL, count * <int64_t>sizeof(int64_t))
    cdef int64_t* numbers = <int64_t*>PyBytes_AsString(column)
    for i in range(count):
        numbers[i] = get_i32(&raw[i * CQ_UNIT_BYTES + 8])
    return memoryview(column).cast("q")


cdef bint is_wanted(const uint8_t* unit, const int32_t* codes, int64_t count) noexcept nogil:
    """Whether a unit names a record, and its tags code is one of `codes` (ascending) or no hash."""
    cdef int64_t code = get_i64(unit + 12), low = 0, high = count, middle
    if is_fill(unit):
        return False
    if codes == NULL or code != <int32_t>code:
        return True
    while low < high:
        middle = (low + high) // 2
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < count and codes[low] == code


def select_units(const uint8_t[::1] raw not None, const int32_t[::1] codes=None):
    """Raw units without fill units; with `codes`, only units whose tags may match."""
    cdef int64_t i, count = raw.shape[0] // CQ_UNIT_BYTES, kept = 0
    cdef int64_t code_count = 0 if codes is None else codes.shape[0]
    cdef int32_t none = 0
    cdef const int32_t* wanted = NULL
    cdef const uint8_t* unit
    cdef uint8_t* out
    if codes is not None:
        wanted = &none
        if code_count:
            wanted = &codes[0]
    for i in range(count):
        kept += is_wanted(&raw[i * CQ_UNIT_BYTES], wanted, code_count)
    units = PyBytes_FromStringAndSize(NULL, kept * CQ_UNIT_BYTES)
    out = <uint8_t*>PyBytes_AsString(units)
    for i in range(count):
        unit = &raw[i * CQ_UNIT_BYTES]
        if is_wanted(unit, wanted, code_count):
            memcpy(out, unit, CQ_UNIT_BYTES)
            out += CQ_UNIT_BYTES
    return units
