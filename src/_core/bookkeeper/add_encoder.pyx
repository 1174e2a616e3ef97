# Adds of a ledger client in version 3 of the protocol: encodes frames with entries that it builds, or that
# are whole already, and decodes the numbers of successful adds. The bytes are those of
# `pyledger.wire.bookkeeper.entry` and `.version3`.
from _core.layout cimport get_i32, get_i64, put_i32, put_i64
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp, memcpy

cimport cython

from pyledger.errors import FrameError, LedgerFrameError

cdef enum:
    ADD_FRAME_BYTES_MAX = 0x7FFFFFFF
    ADDED_BYTES_MIN = 14


cdef inline int varint_bytes(uint64_t value) noexcept nogil:
    cdef int count = 1
    while value >= 0x80:
        value >>= 7
        count += 1
    return count


cdef inline int64_t add_about_bytes(int64_t ledger_id, int64_t entry_id, int64_t key_bytes,
                                    int64_t entry_bytes, int64_t trailing_bytes) noexcept nogil:
    """Of the part of an add that is not its head."""
    return (
        4 + varint_bytes(ledger_id) + varint_bytes(entry_id) + varint_bytes(key_bytes) + key_bytes
        + varint_bytes(entry_bytes) + entry_bytes + trailing_bytes
    )


cdef int64_t add_frame_bytes(uint64_t number, int64_t ledger_id, int64_t entry_id, int64_t key_bytes,
                             int64_t entry_bytes, int64_t trailing_bytes) except -1:
    """Of a frame, without its length."""
    cdef int64_t about_bytes = add_about_bytes(ledger_id, entry_id, key_bytes, entry_bytes, trailing_bytes)
    cdef int64_t size_bytes = 9 + varint_bytes(number) + varint_bytes(about_bytes) + about_bytes
    if size_bytes > ADD_FRAME_BYTES_MAX or ledger_id < 0 or entry_id < 0:
        raise LedgerFrameError(f"entry {entry_id} of {entry_bytes} bytes does not go into a frame")
    return size_bytes


cdef uint8_t* put_add_head(uint8_t* at, uint64_t number, int64_t ledger_id, int64_t entry_id, bytes key,
                           int64_t entry_bytes, int64_t trailing_bytes) noexcept:
    """Write the frame up to the entry, its length included; return where the entry begins."""
    cdef int64_t key_bytes = PyBytes_GET_SIZE(key)
    cdef int64_t about_bytes = add_about_bytes(ledger_id, entry_id, key_bytes, entry_bytes, trailing_bytes)
    cdef int number_bytes = varint_bytes(number)
    put_i32(at, <int>(9 + number_bytes + varint_bytes(about_bytes) + about_bytes))
    at[4], at[5] = 0x0A, <uint8_t>(5 + number_bytes)
    at[6], at[7], at[8], at[9], at[10] = 0x08, ADD_V3_VERSION, 0x10, ADD_V3_OPERATION, 0x18
    at = put_varint(at + 11, number)
    at[0], at[1] = 0xAA, 0x06
    at = put_varint(at + 2, about_bytes)
    at[0] = 0x08
    at = put_varint(at + 1, ledger_id)
    at[0] = 0x10
    at = put_varint(at + 1, entry_id)
    at[0] = 0x1A
    at = put_varint(at + 1, key_bytes)
    memcpy(at, PyBytes_AS_STRING(key), key_bytes)
    at[key_bytes] = 0x22
    return put_varint(at + key_bytes + 1, entry_bytes)


cdef inline uint8_t* put_add_tail(uint8_t* at, bint deferred_sync) noexcept:
    """Write what follows the entry: `writeFlags`, where they are set."""
    if deferred_sync:
        at[0], at[1] = 0x28, 1
        at += 2
    return at


cdef inline int64_t entry_id_of(bytes entry) noexcept:
    return get_i64(<const uint8_t*>PyBytes_AS_STRING(entry) + 8)


def encode_adds(uint64_t number, int64_t ledger_id, bytes key not None, list entries not None, *,
                bint deferred_sync=False):
    """Frames of adds of whole entries, in one piece; see _core.pyi."""
    cdef int64_t whole_bytes = 0
    cdef int64_t key_bytes = PyBytes_GET_SIZE(key)
    cdef int64_t tail_bytes = 2 if deferred_sync else 0
    cdef uint64_t at_number = number
    cdef bytes entry, made
    cdef uint8_t* at
    for entry in entries:
        if PyBytes_GET_SIZE(entry) < ENTRY_HEADER_BYTES:
            raise LedgerFrameError(f"{PyBytes_GET_SIZE(entry)} bytes are not an entry")
        whole_bytes += 4 + add_frame_bytes(at_number, ledger_id, entry_id_of(entry), key_bytes,
                                           PyBytes_GET_SIZE(entry), tail_bytes)
        at_number += 1
    made = PyBytes_FromStringAndSize(NULL, whole_bytes)
    at = <uint8_t*>PyBytes_AS_STRING(made)
    for entry in entries:
        at = put_add_head(at, number, ledger_id, entry_id_of(entry), key, PyBytes_GET_SIZE(entry), tail_bytes)
        memcpy(at, PyBytes_AS_STRING(entry), PyBytes_GET_SIZE(entry))
        at = put_add_tail(at + PyBytes_GET_SIZE(entry), deferred_sync)
        number += 1
    ASSERT(at == <uint8_t*>PyBytes_AS_STRING(made) + whole_bytes)
    return made


