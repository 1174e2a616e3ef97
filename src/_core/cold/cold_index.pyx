# Reads the index of a cold segment, and gathers what such an index is made of.
from _core.layout cimport CHECK_ALL, PARSED_RECORD, Record
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from libc.string cimport memcmp

from pyledger import errors


cdef struct ColdTopics:
    const uint8_t* ids               # of all blocks, one block after another
    int64_t id_count
    const uint8_t* names             # length in 2 bytes, then the name
    int64_t names_bytes
    int64_t count


cdef int open_cold(MappedFile file, str path) except -1:
    """Open a cold segment as a new MappedFile of the file it was made from."""
    global mapped_count
    file._name(path)
    file.cold = open_segment(path, file.c_path)
    file.base = file.cold.base
    file.size_bytes = file.mapped_bytes = file.allocated = file.cold.size_bytes
    mapped_count += 1
    file.closed = False
    file.set_positions(file.size_bytes)
    return 0


cdef int load_cold(MappedFile file, int64_t position, int64_t end) except -1:
    """Have bytes of a cold segment in place. They stay while a buffer is exported."""
    cdef int64_t loaded = 1
    end = min(end, file.size_bytes)
    if file.cold != NULL and position < end:
        with nogil:
            loaded = cold_range(file.cold, position, end - position)
    if loaded == 0:
        raise errors.StoreFormatError(file.path, "has a damaged index", COLD_REMEDY)
    return 0


cdef bint find_topics(const cold_segment* s, ColdTopics* t) noexcept nogil:
    """Find the topics of a segment; False when the digest of its index does not match."""
    cdef const uint8_t* trailer = s.file_bytes + s.file_size - COLD_TRAILER_BYTES
    if xxh32(s.entries, <size_t>(trailer - s.entries)) != load_le32(trailer + AT_INDEX_DIGEST):
        return False
    t.count = load_le32(trailer + AT_TOPICS)
    t.id_count = load_le32(trailer + AT_TOPIC_IDS)
    t.names_bytes = load_le32(trailer + AT_TOPIC_BYTES)
    t.ids = s.entries + s.block_count * COLD_ENTRY_BYTES
    t.names = t.ids + t.id_count * 4
    return True


cdef list topic_names(const ColdTopics* t):
    """Names of the topics, in UTF-8, by their number."""
    cdef list names = []
    cdef int64_t at = 0
    cdef int64_t length
    while at + 2 <= t.names_bytes:
        length = t.names[at] | t.names[at + 1] << 8
        if at + 2 + length > t.names_bytes:
            break
        names.append(PyBytes_FromStringAndSize(<const char*>t.names + at + 2, length))
        at += 2 + length
    return names


