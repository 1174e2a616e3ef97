# Entries and bodies in requests of our own groups: as they are stored, and with a length before each.
from _core.layout cimport PARSED_RECORD, get_i32
from _core.dledger_layout cimport ENTRY_BYTES_MAX, Entry, parse_entry
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t


def measure_entries(data not None):
    """First index and count of stored entries; None when they do not follow one another to the end."""
    cdef Entry entry
    cdef Py_buffer view
    cdef int64_t at = 0
    cdef int64_t count = 0
    cdef int64_t first = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while at < view.len:
            if parse_entry(<const uint8_t*>view.buf + at, view.len - at, &entry) != PARSED_RECORD:
                return None
            if entry.index < 0 or entry.size_bytes > ENTRY_BYTES_MAX:
                return None
            if count == 0:
                first = entry.index
            elif entry.index != first + count:
                return None
            at += entry.size_bytes
            count += 1
        return (first, count) if count else None
    finally:
        PyBuffer_Release(&view)


def count_bodies(data not None):
    """How many bodies have their length (i32) before them; -1 when the lengths do not add up."""
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef int64_t left
    cdef int64_t count = 0
    cdef int32_t size_bytes
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>view.buf
        left = view.len
        while left:
            if left < 4:
                return -1
            size_bytes = get_i32(p)
            if size_bytes < 0 or size_bytes > left - 4:
                return -1
            p += 4 + size_bytes
            left -= 4 + size_bytes
            count += 1
        return count
    finally:
        PyBuffer_Release(&view)
