# AddIntake: decodes batches of plain adds of a bookie, passes their entries to the write cache and the
# journal, and encodes their responses, which are sent once the journal is on disk. Adds that are not plain
# (another request, a new or fenced ledger, a wrong key, a flag, other ids inside the entry, an entry id far
# beyond the last one) are left to `BookieRules` of `protocol.bookkeeper.bookie`.
#
# A batch is written to one journal: it ends before the first add of a ledger of another journal.
#
# Invariant: the effects and the responses are those of `BookieRules`.
from _core.layout cimport get_i32, get_i64, put_i32, put_i64
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cimport cython

cdef enum:
    ADD_KEY_BYTES = 20
    ADD_ENTRY_BYTES_MIN = 32
    ADD_ANSWER_BYTES_MAX = 64
    ADD_V2_WORD = 0x02010000
    ADD_V3_OPERATION = 2
    ADD_V3_VERSION = 3


cdef struct Add:
    const uint8_t* key
    const uint8_t* entry
    int64_t entry_bytes
    int64_t request_ledger           # ids in the request; the entry holds its own, too
    int64_t request_entry
    uint64_t txn_id


cdef struct Wire:
    const uint8_t* at
    const uint8_t* end


cdef inline bint take_varint(Wire* wire, uint64_t* value) noexcept nogil:
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while wire.at < wire.end and shift < 64:
        byte = wire.at[0]
        wire.at += 1
        value[0] |= <uint64_t>(byte & 0x7F) << shift
        if not byte & 0x80:
            return True
        shift += 7
    return False


cdef inline bint take_part(Wire* wire, Wire* part) noexcept nogil:
    """Bytes that follow their length."""
    cdef uint64_t size
    if not take_varint(wire, &size) or size > <uint64_t>(wire.end - wire.at):
        return False
    part.at, part.end = wire.at, wire.at + size
    wire.at = part.end
    return True


cdef bint parse_add_v3(const uint8_t* frame, int64_t size_bytes, Add* add) noexcept nogil:
    """Whether a frame is an add of version 3 with the fields of the plain case, each once."""
    cdef Wire wire, part
    cdef uint64_t tag
    cdef int seen = 0
    cdef bint headed = False
    wire.at, wire.end = frame, frame + size_bytes
    while wire.at < wire.end:
        if not take_varint(&wire, &tag):
            return False
        if tag == 0x0A and not headed:
            if not take_part(&wire, &part) or not parse_add_header(part, add):
                return False
            headed = True
        elif tag == 0x32A and not seen:
            if not take_part(&wire, &part):
                return False
            while part.at < part.end:
                if not take_varint(&part, &tag) or not take_add_field(&part, tag, add, &seen):
                    return False
        else:
            return False
    return headed and seen == 0b11110


cdef inline bint parse_add_header(Wire part, Add* add) noexcept nogil:
    cdef uint64_t tag, value
    cdef int seen = 0
    while part.at < part.end:
        if not take_varint(&part, &tag) or not take_varint(&part, &value):
            return False
        if tag == 0x08 and value == ADD_V3_VERSION:
            seen |= 1
        elif tag == 0x10 and value == ADD_V3_OPERATION:
            seen |= 2
        elif tag == 0x18:
            add.txn_id = value
            seen |= 4
        elif tag != 0x20 or value != 0:
            return False
    return seen == 7


cdef inline bint take_add_field(Wire* wire, uint64_t tag, Add* add, int* seen) noexcept nogil:
    cdef uint64_t value
    cdef Wire part
    cdef int bit = 1 << (tag >> 3) if tag < 0x30 else 0
    if not bit or seen[0] & bit:
        return False
    if tag == 0x08 or tag == 0x10:
        if not take_varint(wire, &value):
            return False
        if tag == 0x08:
            add.request_ledger = <int64_t>value
        else:
            add.request_entry = <int64_t>value
    elif tag == 0x1A or tag == 0x22:
        if not take_part(wire, &part):
            return False
        if tag == 0x1A:
            if part.end - part.at != ADD_KEY_BYTES:
                return False
            add.key = part.at
        else:
            add.entry, add.entry_bytes = part.at, part.end - part.at
    else:
        return False
    seen[0] |= bit
    return True


