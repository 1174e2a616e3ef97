# PropertyTable: the properties of one record as well-formed UTF-8, found in one pass, without Python objects.
from _core.layout cimport Record, next_property
from _core.text cimport hash_name, is_utf8, replace_ill_formed
from libc.stdint cimport int32_t, uint8_t, uint32_t
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


cdef inline bint same_text(Text a, Text b) noexcept nogil:
    return b.text != NULL and a.length == b.length and memcmp(a.text, b.text, <size_t>a.length) == 0


@cython.final
@cython.no_gc
cdef class PropertyTable:
    """What `parse` found in the last record; the pointers hold until the next one."""

    cdef Text tags
    cdef Text keys
    cdef Text unique_key
    cdef Property* items             # only when all were wanted; names are unique
    cdef int count
    cdef uint8_t* well_formed        # the properties again, where they were ill-formed
    cdef uint32_t* seen              # hash table over names, for many properties: epoch and item number
    cdef uint32_t seen_epoch

    def __cinit__(self):
        self.items = <Property*>malloc(PROPERTIES_MAX * sizeof(Property))
        self.well_formed = <uint8_t*>malloc(PROPERTIES_TEXT_BYTES)
        self.seen = <uint32_t*>calloc(SEEN_SLOTS, sizeof(uint32_t))
        if self.items == NULL or self.well_formed == NULL or self.seen == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.items)
        free(self.well_formed)
        free(self.seen)

    cdef void parse(self, const Record* r, bint wants_all) noexcept nogil:
        """Find tags, keys and, when wanted, all properties, as well-formed UTF-8."""
        cdef const uint8_t* cursor = r.properties
        cdef const uint8_t* end = cursor + r.properties_bytes
        cdef Text name = Text(NULL, 0)
        cdef Text value = Text(NULL, 0)
        self.tags.text = self.keys.text = self.unique_key.text = NULL
        self.count = 0
        if not is_utf8(cursor, r.properties_bytes):
            end = self.well_formed + replace_ill_formed(self.well_formed, cursor, r.properties_bytes)
            cursor = self.well_formed
        while next_property(&cursor, end, &name.text, &name.length, &value.text, &value.length):
            if name.length == 4:
                if memcmp(name.text, b"TAGS", 4) == 0:
                    self.tags = value
                elif memcmp(name.text, b"KEYS", 4) == 0:
                    self.keys = value
            elif name.length == 8 and memcmp(name.text, b"UNIQ_KEY", 8) == 0:
                self.unique_key = value
            if wants_all:
                self.add(name, value)

    cdef void add(self, Text name, Text value) noexcept nogil:
        """Append, or replace the value of the same name: the last one wins, as in a Java map."""
        cdef int i
        cdef uint32_t slot, tagged
        if self.count < LINEAR_DEDUPE_MAX:
            for i in range(self.count):
                if same_text(name, self.items[i].name):
                    self.items[i].value = value
                    return
        else:
            if self.count == LINEAR_DEDUPE_MAX:
                self.index_names()
            slot = <uint32_t>hash_name(name.text, name.length, 0) % SEEN_SLOTS
            while self.seen[slot] >> 14 == self.seen_epoch:
                i = <int>(self.seen[slot] & 0x3FFF)
                if same_text(name, self.items[i].name):
                    self.items[i].value = value
                    return
                slot = (slot + 1) % SEEN_SLOTS
            tagged = (self.seen_epoch << 14) | <uint32_t>self.count
            self.seen[slot] = tagged
        self.items[self.count] = Property(name, value)
        self.count += 1

    cdef void index_names(self) noexcept nogil:
        """Start the hash table over names with those already there."""
        cdef Text name
        cdef uint32_t slot
        cdef int i
        self.seen_epoch += 1
        if self.seen_epoch == 1 << 18:
            memset(self.seen, 0, SEEN_SLOTS * sizeof(uint32_t))
            self.seen_epoch = 1
        for i in range(self.count):
            name = self.items[i].name
            slot = <uint32_t>hash_name(name.text, name.length, 0) % SEEN_SLOTS
            while self.seen[slot] >> 14 == self.seen_epoch:
                slot = (slot + 1) % SEEN_SLOTS
            self.seen[slot] = (self.seen_epoch << 14) | <uint32_t>i
