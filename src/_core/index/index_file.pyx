# IndexFile: from message keys to places in the log. A header, hash slots, and entries chained from newest to
# oldest; only hashes are kept, so an answer may hold other keys' messages. See docs/formats/index_file.md.
from _core.layout cimport (INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES, Record, get_i32,
                           get_i32_first, get_i64, java_hash, put_i32, put_i32_last, put_i64)
from _core.status cimport STATUS_END_OF_FILE, STATUS_IO_ERROR
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

import os

from pyledger import errors

cdef enum:
    AT_BEGIN_TIMESTAMP = 0
    AT_END_TIMESTAMP = 8
    AT_BEGIN_PHYSICAL = 16
    AT_END_PHYSICAL = 24
    AT_SLOTS_USED = 32
    AT_INDEX_COUNT = 36
    INDEX_CHUNK_BYTES = 1048576

# The write end of an index file as plain C; the header is kept here and copied to the file at each put.
cdef struct IndexCursor:
    uint8_t* base                    # NULL: no file yet, or the last one is full
    uint8_t* entries                 # entry 0, which is never used
    const char* path
    int64_t begin_timestamp
    int64_t end_timestamp
    int64_t begin_physical
    int64_t end_physical
    int64_t reserved                 # bytes of the file with allocated blocks
    int64_t file_size
    int32_t slots_used
    int32_t count                    # number of the next entry; the first is 1
    int32_t entry_max
    uint32_t slots
    int32_t error                    # errno of a failed allocation


cdef extern from "log/properties.h" nogil:
    int64_t hash_ascii(uint32_t* hash, const uint8_t* text, int64_t length)


cdef inline int32_t text_hash(int32_t seed, const uint8_t* text, int64_t length) noexcept nogil:
    """Continue Java's String.hashCode; `java_hash`, faster on ASCII."""
    cdef uint32_t h = <uint32_t>seed
    cdef int64_t done = hash_ascii(&h, text, length)
    return <int32_t>h if done == length else java_hash(<int32_t>h, text + done, length - done)


cdef inline int32_t key_hash(int32_t topic_hash, const uint8_t* key, int64_t key_bytes) noexcept nogil:
    """Hash of `topic#key` as the index keeps it, from the hash of `topic#`."""
    cdef int32_t h = text_hash(topic_hash, key, key_bytes)
    # The absolute value of the least integer is still negative in Java, which then takes 0.
    return h if h >= 0 else (-h if h != -INT32_MAX - 1 else 0)


cdef inline uint8_t* slot_of(const IndexCursor* c, int32_t hash) noexcept nogil:
    return c.base + INDEX_HEADER_BYTES + <int64_t>(<uint32_t>hash % c.slots) * INDEX_SLOT_BYTES


cdef int reserve_entries(IndexCursor* c, int64_t end) noexcept nogil:
    cdef int64_t begin = c.reserved
    end = (end + INDEX_CHUNK_BYTES - 1) // INDEX_CHUNK_BYTES * INDEX_CHUNK_BYTES
    if end > c.file_size:
        end = c.file_size
    c.error = allocate_by_path(c.path, begin, end)
    if c.error != 0:
        return STATUS_IO_ERROR
    populate_range(c.base, page_floor(begin), end)
    c.reserved = end
    return 0


