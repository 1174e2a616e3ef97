# Opens a cold segment: a file of the commit log in LZ4 blocks. cold_segment.h decompresses the blocks and
# bounds the memory for them.
from _core.platform cimport keep_pages_small
from _core.posix cimport open_regular, page_ceiling
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp
from posix.fcntl cimport O_RDONLY
from posix.mman cimport (MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ,
                         PROT_WRITE, mmap)
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as c_close

from pyledger import errors

cdef extern from "cold/cold_segment.h" nogil:
    const char* COLD_MAGIC
    enum: COLD_ENTRY_BYTES
    enum: COLD_TRAILER_BYTES
    enum: COLD_BLOCK_BYTES_MAX
    ctypedef struct cold_block:
        uint8_t damaged
    ctypedef struct cold_segment:
        file_mapping* mapping
        const uint8_t* file_bytes
        int64_t file_size
        int64_t blocks_end
        const uint8_t* entries
        int64_t block_count
        uint8_t* base
        int64_t size_bytes
        int64_t region_bytes
        cold_block* table
        int64_t holds
    int64_t cold_decompressed_bytes
    int64_t cold_blocks_decompressed
    int64_t cold_budget_bytes
    uint32_t load_le32(const uint8_t* p)
    uint64_t load_le64(const uint8_t* p)
    uint32_t xxh32(const uint8_t* p, size_t n)
    int64_t cold_start(const cold_segment* s, int64_t block)
    int64_t cold_range(cold_segment* s, int64_t position, int64_t length)
    void cold_pin(cold_segment* s, int64_t position, int64_t end, int32_t by)
    void cold_enter()
    void cold_pause()
    void cold_leave()
    void cold_link(cold_segment* s)
    void cold_close(cold_segment* s)
    int64_t COLD_ADD(int64_t* where, int64_t value)
    int lz4_decode(const uint8_t* data, size_t size, uint8_t* out, size_t out_size)

cdef enum:
    FRAME_MAGIC = 0x184D2204
    SKIPPABLE_MAGIC = 0x184D2A50
    FRAME_FLAGS = 0x70               # version 1, independent blocks, a digest after each
    FRAME_HEAD_BYTES = 15
    FRAME_END_BYTES = 16             # end mark and digest of the frame, head of the skippable frame
    # Fields of the trailer.
    AT_SIZE = 8
    AT_START = 16
    AT_RECORDS = 24
    AT_ENTRIES = 32
    AT_BLOCKS = 40
    AT_TOPIC_IDS = 44
    AT_TOPICS = 48
    AT_TOPIC_BYTES = 52
    AT_INDEX_DIGEST = 56
    AT_TRAILER_DIGEST = 60

COLD_SUFFIX = ".lz4"
cdef str COLD_REMEDY = "replace it by an intact copy; `lz4 -d` recovers what is left of it"


cdef const char* segment_problem(const uint8_t* data, int64_t file_size) noexcept nogil:
    """Why a mapped file is not a cold segment; NULL when it is one."""
    cdef const uint8_t* trailer = data + file_size - COLD_TRAILER_BYTES
    cdef int64_t entries, index_bytes
    if file_size < FRAME_HEAD_BYTES + FRAME_END_BYTES + COLD_TRAILER_BYTES:
        return "is too short for a cold segment"
    if load_le32(data) != FRAME_MAGIC or (data[4] & 0xF0) != FRAME_FLAGS:
        return "does not start as the LZ4 frame of a cold segment"
    if memcmp(trailer, COLD_MAGIC, 8) != 0:
        return "has no index at its end: it was truncated, or another program compressed it"
    if xxh32(trailer, AT_TRAILER_DIGEST) != load_le32(trailer + AT_TRAILER_DIGEST):
        return "has a damaged trailer"
    entries = <int64_t>load_le64(trailer + AT_ENTRIES)
    index_bytes = (<int64_t>load_le32(trailer + AT_BLOCKS) * COLD_ENTRY_BYTES
                   + <int64_t>load_le32(trailer + AT_TOPIC_IDS) * 4 + load_le32(trailer + AT_TOPIC_BYTES))
    if (entries < FRAME_HEAD_BYTES + FRAME_END_BYTES or load_le32(trailer + AT_BLOCKS) == 0
            or index_bytes != file_size - COLD_TRAILER_BYTES - entries
            or not 0 < <int64_t>load_le64(trailer + AT_SIZE) < (<int64_t>1 << 31)
            or load_le64(trailer + AT_START) >= (<uint64_t>1 << 59)
            or load_le32(data + entries - 8) != SKIPPABLE_MAGIC):
        return "has a trailer that does not fit the file"
    return NULL


