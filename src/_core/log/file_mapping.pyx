# Create and map a new file with its blocks allocated and its pages populated; make files durable by path.
from _core.platform cimport (allocate_range, give_name, keep_freed, open_nameless, populate_pages,
                             size_new_file, start_write_back, sync_file_system_of, sync_names)
from _core.posix cimport (MADV_NORMAL, MADV_RANDOM, load_acquire, madvise, open_regular, page_ceiling,
                          pause_briefly, unlink)
from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, strlen
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, open as c_open
from posix.mman cimport (MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap)
from posix.unistd cimport close as c_close

from pyledger import errors

cdef enum:
    POPULATE_SLICE_BYTES = 256 << 10  # the kernel locks the address space meanwhile: keep each slice short
    LEAD_BYTES_MIN = 16 << 20         # a writer that is so near leaves no time for pauses
    PACED_FILE_BYTES = 256 << 20      # smaller ones are full too soon

cdef int64_t mapped_count = 0        # mappings that MappedFiles hold


def mapped_file_count():
    """Files that are mapped now; the kernel limits the mappings of a process (vm.max_map_count)."""
    return mapped_count


def keep_freed_memory(int kept_bytes, int mapped_bytes):
    """Let this process keep what it frees, up to a limit; see _core.pyi."""
    return keep_freed(kept_bytes, mapped_bytes) != 0


def sync_file_system(str path):
    """Make everything durable that any process wrote to the file system of a path."""
    cdef bytes encoded = path.encode("utf-8", "surrogateescape")
    cdef const char* c_path = encoded
    cdef int failed = 0
    cdef int fd
    with nogil:
        fd = c_open(c_path, O_RDONLY | O_CLOEXEC)
        if fd < 0:
            failed = errno
        else:
            failed = sync_file_system_of(fd)
            c_close(fd)
    if failed != 0:
        raise errors.StoreFailedError(path) from OSError(failed, "sync failed", path)


def start_writing_back(int fd, int64_t position, int64_t length):
    """Let the kernel begin to write a range of a file (bytes) to the disk; see _core.pyi."""
    with nogil:
        start_write_back(fd, position, length)


cdef inline bint any_set(const uint8_t* start, int64_t length) noexcept nogil:
    """Whether any byte is not zero: the first is not, or two neighbours differ."""
    return length > 0 and (start[0] != 0 or memcmp(start, start + 1, <size_t>(length - 1)) != 0)


cdef bint is_offset_name(str name):
    """Whether a file name is a start offset: 20 digits, below 10**18 so that no sum with a size overflows."""
    return len(name) == 20 and name.startswith("00") and name.isascii() and name.isdecimal()


cdef extern from "log/file_mapping.h" nogil:
    ctypedef struct file_mapping:
        uint8_t* base
    int64_t damaged_mappings
    file_mapping* map_file(int fd, int64_t length, int protection)
    void unmap_file(file_mapping* m, bint in_steps)
    bint leaves_heap_space(int64_t length)
    void touch_pages(const uint8_t* at, int64_t length)
    bint is_damaged(const file_mapping* m, int64_t begin, int64_t end)


cdef int raise_damaged(str path) except -1:
    """Raise for a mapping whose bytes are gone: reading them caused a SIGBUS."""
    raise errors.StoreIOError(path, "read", "it was truncated while it was mapped, or its disk cannot read "
                              "it; check the disk, and restore the file from a copy")


cdef struct Mapping:
    file_mapping* file
    uint8_t* base
    uint8_t* pool
    int64_t allocated                # bytes with allocated blocks
    int pool_fd                      # kept open for the pool only; else -1


cdef void populate_range(uint8_t* base, int64_t begin, int64_t end) noexcept nogil:
    """Fault pages in for writing. A kernel that cannot do so ahead does it on first touch instead."""
    cdef int64_t length
    while begin < end:
        length = min(end - begin, <int64_t>POPULATE_SLICE_BYTES)
        if populate_pages(base + begin, <size_t>length) != 0:
            return
        begin += length


cdef void populate_ahead(uint8_t* base, int64_t begin, int64_t end, const int64_t* wrote,
                         const int64_t* wanted, bint pauses) noexcept nogil:
    """The same of many pages that are all zero. What a fault reads ahead, megabytes of them, would be made
    in one go, at twice the cost of making page by page what is wanted.

    With `pauses` it does not keep a core from others: a kernel may let no other thread have it for tens of
    milliseconds while pages are made. There are none while the position `wrote` comes near, or the count
    `wanted` is not 0.
    """
    cdef int64_t length
    cdef uint8_t* first = base + begin
    cdef size_t whole = <size_t>max(<int64_t>0, end - begin)
    madvise(first, whole, MADV_RANDOM)
    while begin < end:
        length = min(end - begin, <int64_t>POPULATE_SLICE_BYTES)
        populate_range(base, begin, begin + length)
        begin += length
        if wrote != NULL and begin - load_acquire(wrote) < LEAD_BYTES_MIN:
            continue
        if wanted != NULL and load_acquire(wanted) != 0:
            continue
        if pauses:
            pause_briefly()
    madvise(first, whole, MADV_NORMAL)


