# The hash chains of an index file followed the way they were made: entry by entry, the newest of each slot in
# memory. One pass in the order of the file, where walking each chain would jump about in it. And the entries
# compared with the keys of the log.
from _core.layout cimport INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES, get_i32, get_i64
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

cdef enum:
    CHAIN_FAULTS_MAX = 64
    CHAIN_AHEAD = 16                 # entries whose slots are on their way into the cache

cdef enum ChainFaultKind:
    NEGATIVE_HASH = 0
    WRONG_PREVIOUS = 1
    WRONG_SLOT = 2

cdef tuple CHAIN_FAULT_KINDS = ("hash", "previous", "slot")

cdef struct ChainFault:
    ChainFaultKind kind
    int32_t place
    int32_t stated
    int32_t wanted


cdef int find_chain_faults(const uint8_t* raw, int32_t* newest, uint32_t slots, int32_t count,
                           ChainFault* faults, int limit) noexcept nogil:
    cdef const uint8_t* entry = raw + INDEX_HEADER_BYTES + <int64_t>slots * INDEX_SLOT_BYTES
    cdef uint32_t slot
    cdef int32_t hash, previous, number
    cdef int found = 0
    for number in range(1, count):
        if found == limit:
            return found
        entry += INDEX_ENTRY_BYTES
        if number + CHAIN_AHEAD < count:
            prefetch_write(newest + <uint32_t>get_i32(entry + CHAIN_AHEAD * INDEX_ENTRY_BYTES) % slots)
        hash = get_i32(entry)
        if hash < 0:
            faults[found] = ChainFault(NEGATIVE_HASH, number, hash, 0)
            found += 1
            continue
        slot = <uint32_t>hash % slots
        previous = get_i32(entry + 16)
        if previous != newest[slot]:
            faults[found] = ChainFault(WRONG_PREVIOUS, number, previous, newest[slot])
            found += 1
        newest[slot] = number
    for slot in range(slots):
        if found == limit:
            return found
        number = get_i32(raw + INDEX_HEADER_BYTES + <int64_t>slot * INDEX_SLOT_BYTES)
        if number != newest[slot]:
            faults[found] = ChainFault(WRONG_SLOT, <int32_t>slot, number, newest[slot])
            found += 1
    return found


def index_chain_faults(const uint8_t[::1] raw not None, int64_t slots, int64_t entry_count, int limit=10):
    """The first places where the hash chains of an index file are broken."""
    cdef ChainFault faults[CHAIN_FAULTS_MAX]
    cdef int64_t room = raw.shape[0] - INDEX_HEADER_BYTES - slots * INDEX_SLOT_BYTES
    cdef int64_t count = max(min(entry_count, room // INDEX_ENTRY_BYTES), <int64_t>0)
    cdef int32_t* newest
    cdef int found, i
    if not 0 < slots < INT32_MAX or room < 0 or count >= INT32_MAX:
        raise ValueError(f"{slots} slots and {entry_count} entries are not those of {raw.shape[0]} bytes")
    newest = <int32_t*>calloc(<size_t>slots, sizeof(int32_t))
    if newest == NULL:
        raise MemoryError()
    with nogil:
        found = find_chain_faults(&raw[0], newest, <uint32_t>slots, <int32_t>count, faults,
                                  min(max(limit, 0), CHAIN_FAULTS_MAX))
    free(newest)
    return [(CHAIN_FAULT_KINDS[<int>faults[i].kind], faults[i].place, faults[i].stated, faults[i].wanted)
            for i in range(found)]


cdef enum EntryMatch:
    ENTRY_OF_KEY = 0
    ENTRY_OF_TAGS = 1
    ENTRY_OF_OTHER_KEY = 2           # its record has keys, but not this one
    ENTRY_OF_NO_KEY = 3

cdef struct EntryFault:
    int64_t number
    int64_t physical_offset
    EntryMatch match


cdef int64_t first_key_from(KeyCollector keys, int64_t physical_offset) noexcept nogil:
    """Number of the first key of a record at or after a physical offset."""
    cdef int64_t low = 0, high = keys.count, middle
    while low < high:
        middle = (low + high) // 2
        if keys.entries[middle].physical_offset < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low


cdef EntryMatch match_entry(KeyCollector keys, int64_t* next_key, int64_t physical_offset,
                            int32_t hash) noexcept nogil:
    """Compare an entry with the keys of its record; entries are mostly in the order of the keys."""
    cdef EntryMatch found = ENTRY_OF_NO_KEY
    cdef CollectedKey* key
    cdef int64_t i = next_key[0]
    if i < keys.count and keys.entries[i].of_tags and keys.entries[i].physical_offset < physical_offset:
        i += 1                       # indexed by RocketMQ 5.4 and later only
    if i >= keys.count or keys.entries[i].physical_offset != physical_offset or keys.entries[i].hash != hash:
        i = first_key_from(keys, physical_offset)
    while i < keys.count:
        key = &keys.entries[i]
        if key.physical_offset != physical_offset:
            break
        i += 1
        if key.hash == hash:
            next_key[0] = i
            return ENTRY_OF_TAGS if key.of_tags else ENTRY_OF_KEY
        found = ENTRY_OF_OTHER_KEY
    return found


def check_index_entries(const uint8_t[::1] raw not None, int64_t slots, int64_t entry_count, int64_t first,
                        KeyCollector keys not None, *, int64_t min_offset, int64_t end_offset, limit=10):
    """Compare entries of an index file, from number `first` on, with the keys of records."""
    cdef EntryFault faults[CHAIN_FAULTS_MAX]
    cdef int64_t start = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES
    cdef int64_t count = min(entry_count, (raw.shape[0] - start) // INDEX_ENTRY_BYTES)
    cdef int64_t physical_offset, number, next_key = 0, of_keys = 0
    cdef int shown_max = min(max(limit, 0), CHAIN_FAULTS_MAX), shown = 0, i
    cdef const uint8_t* entry
    cdef EntryMatch match
    if first < 1 or slots < 0:
        raise ValueError(f"no entry has number {first}, no file {slots} slots")
    number = first
    with nogil:
        while number < count:
            entry = &raw[start + number * INDEX_ENTRY_BYTES]
            physical_offset = get_i64(entry + 4)
            if physical_offset >= end_offset:
                break
            match = match_entry(keys, &next_key, physical_offset, get_i32(entry))
            of_keys += match != ENTRY_OF_TAGS
            if match > ENTRY_OF_TAGS and physical_offset >= min_offset and shown < shown_max:
                faults[shown] = EntryFault(number, physical_offset, match)
                shown += 1
            number += 1
    return number, of_keys, [(faults[i].number, faults[i].physical_offset,
                              faults[i].match == ENTRY_OF_OTHER_KEY) for i in range(shown)]
