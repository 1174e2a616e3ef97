# ConsumeQueueExt: what does not fit a 20-byte unit. Read-only: units that we write keep their tags codes.
from _core.layout cimport get_i16, get_i64
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t

cdef enum:
    EXT_UNIT_MIN_BYTES = 20
cdef int64_t EXT_ADDRESS_MAX = -2147483649
cdef int64_t EXT_ADDRESS_BASE = INT64_MIN


cdef class ConsumeQueueExt:
    """Extended units of one queue, read-only."""

    cdef readonly list files
    cdef readonly int64_t file_size_bytes

    def __init__(self, str folder, str topic, int queue_id):
        found = list_units_files(queue_folder(folder, topic, queue_id))
        self.file_size_bytes = guess_file_size(found, 1)
        self.files = []
        for _, path, size in found:
            if size >= EXT_UNIT_MIN_BYTES:
                self.files.append(MappedFile.open(path, size_bytes=self.file_size_bytes))

    def read(self, int64_t address):
        """(tags code, store time in ms, bit map) of the unit at an address; None when none is there."""
        cdef uint64_t offset = <uint64_t>address ^ <uint64_t>EXT_ADDRESS_BASE
        cdef MappedFile file
        cdef const uint8_t* unit
        cdef int64_t position, size
        if address > EXT_ADDRESS_MAX:
            return None
        for file in self.files:
            position = <int64_t>offset - file.start_offset
            if position < 0 or position > file.mapped_bytes - EXT_UNIT_MIN_BYTES:
                continue
            unit = file.base + position
            size = get_i16(unit)
            if size < EXT_UNIT_MIN_BYTES or size > file.mapped_bytes - position or (
                    get_i16(unit + 18) != size - EXT_UNIT_MIN_BYTES):
                return None
            return get_i64(unit + 2), get_i64(unit + 10), (<const char*>unit)[EXT_UNIT_MIN_BYTES:size]
        return None

    def tags_code(self, int64_t address):
        """The tags code stored at an address; the address itself when its unit is missing or damaged."""
        found = self.read(address)
        return address if found is None else found[0]