cdef int allocate_by_path(const char* path, int64_t begin, int64_t end) noexcept nogil:
    """Allocate a range of a file that is not kept open: a store has too many for that. 0, or an errno."""
    cdef int fd = open_regular(path, O_RDWR)
    cdef int result
    if fd < 0:
        return errno
    result = allocate_range(fd, begin, end)
    c_close(fd)
    return result


cdef int open_nameless_beside(const char* path) noexcept nogil:
    """A new file in the folder of a path, without a name yet; below 0 where there are no such files."""
    cdef char folder[4096]
    cdef size_t length = strlen(path)
    while length > 0 and path[length - 1] != b"/":
        length -= 1
    if length + 2 > sizeof(folder):
        return -1
    memcpy(folder, path, length)
    memcpy(folder + length, b".", 2)
    return open_nameless(folder)


cdef int create_file(const char* path, int64_t size_bytes, int64_t allocated_bytes,
                     int* created) noexcept nogil:
    """Create a file of this size with its first blocks allocated. 0, or an errno, and then no file is left.

    It has its name only when it has its size: RocketMQ 4.9 loads no store with a file of another size, and
    who is killed in between must not leave one. Where the system has no nameless files, or no /proc, one may.
    """
    cdef int failed
    cdef int fd = open_nameless_beside(path)
    if fd >= 0:
        failed = size_new_file(fd, size_bytes, allocated_bytes)
        if failed == 0:
            failed = give_name(fd, path)
        c_close(fd)
        if failed == 0:
            # The kernel shows a mapping by the name that was opened.
            created[0] = open_regular(path, O_RDWR)
            if created[0] < 0:
                failed = errno
                unlink(path)
            return failed
        if failed != ENOENT:
            return failed
    fd = c_open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    if fd < 0:
        return errno
    failed = size_new_file(fd, size_bytes, allocated_bytes)
    if failed != 0:
        unlink(path)
        c_close(fd)
        return failed
    created[0] = fd
    return 0


cdef int make_mapped_file(const char* path, int64_t size_bytes, int64_t allocate_chunk_bytes, bint warm,
                          bint pooled, const int64_t* wanted, Mapping* made) noexcept nogil:
    """Create, allocate and map a new file; on failure no file is left. 0, or an errno.

    A file that is made ahead is made with pauses, unless the count `wanted` shows that an append waits.
    """
    cdef void* address
    cdef bint paced
    cdef int failed, fd = -1
    made.file = NULL
    made.base = NULL
    made.pool = NULL
    made.pool_fd = -1
    made.allocated = size_bytes
    if allocate_chunk_bytes > 0:
        made.allocated = min(page_ceiling(allocate_chunk_bytes), size_bytes)
    if not leaves_heap_space(2 * size_bytes if pooled else size_bytes):
        return ENOMEM
    failed = create_file(path, size_bytes, made.allocated, &fd)
    if failed != 0:
        return failed
    made.file = map_file(fd, size_bytes, PROT_READ | PROT_WRITE)
    if made.file == NULL:
        failed = errno
    else:
        made.base = made.file.base
    if failed == 0 and pooled:
        address = mmap(NULL, <size_t>size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if address == MAP_FAILED:
            failed = errno
        else:
            made.pool = <uint8_t*>address
            made.pool_fd = fd
    if failed == 0 and warm:
        address = made.base if made.pool == NULL else made.pool
        paced = wanted != NULL and size_bytes >= PACED_FILE_BYTES
        populate_ahead(<uint8_t*>address, 0, made.allocated, NULL, wanted, paced)
    if made.pool_fd < 0 or failed != 0:
        c_close(fd)
    if failed != 0:
        drop_mapping(made, size_bytes)
        unlink(path)
    return failed


cdef void drop_mapping(Mapping* made, int64_t size_bytes) noexcept nogil:
    if made.file != NULL:
        unmap_file(made.file, False)
        made.file = NULL
        made.base = NULL
    if made.pool != NULL:
        munmap(made.pool, <size_t>size_bytes)
        made.pool = NULL


cdef int sync_folder(const char* path) noexcept nogil:
    """Make the names in a folder durable. 0, or an errno."""
    cdef int failed
    cdef int fd = c_open(path, O_RDONLY | O_CLOEXEC)
    if fd < 0:
        return errno
    failed = sync_names(fd)
    c_close(fd)
    return failed
