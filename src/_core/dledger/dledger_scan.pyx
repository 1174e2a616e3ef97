# The walk over a DLedger log: entry after entry, over fillers into the next file, held against the index.
# The rules are those of Java's recovery; an entry that we sealed must match its seal besides.
from _core.layout cimport (PARSED_BAD_CRC, PARSED_BAD_MAGIC, PARSED_BAD_POSITION, PARSED_BAD_SIZE,
                           PARSED_BLANK, PARSED_RECORD, PARSED_SHORT, get_i32)
from _core.dledger_layout cimport (ENTRY_HEAD_BYTES, ENTRY_NOOP, FILLER_BYTES_MIN, INDEX_UNIT_BYTES, Entry,
                                   parse_entry, unit_agrees)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

cimport cython

from pyledger import errors

cdef enum:
    ENTRY_BAD_INDEX = -20            # not the successor of the one before it
    ENTRY_BAD_TERM = -21             # a term lower than that of the one before it

cdef dict _ENTRY_STOPS = {
    SCAN_END: "end", SCAN_ZEROES: "zeroes", PARSED_SHORT: "short", PARSED_BAD_MAGIC: "bad magic",
    PARSED_BAD_SIZE: "bad size", PARSED_BAD_CRC: "bad crc", PARSED_BAD_POSITION: "bad position",
    ENTRY_BAD_INDEX: "bad index", ENTRY_BAD_TERM: "bad term",
}
cdef dict _ENTRY_PROBLEMS = {
    SCAN_END: "", SCAN_ZEROES: "",
    PARSED_SHORT: "the bytes end before the entry does",
    PARSED_BAD_MAGIC: "no entry starts here (unknown magic)",
    PARSED_BAD_SIZE: "its lengths do not add up",
    PARSED_BAD_CRC: "its body does not match the checksum stored with it",
    PARSED_BAD_POSITION: "its stored position is not its own",
    ENTRY_BAD_INDEX: "its index does not follow that of the entry before it",
    ENTRY_BAD_TERM: "its term is lower than that of the entry before it",
}


cdef struct EntryWalk:
    int64_t offset                   # where the next entry is expected
    int64_t entry_count
    int64_t first_index              # of this walk; -1: none yet
    int64_t first_offset
    int64_t last_index               # -1: none yet, any index may come
    int64_t last_term
    int64_t last_offset
    int64_t unit_fault               # first index whose unit does not agree; -1: none
    int64_t sealed_count
    bint any_position                # generation B: `pos` is the leader's affair, and no-ops are entries


cdef inline int32_t seal_of(const uint8_t* head) noexcept nogil:
    """CRC-32 of an entry's head, its body CRC included; never 0. It is stored in the field `chainCrc`."""
    cdef uint32_t crc = crc32_update(crc32_update(0, head, 36), head + 40, 8)
    return <int32_t>(crc if crc != 0 else 1)


cdef inline int32_t entry_body_crc(const uint8_t* body, int32_t size_bytes) noexcept nogil:
    return <int32_t>crc32_update(0, body, <size_t>size_bytes)


cdef inline bint is_sealed(const Entry* e) noexcept nogil:
    """Whether we wrote the checksums of an entry. Others leave both fields 0, or put anything there."""
    return e.chain_crc != 0 and seal_of(e.start) == e.chain_crc


cdef int check_entry(EntryWalk* w, const Entry* e) noexcept nogil:
    """PARSED_RECORD, or why a parsed entry is not the next one of the log."""
    if not w.any_position:
        if e.pos != w.offset:
            return PARSED_BAD_POSITION
        if e.magic == ENTRY_NOOP:
            return PARSED_BAD_MAGIC
    if e.index < 0 or (w.last_index >= 0 and e.index != w.last_index + 1):
        return ENTRY_BAD_INDEX
    if e.term < w.last_term or e.term < 0:
        return ENTRY_BAD_TERM
    if is_sealed(e):
        if entry_body_crc(e.body, e.body_bytes) != e.body_crc:
            return PARSED_BAD_CRC
        w.sealed_count += 1
    return PARSED_RECORD


cdef int next_entry(LogView view, LogView units, EntryWalk* w, Entry* e) noexcept nogil:
    """Step to the next valid entry: PARSED_RECORD, or why there is none."""
    cdef int64_t available = 0
    cdef const uint8_t* where
    cdef int status
    while w.offset < view.end_offset:
        where = view.at(w.offset, &available)
        if where == NULL:
            return PARSED_SHORT
        status = parse_entry(where, available, e)
        if status == PARSED_BLANK:
            # Generation A takes any filler for the rest of its file; one at a head is B's, or ours.
            if FILLER_BYTES_MIN <= e.size_bytes < available and view.find(w.offset).start == w.offset:
                w.offset += e.size_bytes
            else:
                w.offset = view.next_file_offset(w.offset)
            continue
        if status == PARSED_RECORD:
            status = check_entry(w, e)
        elif available >= FILLER_BYTES_MIN and get_i32(where + 4) == 0:
            status = SCAN_ZEROES     # Java ends at size 0, whatever the magic is
        if status == PARSED_RECORD:
            note_entry(units, w, e)
        return status
    return SCAN_END


cdef void note_entry(LogView units, EntryWalk* w, const Entry* e) noexcept nogil:
    """Make an entry the last of the walk, and hold its index unit against it."""
    cdef int64_t available = 0
    cdef const uint8_t* unit
    if w.first_index < 0:
        w.first_index = e.index
        w.first_offset = w.offset
    if units is not None and w.unit_fault < 0:
        unit = NULL
        if e.index < INT64_MAX // INDEX_UNIT_BYTES:
            unit = units.at(e.index * INDEX_UNIT_BYTES, &available)
        if unit == NULL or available < INDEX_UNIT_BYTES or not unit_agrees(unit, e, w.offset):
            w.unit_fault = e.index
    w.last_index = e.index
    w.last_term = e.term
    w.last_offset = w.offset
    w.entry_count += 1
    w.offset += e.size_bytes


