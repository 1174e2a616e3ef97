# RowFilter: which records become rows. Built once from Python values, applied without the interpreter lock.
from _core.layout cimport Record
from _core.text cimport hash_name
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp

cimport cython

from pyledger import errors


cdef struct WantedQueue:
    const uint8_t* topic             # NULL: a free slot; points into RowFilter.texts
    int32_t topic_bytes
    int32_t queue_id
    bint any_queue
    int64_t first                    # queue offsets, both wanted
    int64_t last


@cython.final
cdef class RowFilter:
    """Which records become rows. Everything left out lets all pass; ranges are half open."""

    cdef tuple texts                 # keeps every byte that the C side points to
    cdef WantedQueue* entries
    cdef uint64_t mask
    cdef bint has_queues
    cdef bint has_exact
    cdef bint has_any
    cdef Text* tags
    cdef int tag_count               # -1: all
    cdef Text key
    cdef bint needs_properties
    cdef bint include_unindexed
    cdef int64_t store_first         # times, both wanted
    cdef int64_t store_last
    cdef int64_t born_first
    cdef int64_t born_last

    def __init__(self, *, queues=None, store_range=(INT64_MIN, INT64_MAX), born_range=(INT64_MIN, INT64_MAX),
                 tags=None, key=None, bint include_unindexed=False):
        cdef bytes text
        cdef list texts = []
        cdef int i
        if self.texts is not None:
            raise errors.InvariantError("a RowFilter is made once")
        self.texts = ()
        self.tag_count = -1
        self.include_unindexed = include_unindexed
        self.store_first, self.store_last = store_range[0], last_below(store_range[1])
        self.born_first, self.born_last = born_range[0], last_below(born_range[1])
        if queues is not None:
            self._take_queues(list(queues), texts)
        if tags is not None:
            tags = sorted(set(tags))
            self.tags = <Text*>calloc(<size_t>len(tags) + 1, sizeof(Text))
            if self.tags == NULL:
                raise MemoryError()
            for i in range(<int>len(tags)):
                text = tags[i].encode("utf-8", "surrogatepass")
                texts.append(text)
                self.tags[i] = [<const uint8_t*><char*>text, <int32_t>len(text)]
            self.tag_count = <int>len(tags)
        if key is not None:
            text = key.encode("utf-8", "surrogatepass")
            texts.append(text)
            self.key = [<const uint8_t*><char*>text, <int32_t>len(text)]
        self.needs_properties = self.tag_count >= 0 or self.key.text != NULL
        self.texts = tuple(texts)

    def __dealloc__(self):
        free(self.entries)
        free(self.tags)

    cdef int _take_queues(self, list queues, list texts) except -1:
        cdef uint64_t size = 8
        cdef uint64_t at
        cdef bytes text
        cdef WantedQueue entry
        while size < 2 * <uint64_t>len(queues):
            size *= 2
        self.entries = <WantedQueue*>calloc(<size_t>size, sizeof(WantedQueue))
        if self.entries == NULL:
            raise MemoryError()
        self.mask = size - 1
        self.has_queues = True
        for topic, queue_id, start, end in queues:
            text = topic.encode("utf-8", "surrogatepass")
            texts.append(text)
            entry = [<const uint8_t*><char*>text, <int32_t>len(text), 0, queue_id is None, start,
                     last_below(end)]
            if queue_id is None:
                self.has_any = True
            else:
                self.has_exact = True
                entry.queue_id = queue_id
            at = hash_name(entry.topic, entry.topic_bytes, queue_seed(entry.queue_id, entry.any_queue))
            while self.entries[at & self.mask].topic != NULL:
                at += 1
            self.entries[at & self.mask] = entry
        return 0

    cdef const WantedQueue* find_queue(self, const Record* r, bint any_queue) noexcept nogil:
        cdef int32_t queue_id = 0 if any_queue else r.queue_id
        cdef uint64_t at = hash_name(r.topic, r.topic_bytes, queue_seed(queue_id, any_queue))
        cdef const WantedQueue* entry
        while True:
            entry = &self.entries[at & self.mask]
            if entry.topic == NULL:
                return NULL
            if (entry.topic_bytes == r.topic_bytes and entry.queue_id == queue_id
                    and entry.any_queue == any_queue
                    and memcmp(entry.topic, r.topic, <size_t>r.topic_bytes) == 0):
                return entry
            at += 1

    cdef bint wants(self, const Record* r) noexcept nogil:
        """Everything that the fixed fields decide."""
        cdef const WantedQueue* entry = NULL
        if not self.include_unindexed and not is_indexed(r):
            return False
        if not (self.store_first <= r.store_timestamp <= self.store_last
                and self.born_first <= r.born_timestamp <= self.born_last):
            return False
        if not self.has_queues:
            return True
        if self.has_exact:
            entry = self.find_queue(r, False)
        if entry == NULL and self.has_any:
            entry = self.find_queue(r, True)
        if entry == NULL or r.queue_offset > entry.last:
            return False
        # A batch that is kept as one record is one row, at the queue offset of its first message.
        return r.queue_offset >= entry.first

    cdef bint wants_properties(self, const PropertyList* found) noexcept nogil:
        """What the properties decide: tags by text, the key as the index would hold it."""
        cdef int i
        if self.tag_count >= 0:
            for i in range(self.tag_count):
                if same_text(self.tags[i], found.tags):
                    break
            else:
                return False
        if self.key.text != NULL and not same_text(self.key, found.unique_key):
            return has_word(found.keys, self.key)
        return True


cdef inline int64_t last_below(int64_t end) noexcept nogil:
    """The last wanted value of a half-open range; the highest number means that the range has no end."""
    return end if end == INT64_MAX or end == INT64_MIN else end - 1


cdef inline uint64_t queue_seed(int32_t queue_id, bint any_queue) noexcept nogil:
    return 0xA5A5A5A5A5 if any_queue else <uint64_t><int64_t>queue_id


cdef bint has_word(Text words, Text wanted) noexcept nogil:
    """Whether `wanted` is one of the words that single spaces separate."""
    cdef const uint8_t* at = words.text
    cdef const uint8_t* end = words.text + words.length
    cdef const uint8_t* stop
    cdef Text word
    while at != NULL and at <= end:
        stop = <const uint8_t*>memchr(at, 32, <size_t>(end - at)) if at < end else NULL
        if stop == NULL:
            stop = end
        word.text, word.length = at, <int32_t>(stop - at)
        if same_text(wanted, word):
            return True
        at = stop + 1
    return False