cdef cold_segment* map_segment(file_mapping* mapping, int64_t file_size) noexcept nogil:
    """A segment over a mapped file without a `segment_problem`; NULL when there is no memory."""
    cdef const uint8_t* data = mapping.base
    cdef const uint8_t* trailer = data + file_size - COLD_TRAILER_BYTES
    cdef cold_segment* s = <cold_segment*>calloc(1, sizeof(cold_segment))
    cdef void* region
    if s == NULL:
        return NULL
    s.mapping = mapping
    s.file_bytes = data
    s.file_size = file_size
    s.block_count = load_le32(trailer + AT_BLOCKS)
    s.size_bytes = <int64_t>load_le64(trailer + AT_SIZE)
    s.entries = data + load_le64(trailer + AT_ENTRIES)
    s.blocks_end = <int64_t>load_le64(trailer + AT_ENTRIES) - FRAME_END_BYTES
    s.region_bytes = page_ceiling(s.size_bytes) + s.block_count * <int64_t>sizeof(cold_block)
    region = MAP_FAILED
    if leaves_heap_space(s.region_bytes):
        region = mmap(NULL, <size_t>s.region_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if region == MAP_FAILED:
        free(s)
        return NULL
    keep_pages_small(region, <size_t>s.region_bytes)
    s.base = <uint8_t*>region
    s.table = <cold_block*>(s.base + page_ceiling(s.size_bytes))
    cold_link(s)
    return s


cdef cold_segment* open_segment(str path, const char* c_path) except NULL:
    """Map a cold segment. Only its first and its last page are read."""
    cdef struct_stat facts
    cdef file_mapping* mapping = NULL
    cdef const char* problem = "is empty"
    cdef cold_segment* s = NULL
    cdef int failed = 0
    cdef int fd = open_regular(c_path, O_RDONLY)
    if fd < 0:
        raise_errno(errno, path, "open")
    if fstat(fd, &facts) != 0:
        failed = errno
    elif facts.st_size > 0:
        mapping = map_file(fd, facts.st_size, PROT_READ)
        failed = errno if mapping == NULL else 0
    c_close(fd)
    if failed != 0:
        raise_errno(failed, path, "map")
    if mapping != NULL:
        problem = segment_problem(mapping.base, facts.st_size)
        if problem == NULL:
            s = map_segment(mapping, facts.st_size)
        if s == NULL:
            unmap_file(mapping, False)
    if problem != NULL:
        raise errors.StoreFormatError(path, problem.decode("ascii"), COLD_REMEDY)
    if s == NULL:
        raise_errno(ENOMEM, path, "map")
    return s


def decompressed_blocks():
    """(blocks decompressed since the start of the process, bytes of them that are in memory)."""
    return cold_blocks_decompressed, cold_decompressed_bytes


def limit_decompressed_bytes(int64_t limit_bytes):
    """Set about how many decompressed bytes of cold segments stay in memory; return the old limit."""
    global cold_budget_bytes
    cdef int64_t before = cold_budget_bytes
    cold_budget_bytes = max(<int64_t>0, limit_bytes)
    with nogil:
        cold_pause()
    return before


def decompress_block(const uint8_t[::1] compressed not None, int64_t size_bytes):
    """Decompress one LZ4 block of known size (bytes); None when it is not one."""
    cdef bytes plain
    if not 0 <= size_bytes <= COLD_BLOCK_BYTES_MAX:
        return None
    plain = PyBytes_FromStringAndSize(NULL, size_bytes)
    if compressed.shape[0] == 0 or lz4_decode(&compressed[0], <size_t>compressed.shape[0],
                                              <uint8_t*><char*>plain, <size_t>size_bytes) != 0:
        return None
    return plain


def frame_digest(const uint8_t[::1] data not None):
    """xxHash-32 with seed 0, the digest of LZ4 frames."""
    return xxh32(&data[0] if data.shape[0] else NULL, <size_t>data.shape[0])