cdef inline int put_key(IndexCursor* c, int32_t hash, int64_t physical_offset, int64_t timestamp,
                        uint8_t* slot) noexcept nogil:
    """Add one entry at the head of its chain. 0, or what must be done before putting again."""
    cdef uint8_t* entry
    cdef int32_t previous
    cdef int64_t seconds = 0
    cdef int status
    if c.base == NULL or c.count >= c.entry_max:
        return STATUS_END_OF_FILE
    entry = c.entries + <int64_t>c.count * INDEX_ENTRY_BYTES
    if entry + INDEX_ENTRY_BYTES > c.base + c.reserved:
        status = reserve_entries(c, entry + INDEX_ENTRY_BYTES - c.base)
        if status < 0:
            return status
    ASSERT(entry + INDEX_ENTRY_BYTES <= c.base + c.reserved)
    ASSERT(c.base + INDEX_HEADER_BYTES <= slot and slot + INDEX_SLOT_BYTES <= c.entries)
    previous = get_i32(slot)
    if previous <= 0 or previous > c.count:
        previous = 0
    # For the first entry of a later file this is the distance from the previous file's end, as upstream has
    # it.
    if c.begin_timestamp > 0:
        seconds = (timestamp - c.begin_timestamp) // 1000
        if seconds > INT32_MAX:
            seconds = INT32_MAX
        elif seconds < 0:
            seconds = 0
    put_i32(entry, hash)
    put_i64(entry + 4, physical_offset)
    put_i32(entry + 12, <int32_t>seconds)
    put_i32(entry + 16, previous)
    if c.count <= 1:
        c.begin_physical = physical_offset
        c.begin_timestamp = timestamp
        put_i64(c.base + AT_BEGIN_TIMESTAMP, timestamp)
        put_i64(c.base + AT_BEGIN_PHYSICAL, physical_offset)
    if previous == 0:
        c.slots_used += 1
        put_i32(c.base + AT_SLOTS_USED, c.slots_used)
    c.end_physical = physical_offset
    c.end_timestamp = timestamp
    put_i64(c.base + AT_END_PHYSICAL, physical_offset)
    put_i64(c.base + AT_END_TIMESTAMP, timestamp)
    # A reader that meets the number in the slot must find the entry and a count that admits it.
    put_i32_last(c.base + AT_INDEX_COUNT, c.count + 1)
    put_i32_last(slot, c.count)
    c.count += 1
    return 0


cdef int chain_step(const uint8_t* base, int64_t entries_at, int64_t readable, int32_t number,
                    int32_t* hash, int64_t* physical, int32_t* seconds, int32_t* previous) noexcept nogil:
    """Read entry `number`; 0 when it does not lie in the file."""
    cdef const uint8_t* entry
    cdef int64_t at = entries_at + <int64_t>number * INDEX_ENTRY_BYTES
    if number <= 0 or at + INDEX_ENTRY_BYTES > readable:
        return 0
    entry = base + at
    hash[0] = get_i32(entry)
    physical[0] = get_i64(entry + 4)
    seconds[0] = get_i32(entry + 12)
    previous[0] = get_i32(entry + 16)
    return 1


def index_key_hash(str topic not None, str key not None):
    """Hash under which the index keeps a key of a topic: 0 to 2**31 - 1."""
    cdef bytes text = f"{topic}#{key}".encode("utf-8", "surrogatepass")
    return key_hash(0, text, len(text))


