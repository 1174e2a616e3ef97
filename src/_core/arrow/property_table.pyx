# PropertyTable: the properties of one record as well-formed UTF-8, found in one pass, without Python objects.
from _core.layout cimport Record
from _core.text cimport hash_name, is_utf8, replace_ill_formed
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset

cimport cython

cdef enum:
    PROPERTIES_MAX = 8192            # the most that 32,767 bytes can hold
    PROPERTIES_TEXT_BYTES = 98304    # 3 x 32,767, rounded up
    SEEN_SLOTS = 16384
    LINEAR_DEDUPE_MAX = 16


cdef struct Text:
    const uint8_t* text              # NULL: absent
    int32_t length

cdef struct Property:
    Text name
    Text value

cdef struct PropertyList:
    Text tags
    Text keys
    Text unique_key
    Property* items                  # only when all were wanted; names are unique
    int count
    bint wants_all
    uint64_t names                   # a bit for each name, by its length and ends: mostly all differ
    uint32_t* seen                   # hash table over names, for many properties: epoch and item number
    uint32_t seen_epoch

cdef extern from "log/properties.h" nogil:
    ctypedef void (*property_taker)(void* context, const uint8_t* item, int32_t split,
                                    int32_t length) noexcept nogil
    int each_property(const uint8_t* text, int32_t length, property_taker take, void* context)


cdef inline bint same_text(Text a, Text b) noexcept nogil:
    return b.text != NULL and a.length == b.length and memcmp(a.text, b.text, <size_t>a.length) == 0


cdef inline void list_property(void* context, const uint8_t* item, int32_t split,
                               int32_t length) noexcept nogil:
    cdef PropertyList* found = <PropertyList*>context
    cdef Text name, value
    name.text, name.length = item, split
    value.text, value.length = item + split + 1, length - split - 1
    if split == 4:
        if memcmp(item, b"TAGS", 4) == 0:
            found.tags = value
        elif memcmp(item, b"KEYS", 4) == 0:
            found.keys = value
    elif split == 8 and memcmp(item, b"UNIQ_KEY", 8) == 0:
        found.unique_key = value
    if found.wants_all:
        add_property(found, name, value)


cdef inline void add_property(PropertyList* found, Text name, Text value) noexcept nogil:
    """Append, or replace the value of the same name: the last one wins, as in a Java map."""
    cdef uint64_t mark = <uint64_t>1 << (
        (7 * name.length + 3 * name.text[0] + name.text[name.length - 1]) & 63)
    if (found.names & mark or found.count >= LINEAR_DEDUPE_MAX) and replace_property(found, name, value):
        return
    found.names |= mark
    found.items[found.count] = Property(name, value)
    found.count += 1


cdef bint replace_property(PropertyList* found, Text name, Text value) noexcept nogil:
    """Replace the value of a name that is there; False when it is not, and will be the next item."""
    cdef int i
    cdef uint32_t slot
    if found.count < LINEAR_DEDUPE_MAX:
        for i in range(found.count):
            if same_text(name, found.items[i].name):
                found.items[i].value = value
                return True
        return False
    if found.count == LINEAR_DEDUPE_MAX:
        index_names(found)
    slot = <uint32_t>hash_name(name.text, name.length, 0) % SEEN_SLOTS
    while found.seen[slot] >> 14 == found.seen_epoch:
        i = <int>(found.seen[slot] & 0x3FFF)
        if same_text(name, found.items[i].name):
            found.items[i].value = value
            return True
        slot = (slot + 1) % SEEN_SLOTS
    found.seen[slot] = (found.seen_epoch << 14) | <uint32_t>found.count
    return False


cdef void index_names(PropertyList* found) noexcept nogil:
    """Start the hash table over names with those already there."""
    cdef Text name
    cdef uint32_t slot
    cdef int i
    found.seen_epoch += 1
    if found.seen_epoch == 1 << 18:
        memset(found.seen, 0, SEEN_SLOTS * sizeof(uint32_t))
        found.seen_epoch = 1
    for i in range(found.count):
        name = found.items[i].name
        slot = <uint32_t>hash_name(name.text, name.length, 0) % SEEN_SLOTS
        while found.seen[slot] >> 14 == found.seen_epoch:
            slot = (slot + 1) % SEEN_SLOTS
        found.seen[slot] = (found.seen_epoch << 14) | <uint32_t>i


@cython.final
@cython.no_gc
cdef class PropertyTable:
    """What `parse` found in the last record; the pointers hold until the next one."""

    cdef PropertyList found
    cdef int32_t text_bytes          # of the properties that were walked
    cdef uint8_t* well_formed        # the properties again, where they were ill-formed

    def __cinit__(self):
        self.found.items = <Property*>malloc(PROPERTIES_MAX * sizeof(Property))
        self.found.seen = <uint32_t*>calloc(SEEN_SLOTS, sizeof(uint32_t))
        self.well_formed = <uint8_t*>malloc(PROPERTIES_TEXT_BYTES)
        if self.found.items == NULL or self.found.seen == NULL or self.well_formed == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.found.items)
        free(self.found.seen)
        free(self.well_formed)

    cdef void parse(self, const Record* r, bint wants_all) noexcept nogil:
        """Find tags, keys and, when wanted, all properties, as well-formed UTF-8."""
        self.found.wants_all = wants_all
        if self.walk(r.properties, r.properties_bytes) and not is_utf8(r.properties, r.properties_bytes):
            self.walk(self.well_formed, <int32_t>replace_ill_formed(
                self.well_formed, r.properties, r.properties_bytes))

    cdef int walk(self, const uint8_t* text, int32_t length) noexcept nogil:
        self.found.tags.text = self.found.keys.text = self.found.unique_key.text = NULL
        self.found.count = 0
        self.found.names = 0
        self.text_bytes = length
        return each_property(text, length, list_property, &self.found)
