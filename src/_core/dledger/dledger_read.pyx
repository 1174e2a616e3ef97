# Entries of a DLedgerLog by their index: the unit has the offset of the entry, and must match it.
from _core.layout cimport PARSED_BAD_CRC, PARSED_RECORD, PARSED_SHORT, get_i64
from _core.dledger_layout cimport INDEX_UNIT_BYTES, Entry, parse_entry, unit_agrees
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t

from pyledger import errors


cdef int find_entry(DLedgerLog log, int64_t index, Entry* e) except -1:
    """The entry of an index, its unit and its checksum compared with it."""
    cdef MappedFile file
    cdef int64_t offset
    cdef int status = PARSED_SHORT
    cdef const uint8_t* unit
    if not log.begin_index <= index <= log.end_index:
        raise errors.OffsetOutOfRangeError(index, log.begin_index, log.end_index)
    file = log.units.find(index * INDEX_UNIT_BYTES)
    if file is None:
        raise errors.CorruptRecordError(log.units.folder, index * INDEX_UNIT_BYTES, "has no index unit")
    unit = file.base + (index * INDEX_UNIT_BYTES - file.start_offset)
    offset = get_i64(unit + 4)
    file = log.data.find(offset)
    if file is not None:
        status = parse_entry(file.base + (offset - file.start_offset),
                             file.wrote - (offset - file.start_offset), e)
    if status == PARSED_RECORD:
        if not unit_agrees(unit, e, offset) or e.index != index:
            status = ENTRY_BAD_INDEX
        elif is_sealed(e) and entry_body_crc(e.body, e.body_bytes) != e.body_crc:
            status = PARSED_BAD_CRC
    check_entry_intact(log)
    if status != PARSED_RECORD:
        problem = _ENTRY_PROBLEMS.get(status, "there is a filler, not an entry")
        raise errors.CorruptRecordError(log.data.folder if file is None else file.path, offset, problem)
    return 0


cdef int check_entry_intact(DLedgerLog log) except -1:
    """Raise if bytes of any index or data file are gone; which one does not matter, as that is rare."""
    cdef MappedFile file
    if damaged_mappings != 0:
        for file in log.units.run + log.data.run:
            file.check_intact()
    return 0


cdef tuple copy_entries(DLedgerLog log, int64_t first, int64_t count_max, int64_t bytes_max):
    """What `DLedgerLog.read_batch` gives."""
    cdef Entry entry
    cdef const uint8_t* start = NULL     # of a stretch without filler in it
    cdef const uint8_t* end = NULL
    cdef int64_t index = first
    cdef int64_t size_bytes = 0
    cdef list stretches = []
    while True:
        find_entry(log, index, &entry)
        size_bytes += entry.size_bytes
        if index > first and size_bytes > bytes_max:
            break
        if entry.start != end:
            if start != NULL:
                stretches.append(PyBytes_FromStringAndSize(<const char*>start, end - start))
            start = entry.start
        end = entry.start + entry.size_bytes
        index += 1
        if index > log.end_index or index - first >= count_max:
            break
    stretches.append(PyBytes_FromStringAndSize(<const char*>start, end - start))
    check_entry_intact(log)
    return b"".join(stretches), first, index - first


cdef int64_t unit_field(DLedgerLog log, int64_t index, int at) except? -1:
    cdef MappedFile file
    cdef int64_t value
    if not log.begin_index <= index <= log.end_index:
        raise errors.OffsetOutOfRangeError(index, log.begin_index, log.end_index)
    file = log.units.find(index * INDEX_UNIT_BYTES)
    if file is None:
        raise errors.CorruptRecordError(log.units.folder, index * INDEX_UNIT_BYTES, "has no index unit")
    value = get_i64(file.base + (index * INDEX_UNIT_BYTES - file.start_offset) + at)
    file.check_intact()
    return value