cdef class IndexFile:
    """One index file."""

    cdef readonly str path
    cdef readonly bint readonly
    cdef readonly int64_t slot_count
    cdef readonly int64_t entry_capacity
    cdef MappedFile file
    cdef IndexCursor cursor
    cdef bytes path_bytes

    def __init__(self, str path, int64_t slots=0, int64_t entries=0, *, bint readonly=False, previous=(0, 0)):
        self.path = path
        self.readonly = readonly
        if readonly or os.path.exists(path):
            self._open(slots, entries)
        else:
            self._create(slots, entries, previous)

    cdef int _create(self, int64_t slots, int64_t entries, previous) except -1:
        cdef int64_t size = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES + entries * INDEX_ENTRY_BYTES
        if not (0 < slots < INT32_MAX and 1 < entries < INT32_MAX):
            raise errors.ConfigError("index file", f"{slots} slots and {entries} entries cannot be",
                                     "at least 1 slot and 2 entries")
        temporary = self.path + ".new"
        if os.path.exists(temporary):
            os.unlink(temporary)
        self.file = MappedFile.create(temporary, size, allocate_chunk_bytes=INDEX_CHUNK_BYTES)
        try:
            self._enter(slots, entries)
            self.file.reserve(min(size, INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES + INDEX_CHUNK_BYTES))
            self.cursor.reserved = self.file.allocated
            with nogil:
                populate_ahead(self.cursor.base, 0, self.cursor.reserved, NULL, NULL, True)
            end_timestamp, end_physical = previous
            self._preset(max(end_timestamp, 0), max(end_physical, 0))
            os.rename(temporary, self.path)
            self.file._name(self.path)
        except BaseException:
            os.unlink(temporary)
            raise
        return 0

    cdef int _preset(self, int64_t timestamp, int64_t physical_offset) except -1:
        cdef IndexCursor* c = &self.cursor
        c.begin_timestamp = timestamp
        c.end_timestamp = timestamp
        c.begin_physical = physical_offset
        c.end_physical = physical_offset
        c.count = 1
        put_i64(c.base + AT_BEGIN_TIMESTAMP, timestamp)
        put_i64(c.base + AT_END_TIMESTAMP, timestamp)
        put_i64(c.base + AT_BEGIN_PHYSICAL, physical_offset)
        put_i64(c.base + AT_END_PHYSICAL, physical_offset)
        put_i32(c.base + AT_INDEX_COUNT, 1)
        return 0

    cdef int _open(self, int64_t slots, int64_t entries) except -1:
        cdef IndexCursor* c = &self.cursor
        cdef int64_t room, needed
        if self.readonly:
            self.file = MappedFile.open(self.path)
        else:
            self.file = MappedFile.open_writable(self.path, allocate_chunk_bytes=INDEX_CHUNK_BYTES)
        if self.file.mapped_bytes < INDEX_HEADER_BYTES + INDEX_SLOT_BYTES + INDEX_ENTRY_BYTES:
            raise errors.StoreFormatError(self.path, "too short for an index file",
                                          "remove it and `pyledger rebuild` the store")
        if slots <= 0:
            slots = find_slot_count(self.file)
        room = self.file.mapped_bytes - INDEX_HEADER_BYTES - slots * INDEX_SLOT_BYTES
        if entries <= 0:
            entries = room // INDEX_ENTRY_BYTES
        # A truncated file can still be read.
        needed = 0 if self.readonly else entries * INDEX_ENTRY_BYTES
        if not 0 < slots < INT32_MAX or not 1 < entries < INT32_MAX or room < needed:
            raise errors.StoreFormatError(
                self.path, f"not an index file of {slots} slots and {entries} entries",
                "set the counts that the store was made with, or remove the file")
        self._enter(slots, entries)
        c.begin_timestamp = get_i64(c.base + AT_BEGIN_TIMESTAMP)
        c.end_timestamp = get_i64(c.base + AT_END_TIMESTAMP)
        c.begin_physical = get_i64(c.base + AT_BEGIN_PHYSICAL)
        c.end_physical = get_i64(c.base + AT_END_PHYSICAL)
        c.slots_used = get_i32(c.base + AT_SLOTS_USED)
        c.count = min(max(get_i32(c.base + AT_INDEX_COUNT), 1), <int32_t>entries)
        self.file.check_intact()
        if not self.readonly:
            self._reserve_used()
        return 0

    cdef int _reserve_used(self) except -1:
        # Blocks may be missing anywhere in a file that was made sparse.
        cdef IndexCursor* c = &self.cursor
        self.file.reserve(min(c.file_size, c.entries - c.base + <int64_t>c.count * INDEX_ENTRY_BYTES
                              + INDEX_CHUNK_BYTES))
        c.reserved = self.file.allocated
        return 0

    cdef int _enter(self, int64_t slots, int64_t entries) except -1:
        self.slot_count = slots
        self.entry_capacity = entries
        self.path_bytes = self.path.encode("utf-8", "surrogateescape")
        self.cursor.path = self.path_bytes
        self.cursor.base = self.file.base
        self.cursor.slots = <uint32_t>slots
        self.cursor.entry_max = <int32_t>entries
        self.cursor.entries = self.file.base + INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
        self.cursor.file_size = self.file.mapped_bytes
        return 0

    @property
    def begin_timestamp(self):
        return get_i64(self._header() + AT_BEGIN_TIMESTAMP)

    @property
    def end_timestamp(self):
        return get_i64(self._header() + AT_END_TIMESTAMP)

    @property
    def begin_physical_offset(self):
        return get_i64(self._header() + AT_BEGIN_PHYSICAL)

    @property
    def end_physical_offset(self):
        return get_i64(self._header() + AT_END_PHYSICAL)

    @property
    def slots_used(self):
        return get_i32(self._header() + AT_SLOTS_USED)

    @property
    def entry_count(self):
        """Number of the next entry; the first is 1."""
        return min(max(get_i32(self._header() + AT_INDEX_COUNT), 1), self.entry_capacity)

    @property
    def full(self):
        return self.entry_count >= self.entry_capacity

    cdef const uint8_t* _header(self) except NULL:
        if self.cursor.base == NULL:
            raise errors.StoreClosedError(self.path)
        return self.cursor.base

    def put(self, str topic, str key, int64_t physical_offset, int64_t store_timestamp_ms):
        """Add a key of a message. False when the file is full."""
        cdef int32_t hash
        cdef int status
        self._header()
        if self.readonly:
            raise errors.ReadOnlyStoreError(self.path)
        hash = index_key_hash(topic, key)
        status = put_key(&self.cursor, hash, physical_offset, store_timestamp_ms, slot_of(&self.cursor, hash))
        if status == STATUS_IO_ERROR:
            raise_errno(self.cursor.error, self.path, "allocate space for")
        return status == 0

    def entry(self, int32_t number):
        """(key hash, physical offset, seconds since the file's begin, the chain's previous entry)."""
        cdef int32_t hash = 0
        cdef int32_t seconds = 0
        cdef int32_t previous = 0
        cdef int64_t physical = 0
        if number >= self.entry_count or not chain_step(
                self._header(), self.cursor.entries - self.cursor.base, self.cursor.file_size, number, &hash,
                &physical, &seconds, &previous):
            raise errors.OffsetOutOfRangeError(number, 1, self.entry_count)
        self.file.check_intact()
        return hash, physical, seconds, previous

    cdef int select(self, int32_t wanted, int64_t begin_ms, int64_t end_ms, int64_t* found, int found_count,
                    int limit) noexcept:
        """Walk one chain, newest first; returns the new number of finds. Safe beside a running writer."""
        cdef const uint8_t* base = self.cursor.base
        cdef int64_t entries_at = self.cursor.entries - base
        cdef int64_t begin = get_i64(base + AT_BEGIN_TIMESTAMP)
        cdef int64_t physical = 0
        cdef int64_t time
        cdef int32_t hash = 0
        cdef int32_t seconds = 0
        cdef int32_t previous = 0
        cdef int32_t count
        cdef int32_t number = get_i32_first(
            base + INDEX_HEADER_BYTES + <int64_t>(<uint32_t>wanted % self.cursor.slots) * INDEX_SLOT_BYTES)
        count = get_i32(base + AT_INDEX_COUNT)
        if number <= 0 or number > count or count <= 1:
            return found_count
        while found_count < limit and chain_step(base, entries_at, self.cursor.file_size, number, &hash,
                                                 &physical, &seconds, &previous):
            if seconds < 0:
                break
            time = begin + <int64_t>seconds * 1000
            if hash == wanted and begin_ms <= time <= end_ms:
                found[found_count] = physical
                found_count += 1
            # Chains run from newer to older entries: anything else is damage, and might be a circle.
            if previous <= 0 or previous >= number or time < begin_ms:
                break
            number = previous
        return found_count

    cdef int cut(self, int64_t physical_offset, LogView view) except -1:
        """Take back entries of records at or above `physical_offset`, newest first: the reverse of a put."""
        cdef IndexCursor* c = &self.cursor
        cdef uint8_t* entry
        cdef uint8_t* slot
        cdef int32_t previous
        while c.count > 1:
            entry = c.entries + <int64_t>(c.count - 1) * INDEX_ENTRY_BYTES
            if get_i64(entry + 4) < physical_offset:
                break
            slot = slot_of(c, get_i32(entry))
            previous = get_i32(entry + 16)
            put_i32(slot, previous)
            if previous <= 0:
                c.slots_used -= 1
            c.count -= 1
            memset(entry, 0, INDEX_ENTRY_BYTES)
        if c.count > 1:
            entry = c.entries + <int64_t>(c.count - 1) * INDEX_ENTRY_BYTES
            c.end_physical = get_i64(entry + 4)
            c.end_timestamp = self._time_of(entry, view)
            put_i64(c.base + AT_END_PHYSICAL, c.end_physical)
            put_i64(c.base + AT_END_TIMESTAMP, c.end_timestamp)
        put_i32(c.base + AT_SLOTS_USED, c.slots_used)
        put_i32(c.base + AT_INDEX_COUNT, c.count)
        return 0

    cdef int64_t _time_of(self, const uint8_t* entry, LogView view) except -1:
        cdef Record record
        if view is not None and view.parse(get_i64(entry + 4), &record) == 1:
            return record.store_timestamp
        # Whole seconds are kept: the latest time that agrees, so that no query misses the record.
        return self.cursor.begin_timestamp + <int64_t>get_i32(entry + 12) * 1000 + 999

    def flush(self):
        """Make everything put so far durable."""
        if self.readonly or self.cursor.base == NULL:
            return
        # The whole mapping is handed to msync; it writes dirty pages only.
        self.file.set_positions(self.file.mapped_bytes)
        self.file.flushed = 0
        self.file.flush()

    def close(self):
        self.cursor.base = NULL
        if self.file is not None:
            self.file.close()


