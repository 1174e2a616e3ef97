# Entries of ledgers in a client, many at a time: split a batched response into entries, check their digests,
# make objects of them. The results are those of `pyledger.wire.bookkeeper.entry` for each entry.
from _core.layout cimport get_i32, get_i64
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint32_t, uint8_t

cdef extern from "Python.h":
    object PyType_GenericNew(type kind, object arguments, void* named)
    int PyObject_GenericSetAttr(object owner, object name, object value) except -1

cdef enum:
    ENTRY_HEADER_BYTES = 32
    ENTRY_CRC32 = 1                  # numbers of `DigestType`
    ENTRY_CRC32C = 3
    ENTRY_DUMMY = 4


cdef inline int64_t entry_digest_bytes(int kind) except -1:
    if kind == ENTRY_CRC32:
        return 8
    if kind == ENTRY_CRC32C:
        return 4
    if kind == ENTRY_DUMMY:
        return 0
    raise ValueError(f"digest {kind} is not made here")


cdef bint entry_is_whole(int kind, int64_t digest_bytes, int64_t ledger_id, int64_t entry_id,
                         const uint8_t* entry, int64_t size_bytes) noexcept nogil:
    """Whether these are the bytes of that entry, as its writer made them."""
    cdef int64_t head_bytes = ENTRY_HEADER_BYTES + digest_bytes
    cdef uint32_t crc
    if size_bytes < head_bytes or get_i64(entry) != ledger_id or get_i64(entry + 8) != entry_id:
        return False
    if kind == ENTRY_CRC32C:
        crc = crc32c_update(0, entry, ENTRY_HEADER_BYTES)
        crc = crc32c_update(crc, entry + head_bytes, size_bytes - head_bytes)
        return crc == <uint32_t>get_i32(entry + 32)
    if kind == ENTRY_CRC32:
        crc = crc32_update(0, entry, ENTRY_HEADER_BYTES)
        return <int64_t>crc32_update(crc, entry + head_bytes, size_bytes - head_bytes) == get_i64(entry + 32)
    return True


def count_whole_entries(int kind, int64_t ledger_id, int64_t first_entry_id, entries):
    """How many of the first entries are whole; see _core.pyi."""
    cdef int64_t digest_bytes = entry_digest_bytes(kind)
    cdef int64_t entry_id = first_entry_id
    cdef bytes entry
    for entry in entries:
        if not entry_is_whole(kind, digest_bytes, ledger_id, entry_id,
                              <const uint8_t*>PyBytes_AS_STRING(entry), PyBytes_GET_SIZE(entry)):
            break
        entry_id += 1
    return entry_id - first_entry_id


def take_entries(type made, int kind, int64_t ledger_id, int64_t first_entry_id, entries):
    """Entries that are whole, up to the first that is not; see _core.pyi."""
    cdef int64_t digest_bytes = entry_digest_bytes(kind)
    cdef int64_t head_bytes = ENTRY_HEADER_BYTES + digest_bytes
    cdef int64_t entry_id = first_entry_id
    cdef list found = []
    cdef bytes entry
    cdef const uint8_t* at
    cdef int64_t size_bytes
    cdef object one, of_ledger = ledger_id
    for entry in entries:
        at, size_bytes = <const uint8_t*>PyBytes_AS_STRING(entry), PyBytes_GET_SIZE(entry)
        if not entry_is_whole(kind, digest_bytes, ledger_id, entry_id, at, size_bytes):
            break
        one = PyType_GenericNew(made, None, NULL)
        # Bypass the `__setattr__` of a frozen class, as its own `__init__` does.
        PyObject_GenericSetAttr(one, "ledger_id", of_ledger)
        PyObject_GenericSetAttr(one, "entry_id", entry_id)
        PyObject_GenericSetAttr(one, "last_add_confirmed", get_i64(at + 16))
        PyObject_GenericSetAttr(one, "length", get_i64(at + 24))
        payload = PyBytes_FromStringAndSize(<const char*>at + head_bytes, size_bytes - head_bytes)
        PyObject_GenericSetAttr(one, "payload", payload)
        found.append(one)
        entry_id += 1
    return found


def split_entries(body):
    """Entries that each follow their length (i32); None: they do not add up. See _core.pyi."""
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef int64_t size_bytes
    cdef list found = []
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        end = at + view.len
        while at < end:
            size_bytes = get_i32(at) if end - at >= 4 else -1
            if not 0 <= size_bytes <= end - at - 4:
                return None
            found.append(PyBytes_FromStringAndSize(<const char*>at + 4, size_bytes))
            at += 4 + size_bytes
        ASSERT(at == end)
    finally:
        PyBuffer_Release(&view)
    return tuple(found)


def read_indexed_entries(bytes data not None, int64_t location, bytes slots not None, int64_t ledger_id,
                         int64_t entry_id):
    """Read entries of a part of an entry log that match the index; see _core.pyi."""
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef const uint8_t* slot = <const uint8_t*>PyBytes_AS_STRING(slots)
    cdef int64_t end = PyBytes_GET_SIZE(data)
    cdef int64_t at = 0
    cdef int64_t size_bytes
    cdef list found = []
    for _ in range(PyBytes_GET_SIZE(slots) // 8):
        if get_i64(slot) != location + at + 4 or end - at < 4 + 16:
            break
        size_bytes = get_i32(base + at)
        at += 4
        if size_bytes < 16 or size_bytes > end - at:
            break
        if get_i64(base + at) != ledger_id or get_i64(base + at + 8) != entry_id:
            break
        found.append(PyBytes_FromStringAndSize(<const char*>base + at, size_bytes))
        at += size_bytes
        ASSERT(at <= end)
        entry_id += 1
        slot += 8
    return found