cdef class ColdIndex:
    """The index of a cold segment: what each block holds."""

    cdef MappedFile file
    cdef ColdTopics topics
    cdef list names

    def __init__(self, MappedFile file not None):
        file._check_usable()
        if file.cold == NULL:
            raise errors.InvariantError(f"{file.path} is no cold segment")
        file.pin()
        self.file = file
        if not find_topics(file.cold, &self.topics):
            raise errors.StoreFormatError(file.path, "has a damaged index", COLD_REMEDY)
        self.names = topic_names(&self.topics)

    def __dealloc__(self):
        if self.file is not None:
            self.file.unpin()

    @property
    def topic_names(self):
        """All topics of the segment, sorted."""
        return [name.decode("utf-8", "replace") for name in self.names]

    @property
    def record_count(self):
        """Records of the segment."""
        cdef const cold_segment* s = self.file.cold
        return load_le64(s.file_bytes + s.file_size - COLD_TRAILER_BYTES + AT_RECORDS)

    def __len__(self):
        return self.file.cold.block_count

    def block(self, int64_t number):
        """(physical offset, bytes, bytes in the file, records, least and greatest store time, topics)."""
        cdef const cold_segment* s = self.file.cold
        cdef const uint8_t* entry
        cdef int64_t i
        cdef int64_t position, stored_bytes
        if not 0 <= number < s.block_count:
            raise IndexError(number)
        entry = s.entries + number * COLD_ENTRY_BYTES
        position = <int64_t>load_le64(entry)
        if not 0 <= position <= s.blocks_end - 4:
            raise errors.StoreFormatError(self.file.path, "has a damaged index", COLD_REMEDY)
        stored_bytes = load_le32(s.file_bytes + position) & 0x7FFFFFFF
        topics = [self.names[self._topic(entry, i)] for i in range(self._topic_count(entry))]
        return (self.file.start_offset + cold_start(s, number),
                cold_start(s, number + 1) - cold_start(s, number), stored_bytes,
                load_le32(entry + 12), <int64_t>load_le64(entry + 16), <int64_t>load_le64(entry + 24),
                [name.decode("utf-8", "replace") for name in topics])

    cdef int64_t _topic_count(self, const uint8_t* entry) noexcept nogil:
        """Topics of a block, as far as the index has them."""
        return max(0, min(<int64_t>load_le32(entry + 36), self.topics.id_count - load_le32(entry + 32)))

    cdef int64_t _topic(self, const uint8_t* entry, int64_t i) noexcept nogil:
        cdef int64_t number = load_le32(self.topics.ids + 4 * (load_le32(entry + 32) + i))
        return min(number, self.topics.count - 1)

    def ranges(self, topics=None, since_ms=None, until_ms=None):
        """Physical offsets [start, end) of the blocks that may hold wanted records, neighbours joined."""
        cdef const cold_segment* s = self.file.cold
        cdef const uint8_t* entry
        cdef int64_t since = INT64_MIN if since_ms is None else <int64_t>since_ms
        cdef int64_t until = INT64_MAX if until_ms is None else <int64_t>until_ms
        cdef bint all_topics = topics is None
        cdef bytearray wanted = bytearray(len(self.names) + 1)
        cdef int64_t b, i, start
        cdef bint hit
        cdef list found = []
        cdef set encoded = set() if all_topics else {name.encode("utf-8") for name in topics}
        for i in range(<int64_t>len(self.names)):
            wanted[i] = self.names[i] in encoded
        for b in range(s.block_count):
            entry = s.entries + b * COLD_ENTRY_BYTES
            if (load_le32(entry + 12) == 0 or <int64_t>load_le64(entry + 24) < since
                    or <int64_t>load_le64(entry + 16) >= until):
                continue
            hit = all_topics
            for i in range(0 if hit else self._topic_count(entry)):
                if wanted[self._topic(entry, i)]:
                    hit = True
                    break
            if not hit:
                continue
            start = self.file.start_offset + cold_start(s, b)
            if found and found[len(found) - 1][1] == start:
                start = found.pop()[0]
            found.append((start, self.file.start_offset + cold_start(s, b + 1)))
        return found

    def damaged_blocks(self):
        """Numbers of the blocks whose bytes do not match their digest. Decompresses every block."""
        cdef cold_segment* s = self.file.cold
        cdef int64_t b
        cdef int64_t loaded
        found = []
        for b in range(s.block_count):
            with nogil:
                cold_enter()
                loaded = cold_range(s, cold_start(s, b), 1)
                cold_leave()
            if loaded == 0 or s.table[b].damaged:
                found.append(b)
        return found


cdef struct BlockFacts:
    int64_t count
    int64_t least                    # store times
    int64_t greatest


cdef void clear_facts(BlockFacts* facts) noexcept:
    facts.count = 0
    facts.least = INT64_MAX
    facts.greatest = INT64_MIN


def survey_blocks(LogView view not None, int64_t start, int64_t end, int64_t block_bytes):
    """Split a sealed file of the log into blocks of whole records, and describe each."""
    cdef Record record
    cdef ScanState s = [start, 0, 0, -1, 0, NULL]
    cdef BlockFacts facts
    cdef int64_t begin = start
    cdef int64_t sound_end = start
    cdef int status
    cdef bytes topic = b""
    cdef set topics = set()
    cdef list blocks = []
    clear_facts(&facts)
    while True:
        status = next_record(view, end, CHECK_ALL, &s, &record)
        if status != PARSED_RECORD:
            break
        if facts.count > 0 and s.offset - begin > block_bytes:
            blocks.append((begin, facts.count, facts.least, facts.greatest, topics))
            begin, topics = sound_end, set()
            clear_facts(&facts)
        facts.count += 1
        facts.least = min(facts.least, record.store_timestamp)
        facts.greatest = max(facts.greatest, record.store_timestamp)
        if len(topic) != record.topic_bytes or memcmp(<const char*>topic, record.topic,
                                                      record.topic_bytes) != 0:
            topic = PyBytes_FromStringAndSize(<const char*>record.topic, record.topic_bytes)
        topics.add(topic)
        sound_end = s.offset
        if sound_end - begin > block_bytes:
            # One record of several blocks: the next one starts a block again.
            blocks.append((begin, facts.count, facts.least, facts.greatest, topics))
            blocks += [(at, 0, 0, 0, set()) for at in range(begin + block_bytes, sound_end, block_bytes)]
            begin, topics = sound_end, set()
            clear_facts(&facts)
        if s.record_count % 65536 == 0:
            PyErr_CheckSignals()
    view.check_intact(start, end)
    if facts.count > 0:
        blocks.append((begin, facts.count, facts.least, facts.greatest, topics))
    blocks += [(at, 0, 0, 0, set()) for at in range(sound_end, end, block_bytes)]
    return blocks, scan_stop(&s, status)