cdef int64_t find_slot_count(MappedFile file) except -1:
    """Slots of an index file, which it does not state: the upstream ratio, or what its entries agree with."""
    cdef int64_t room = file.mapped_bytes - INDEX_HEADER_BYTES
    cdef int64_t slots_max = min((room - 2 * INDEX_ENTRY_BYTES) // INDEX_SLOT_BYTES, <int64_t>INT32_MAX - 1)
    cdef int64_t slots = room // 84
    cdef int32_t count = get_i32(file.base + AT_INDEX_COUNT)
    if room % 84 == 0 and (count <= 1 or (slots <= slots_max and slots_agree(file, slots))):
        return slots
    slots = 1
    while count > 1 and slots <= slots_max:
        if (room - slots * INDEX_SLOT_BYTES) % INDEX_ENTRY_BYTES == 0 and slots_agree(file, slots):
            return slots
        slots += 1
        if slots & 0xFFFFF == 0:
            PyErr_CheckSignals()
    return max(room // 84, <int64_t>1)


cdef bint slots_agree(MappedFile file, int64_t slots) noexcept nogil:
    """Whether the first and the last entry agree with the header and their slots."""
    cdef int64_t entries_at = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
    cdef int32_t count = get_i32(file.base + AT_INDEX_COUNT)
    cdef int32_t hash = 0
    cdef int32_t seconds = 0
    cdef int32_t previous = 0
    cdef int64_t physical = 0
    if not chain_step(file.base, entries_at, file.mapped_bytes, count - 1, &hash, &physical, &seconds,
                      &previous):
        return False
    if hash < 0 or previous >= count - 1 or physical != get_i64(file.base + AT_END_PHYSICAL):
        return False
    if get_i32(file.base + INDEX_HEADER_BYTES + <int64_t>(<uint32_t>hash % <uint32_t>slots) * INDEX_SLOT_BYTES
               ) != count - 1:
        return False
    chain_step(file.base, entries_at, file.mapped_bytes, 1, &hash, &physical, &seconds, &previous)
    return hash >= 0 and previous == 0 and physical == get_i64(file.base + AT_BEGIN_PHYSICAL)