cdef bint parse_add_v2(const uint8_t* frame, int64_t size_bytes, Add* add) noexcept nogil:
    if size_bytes < 4 + ADD_KEY_BYTES + ADD_ENTRY_BYTES_MIN or get_i32(frame) != ADD_V2_WORD:
        return False
    add.key = frame + 4
    add.entry = frame + 4 + ADD_KEY_BYTES
    add.entry_bytes = size_bytes - 4 - ADD_KEY_BYTES
    add.request_ledger, add.request_entry = get_i64(add.entry), get_i64(add.entry + 8)
    return True


cdef inline uint8_t* put_varint(uint8_t* at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t>value
    return at + 1


cdef int64_t put_add_answer_v3(uint8_t* to, const Add* add) noexcept nogil:
    """Write a response with EOK; return its size (bytes)."""
    cdef uint8_t* at = to + 4
    cdef uint8_t* sized
    at[0] = 0x0A
    sized = at + 1
    at[2], at[3], at[4], at[5], at[6] = 0x08, ADD_V3_VERSION, 0x10, ADD_V3_OPERATION, 0x18
    at = put_varint(at + 7, add.txn_id)
    sized[0] = <uint8_t>(at - sized - 1)
    at[0], at[1], at[2], at[3] = 0x10, 0, 0xAA, 0x06
    sized = at + 4
    at[5], at[6], at[7] = 0x08, 0, 0x10
    at = put_varint(at + 8, <uint64_t>add.request_ledger)
    at[0] = 0x18
    at = put_varint(at + 1, <uint64_t>add.request_entry)
    sized[0] = <uint8_t>(at - sized - 1)
    put_i32(to, <int>(at - to - 4))
    return at - to


cdef int64_t put_add_answer_v2(uint8_t* to, const Add* add) noexcept nogil:
    put_i32(to, 24)
    put_i32(to + 4, ADD_V2_WORD)
    put_i32(to + 8, 0)
    put_i64(to + 12, add.request_ledger)
    put_i64(to + 20, add.request_entry)
    return 28


cdef bint same_key(const uint8_t* ours, const uint8_t* theirs) noexcept nogil:
    """Compare in constant time."""
    cdef uint8_t differs = 0
    cdef int at
    for at in range(ADD_KEY_BYTES):
        differs |= ours[at] ^ theirs[at]
    return differs == 0


@cython.final
cdef class AddIntake:
    """Decodes batches of plain adds; see _core.pyi."""

    cdef tuple writers               # journals; the ledger id modulo their number selects one
    cdef Py_ssize_t journal          # of the current batch; -1: not known yet
    cdef dict ledgers
    cdef dict last_ids
    cdef int64_t entry_id_max
    cdef int64_t step_max            # farther beyond the last entry of its ledger, the rules decide
    cdef uint8_t* answers
    cdef int64_t answers_bytes
    cdef int64_t capacity

    def __cinit__(self, tuple writers not None, dict ledgers not None, dict last_ids not None, *,
                  int64_t entry_id_max, int64_t step_max):
        if not writers or not all(isinstance(writer, JournalWriter) for writer in writers):
            raise TypeError("a bookie has one journal at least")
        self.writers = writers
        self.ledgers = ledgers
        self.last_ids = last_ids
        self.entry_id_max = entry_id_max
        self.step_max = step_max

    def __dealloc__(self):
        free(self.answers)

    def take(self, list frames not None, Py_ssize_t at, dict cache not None, *, bint version2):
        """Take the batch of plain adds that begins at a frame; see _core.pyi."""
        cdef Py_ssize_t first = at
        cdef int64_t entry_bytes = 0
        cdef int64_t taken
        cdef Py_buffer view
        cdef list touched = []
        self.answers_bytes = 0
        self.journal = -1
        while at < len(frames):
            PyObject_GetBuffer(frames[at], &view, PyBUF_SIMPLE)
            try:
                taken = self.take_one(<const uint8_t*>view.buf, view.len, cache, touched, version2)
            finally:
                PyBuffer_Release(&view)
            if taken < 0:
                break
            entry_bytes += taken
            at += 1
        if at == first:
            return 0, b"", 0, touched
        # Now, so that the disk works while the rest is done here.
        (<JournalWriter>self.writers[self.journal]).flusher.wake()
        answers = PyBytes_FromStringAndSize(<const char*>self.answers, self.answers_bytes)
        return at - first, answers, entry_bytes, touched

    cdef int64_t take_one(self, const uint8_t* frame, int64_t size_bytes, dict cache, list touched,
                          bint version2) except -2:
        """Bytes of the entry that was taken; -1: it is not the plain case."""
        cdef Add add
        cdef int64_t ledger_id, entry_id, confirmed, last
        cdef Py_ssize_t journal = 0
        cdef bytes key
        cdef object ledger, entry, known
        memset(&add, 0, sizeof(Add))
        if not (parse_add_v2(frame, size_bytes, &add) if version2 else parse_add_v3(frame, size_bytes, &add)):
            return -1
        if add.entry_bytes < ADD_ENTRY_BYTES_MIN:
            return -1
        ledger_id, entry_id, confirmed = get_i64(add.entry), get_i64(add.entry + 8), get_i64(add.entry + 16)
        if add.request_ledger != ledger_id or add.request_entry != entry_id:
            return -1
        if len(self.writers) > 1:
            journal = ledger_id % <int64_t>len(self.writers)
            if journal < 0:
                journal += len(self.writers)
            if self.journal >= 0 and journal != self.journal:
                return -1
        ledger = self.ledgers.get(ledger_id)
        if ledger is None or not 0 <= entry_id <= self.entry_id_max or ledger.fenced:
            return -1
        known = self.last_ids.get(ledger_id)
        last = -1 if known is None else <int64_t>known
        if entry_id > last + self.step_max:
            return -1
        key = ledger.master_key
        if len(key) != ADD_KEY_BYTES or not same_key(<const uint8_t*>PyBytes_AS_STRING(key), add.key):
            return -1
        self.make_answer_room()
        self.journal = journal
        entry = PyBytes_FromStringAndSize(<const char*>add.entry, add.entry_bytes)
        entries = cache.get(ledger_id)
        if entries is None:
            entries = cache[ledger_id] = {}
        (<dict>entries)[entry_id] = entry
        if last < entry_id:
            self.last_ids[ledger_id] = entry_id
        if confirmed > <int64_t>ledger.last_add_confirmed:
            ledger.last_add_confirmed = confirmed
        if not touched or touched[len(touched) - 1] != ledger_id:
            touched.append(ledger_id)
        (<JournalWriter>self.writers[journal]).put_sized(add.entry, add.entry_bytes)
        if version2:
            self.answers_bytes += put_add_answer_v2(self.answers + self.answers_bytes, &add)
        else:
            self.answers_bytes += put_add_answer_v3(self.answers + self.answers_bytes, &add)
        return add.entry_bytes

    cdef int make_answer_room(self) except -1:
        cdef int64_t capacity = self.capacity
        cdef void* base
        if self.answers_bytes + ADD_ANSWER_BYTES_MAX <= capacity:
            return 0
        capacity = max(<int64_t>4096, 2 * capacity)
        base = realloc(self.answers, capacity)
        if base == NULL:
            raise MemoryError()
        self.answers = <uint8_t*>base
        self.capacity = capacity
        return 0