cdef int walk_slice(LogView view, LogView units, int64_t budget_bytes, EntryWalk* w) noexcept nogil:
    cdef Entry entry
    cdef int64_t pause = w.offset + budget_bytes
    cdef int status
    while w.offset < pause:
        status = next_entry(view, units, w, &entry)
        if status != PARSED_RECORD:
            return status
    return SCAN_PAUSED


cdef tuple entry_tuple(const Entry* e):
    """The members of `protocol.dledger.messages.Entry`."""
    return (e.index, e.term, e.pos, e.size_bytes,
            PyBytes_FromStringAndSize(<const char*>e.body, e.body_bytes),
            e.magic, e.channel, e.chain_crc, e.body_crc)


@cython.final
cdef class EntryStop:
    """Where and why a walk over a DLedger log ended, and what it found."""

    cdef EntryWalk walk
    cdef readonly str status
    cdef int code

    @property
    def next_offset(self):
        return self.walk.offset

    @property
    def entry_count(self):
        return self.walk.entry_count

    @property
    def first_index(self):
        return self.walk.first_index

    @property
    def first_offset(self):
        return self.walk.first_offset

    @property
    def last_index(self):
        return self.walk.last_index

    @property
    def last_term(self):
        return self.walk.last_term

    @property
    def last_offset(self):
        return self.walk.last_offset

    @property
    def unit_fault(self):
        return self.walk.unit_fault

    @property
    def sealed_count(self):
        return self.walk.sealed_count

    @property
    def problem(self):
        return _ENTRY_PROBLEMS[self.code]

    def __repr__(self):
        return (f"EntryStop(next_offset={self.next_offset}, status={self.status!r}, "
                f"last_index={self.last_index})")


cdef EntryStop entry_stop(const EntryWalk* w, int code):
    cdef EntryStop stop = EntryStop.__new__(EntryStop)
    stop.walk = w[0]
    stop.code = code
    stop.status = _ENTRY_STOPS[code]
    return stop


def scan_entries(LogView view not None, int64_t start, *, LogView units=None, int64_t last_index=-1,
                 int64_t last_term=-1, bint any_position=False, progress=None):
    """Walk the entries from `start` on and check each one; see _core.pyi."""
    cdef EntryWalk w = [start, 0, -1, -1, last_index, last_term, -1, -1, 0, any_position]
    cdef int status = SCAN_PAUSED
    while status == SCAN_PAUSED:
        with nogil:
            status = walk_slice(view, units, SCAN_SLICE_BYTES, &w)
        view.check_intact(start, w.offset + 1)
        PyErr_CheckSignals()
        if progress is not None:
            progress(w.offset)
    return entry_stop(&w, status)


@cython.final
cdef class EntryScan:
    """Iterates over the entries from an offset on; afterwards `stop` has the reason why it ended."""

    cdef LogView view
    cdef EntryWalk walk
    cdef readonly EntryStop stop

    def __cinit__(self, LogView view not None, int64_t start, *, int64_t last_index=-1, int64_t last_term=-1,
                  bint any_position=False):
        self.view = view
        self.walk = [start, 0, -1, -1, last_index, last_term, -1, -1, 0, any_position]

    def __iter__(self):
        return self

    def __next__(self):
        cdef Entry entry
        cdef int64_t before
        cdef int status
        if self.stop is None:
            before = self.walk.offset
            status = next_entry(self.view, None, &self.walk, &entry)
            found = entry_tuple(&entry) if status == PARSED_RECORD else None
            self.view.check_intact(before, self.walk.offset + 1)
            if found is not None:
                return found
            self.stop = entry_stop(&self.walk, status)
        raise StopIteration


def read_entry(LogView view not None, int64_t offset):
    """The entry at an offset of the log, its checksum checked; see _core.pyi."""
    cdef Entry entry
    cdef int64_t available = 0
    cdef const uint8_t* where = view.at(offset, &available)
    cdef int status = PARSED_SHORT
    if where != NULL:
        status = parse_entry(where, available, &entry)
    if status == PARSED_RECORD and is_sealed(&entry):
        if entry_body_crc(entry.body, entry.body_bytes) != entry.body_crc:
            status = PARSED_BAD_CRC
    if status != PARSED_RECORD:
        view.check_intact(offset, offset + 1)
        problem = _ENTRY_PROBLEMS[status] if status != PARSED_BLANK else "there is a filler, not an entry"
        raise errors.CorruptRecordError(view.path_at(offset), offset, problem)
    found = entry_tuple(&entry)
    view.check_intact(offset, offset + 1)
    return found


def seal_entry(bytes head not None, body not None):
    """The two checksums `(chain_crc, body_crc)` that seal an entry with this head; see _core.pyi."""
    cdef uint8_t[ENTRY_HEAD_BYTES] copy
    cdef const uint8_t[::1] view = body
    cdef int32_t body_crc
    if len(head) != ENTRY_HEAD_BYTES:
        raise ValueError(f"a head has {ENTRY_HEAD_BYTES} bytes, not {len(head)}")
    memcpy(copy, <const uint8_t*><const char*>head, ENTRY_HEAD_BYTES)
    body_crc = entry_body_crc(&view[0], <int32_t>view.shape[0]) if view.shape[0] else 0
    put_i32(copy + 40, body_crc)
    return seal_of(copy), body_crc