@cython.final
cdef class AddEncoder:
    """Frames of the adds to one ledger; see _core.pyi."""

    cdef int64_t ledger_id
    cdef bytes key
    cdef int kind
    cdef int64_t digest_bytes
    cdef bint deferred_sync

    def __cinit__(self, int64_t ledger_id, bytes key not None, int kind, *, bint deferred_sync=False):
        self.ledger_id, self.key, self.kind = ledger_id, key, kind
        self.digest_bytes = entry_digest_bytes(kind)
        self.deferred_sync = deferred_sync

    def encode_batch(self, uint64_t number, int64_t entry_id, int64_t last_add_confirmed, int64_t length,
                     list payloads not None):
        """Frames of adds of consecutive entries, in one piece; see _core.pyi."""
        cdef int64_t whole_bytes = 0
        cdef int64_t at_entry = entry_id
        cdef uint64_t at_number = number
        cdef bytes payload, made
        cdef uint8_t* at
        for payload in payloads:
            whole_bytes += 4 + self.frame_bytes(at_number, at_entry, PyBytes_GET_SIZE(payload))
            at_entry += 1
            at_number += 1
        made = PyBytes_FromStringAndSize(NULL, whole_bytes)
        at = <uint8_t*>PyBytes_AS_STRING(made)
        for payload in payloads:
            length += PyBytes_GET_SIZE(payload)
            at = self.put_frame(at, number, entry_id, last_add_confirmed, length,
                                <const uint8_t*>PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
            entry_id += 1
            number += 1
        ASSERT(at == <uint8_t*>PyBytes_AS_STRING(made) + whole_bytes)
        return made

    cdef int64_t frame_bytes(self, uint64_t number, int64_t entry_id, int64_t payload_bytes) except -1:
        """Of a frame, without its length."""
        cdef int64_t entry_bytes = ENTRY_HEADER_BYTES + self.digest_bytes + payload_bytes
        return add_frame_bytes(number, self.ledger_id, entry_id, PyBytes_GET_SIZE(self.key), entry_bytes,
                               2 if self.deferred_sync else 0)

    cdef uint8_t* put_frame(self, uint8_t* at, uint64_t number, int64_t entry_id, int64_t confirmed,
                            int64_t length, const uint8_t* payload, int64_t payload_bytes) noexcept:
        """Write a frame whose size was computed before; return where it ends."""
        cdef int64_t entry_bytes = ENTRY_HEADER_BYTES + self.digest_bytes + payload_bytes
        at = put_add_head(at, number, self.ledger_id, entry_id, self.key, entry_bytes,
                          2 if self.deferred_sync else 0)
        self.put_entry(at, entry_id, confirmed, length, payload, payload_bytes)
        return put_add_tail(at + entry_bytes, self.deferred_sync)

    cdef void put_entry(self, uint8_t* at, int64_t entry_id, int64_t confirmed, int64_t length,
                        const uint8_t* payload, int64_t payload_bytes) noexcept nogil:
        cdef uint8_t* behind = at + ENTRY_HEADER_BYTES + self.digest_bytes
        cdef uint32_t crc
        put_i64(at, self.ledger_id)
        put_i64(at + 8, entry_id)
        put_i64(at + 16, confirmed)
        put_i64(at + 24, length)
        memcpy(behind, payload, payload_bytes)
        if self.kind == ENTRY_CRC32C:
            crc = crc32c_update(crc32c_update(0, at, ENTRY_HEADER_BYTES), payload, payload_bytes)
            put_i32(at + 32, <int>crc)
        elif self.kind == ENTRY_CRC32:
            put_i64(at + 32, crc32_update(crc32_update(0, at, ENTRY_HEADER_BYTES), payload, payload_bytes))


def added_number(frame):
    """Number of an add that was stored; -1: it is another answer. See _core.pyi."""
    cdef Py_buffer view
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        return number_of_added(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef int64_t number_of_added(const uint8_t* frame, int64_t size_bytes) noexcept nogil:
    cdef Wire head
    cdef uint64_t number
    if size_bytes < ADDED_BYTES_MIN or frame[0] != 0x0A or memcmp(frame + 2, b"\x08\x03\x10\x02\x18", 5) != 0:
        return -1
    head.at, head.end = frame + 7, frame + 2 + frame[1]
    if frame[1] > 15 or head.end + 7 > frame + size_bytes or not take_varint(&head, &number):
        return -1
    # Status of the whole is good, and of the add, which is the next field.
    if head.at != head.end or memcmp(head.at, b"\x10\x00\xaa\x06", 4) != 0 or number >> 63:
        return -1
    return <int64_t>number if head.at[5] == 0x08 and head.at[6] == 0 else -1


def split_responses(data, int64_t frame_bytes_max):
    """Frames of answers; those of adds that went well by their numbers. See _core.pyi."""
    cdef Py_buffer view
    cdef const uint8_t* base
    cdef int64_t at = 0
    cdef int64_t size_bytes, number
    cdef int64_t first = 0
    cdef int64_t count = 0
    cdef list found = []
    cdef object whole = None
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        while view.len - at >= 4:
            size_bytes = get_i32(base + at)
            if not 4 <= size_bytes <= frame_bytes_max - 4:
                limit = frame_bytes_max - 4
                raise FrameError(f"a frame of {size_bytes} bytes is announced, the limit is {limit}")
            if size_bytes > view.len - at - 4:
                break
            number = number_of_added(base + at + 4, size_bytes)
            if number >= 0 and count and number == first + count:
                count += 1
            else:
                if count:
                    found.append((first, count))
                first, count = number, number >= 0
            if number < 0:
                if whole is None:
                    whole = memoryview(data).toreadonly()
                found.append(whole[at + 4:at + 4 + size_bytes])
            at += 4 + size_bytes
        if count:
            found.append((first, count))
    finally:
        PyBuffer_Release(&view)
    return found, at
