# MappedFile owns one mapping of one file.
# Invariant: flushed <= committed <= wrote <= size, each published after the bytes it covers, by one writer;
# readers never pass `committed` (which equals `wrote` without a pool).
# No descriptor stays open: a store of thousands of queues must not run out of them.
from _core.layout cimport OS_PAGE_SIZE
from _core.platform cimport allocate_range, sync_data, sync_mapping, unmap_pages
from _core.posix cimport (fork_generation, load_acquire, open_regular, page_ceiling, page_floor,
                          store_release, watch_forks)
from _core.status cimport STATUS_CLOSED, STATUS_READ_ONLY
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.mman cimport PROT_READ, PROT_WRITE, munmap
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as c_close, pwrite

from pyledger import errors

watch_forks()

cdef enum:

    UNMAP_BYTES_MIN = 16 << 10       # one call for less costs more than it saves


cdef inline bint flush_is_due(int64_t wrote, int64_t flushed, int64_t size_bytes,
                              int64_t least_pages) noexcept nogil:
    """RocketMQ's isAbleToFlush and isAbleToCommit, for positions in one file: docs/protocols/flush.md."""
    if wrote <= flushed:
        return False
    if wrote == size_bytes or least_pages == 0:
        return True
    # The page borders between the two positions, not the dirty bytes divided by the page size.
    return wrote // OS_PAGE_SIZE - flushed // OS_PAGE_SIZE >= least_pages


cdef class MappedFile:
    """One fixed-size file mapped to memory; its name is its start offset in 20 digits."""

    cdef readonly str path
    cdef readonly int64_t start_offset
    cdef readonly int64_t size_bytes        # nominal; a truncated file maps less
    cdef readonly int64_t mapped_bytes
    cdef readonly bint readonly
    cdef file_mapping* mapping
    cdef uint8_t* base                      # of the mapping; readers use only this
    cdef cold_segment* cold                 # decompresses into `base`; NULL for an ordinary file
    cdef uint8_t* pool                      # transient pool: appends go here until commit; else NULL
    cdef int64_t wrote
    cdef int64_t committed
    cdef int64_t flushed
    cdef int64_t allocated                  # bytes with allocated blocks
    cdef int64_t allocate_chunk_bytes       # 0: everything at creation
    cdef bytes encoded_path
    cdef const char* c_path
    cdef int pool_fd
    cdef bint range_only                    # the requested buffer will be sliced to a range at once
    cdef int exports                        # buffers alive: `close` raises
    cdef int pins                           # log views and system calls on the mapping: unmapping waits
    cdef int generation
    cdef int flush_errno                    # latched: a failed flush is never retried
    cdef readonly bint closed               # perhaps still mapped for those who view it

    def __cinit__(self):
        self.pool_fd = -1
        self.closed = True
        self.generation = fork_generation

    def __dealloc__(self):
        self._unmap()

    @property
    def wrote_position(self):
        return load_acquire(&self.wrote)

    @property
    def committed_position(self):
        return load_acquire(&self.committed)

    @property
    def allocated_position(self):
        return self.allocated

    @property
    def flushed_position(self):
        return load_acquire(&self.flushed)

    @staticmethod
    def open(str path, *, int64_t size_bytes=0):
        """Map an existing file read-only. `size_bytes` is the nominal size when the file may be truncated."""
        cdef MappedFile file = MappedFile.__new__(MappedFile)
        file.readonly = True
        if path.endswith(COLD_SUFFIX):
            open_cold(file, path)
            return file
        file._open_existing(path, O_RDONLY, PROT_READ, size_bytes)
        return file

    @staticmethod
    def open_writable(str path, *, int64_t allocate_chunk_bytes=0):
        """Map an existing file of full size for reading and writing; all positions at its end."""
        cdef MappedFile file = MappedFile.__new__(MappedFile)
        file.allocate_chunk_bytes = allocate_chunk_bytes
        # Blocks may be missing anywhere in a file that Java made sparse: none counts as allocated.
        file._open_existing(path, O_RDWR, PROT_READ | PROT_WRITE, 0)
        return file

    @staticmethod
    def open_unmapped(str path, int64_t size_bytes, *, int64_t allocate_chunk_bytes=0, bint readonly=False):
        """As `open_writable` or `open`, for a file of this size; it is mapped at its first use."""
        cdef MappedFile file = MappedFile.__new__(MappedFile)
        file._name(path)
        file.readonly = readonly
        file.allocate_chunk_bytes = allocate_chunk_bytes
        file.size_bytes = file.mapped_bytes = size_bytes
        file.closed = False
        file.set_positions(size_bytes)
        return file

    @staticmethod
    def create(str path, int64_t size_bytes, *, int64_t allocate_chunk_bytes=0, bint warm=False,
               bint pooled=False):
        """Create, allocate and map a new file."""
        cdef MappedFile file = MappedFile.__new__(MappedFile)
        cdef Mapping made
        cdef const char* c_path
        cdef int failed
        file._name(path)
        c_path = file.c_path
        with nogil:
            failed = make_mapped_file(c_path, size_bytes, allocate_chunk_bytes, warm, pooled, NULL, &made)
        if failed != 0:
            raise_errno(failed, path, "create")
        file._adopt(&made, size_bytes, allocate_chunk_bytes)
        return file

    cdef int _name(self, str path) except -1:
        cdef str name = path.rpartition("/")[2].removesuffix(COLD_SUFFIX)
        self.path = path
        self.encoded_path = path.encode("utf-8", "surrogateescape")
        self.c_path = self.encoded_path
        self.start_offset = int(name) if is_offset_name(name) else 0
        return 0

    cdef void _adopt(self, const Mapping* made, int64_t size_bytes, int64_t allocate_chunk_bytes) noexcept:
        """Take over a mapping that `make_mapped_file` made."""
        global mapped_count
        mapped_count += 1
        self.mapping = made.file
        self.base = made.base
        self.pool = made.pool
        self.pool_fd = made.pool_fd
        self.allocated = made.allocated
        self.size_bytes = size_bytes
        self.mapped_bytes = size_bytes
        self.allocate_chunk_bytes = allocate_chunk_bytes
        self.closed = False

    cdef int _open_existing(self, str path, int flags, int protection, int64_t size_bytes) except -1:
        global mapped_count
        cdef struct_stat facts
        cdef int failed = 0
        cdef int fd
        self._name(path)
        fd = open_regular(self.c_path, flags)
        if fd < 0:
            raise_errno(errno, path, "open")
        if fstat(fd, &facts) != 0:
            failed = errno
        else:
            self.size_bytes = size_bytes or facts.st_size
            self.mapped_bytes = min(<int64_t>facts.st_size, self.size_bytes)
            if self.mapped_bytes > 0:
                self.mapping = map_file(fd, self.mapped_bytes, protection)
                if self.mapping == NULL:
                    failed = errno
        c_close(fd)
        if failed != 0:
            raise_errno(failed, path, "map")
        if self.mapping != NULL:
            self.base = self.mapping.base
            mapped_count += 1
        self.closed = False
        self.set_positions(self.mapped_bytes)
        return 0

    @property
    def is_cold(self):
        """Whether this is a cold segment, whose bytes are decompressed when they are read."""
        return self.cold != NULL

    cdef bint let_go(self) noexcept:
        """Unmap until `map_again`; not while somebody uses the mapping. What is dirty the kernel keeps."""
        if self.base == NULL or self.pool != NULL or self.cold != NULL or self.exports or self.pins:
            return False
        self._unmap_file()
        return True

    cdef int map_again(self) except -1:
        """Undo `let_go`."""
        global mapped_count
        cdef int failed, fd
        if self.base != NULL or self.closed or self.mapped_bytes == 0:
            return 0
        fd = open_regular(self.c_path, O_RDONLY if self.readonly else O_RDWR)
        if fd < 0:
            raise_errno(errno, self.path, "open")
        self.mapping = map_file(fd, self.mapped_bytes, PROT_READ if self.readonly else PROT_READ | PROT_WRITE)
        failed = errno if self.mapping == NULL else 0
        c_close(fd)
        if failed:
            raise_errno(failed, self.path, "map")
        self.base = self.mapping.base
        mapped_count += 1
        return 0

    cdef void _unmap_file(self) noexcept:
        global mapped_count
        if self.cold != NULL:
            cold_close(self.cold)
            self.cold = NULL
            self.base = NULL
            mapped_count -= 1
        elif self.base != NULL:
            unmap_file(self.mapping, False)
            self.mapping = NULL
            self.base = NULL
            mapped_count -= 1

    cdef void set_positions(self, int64_t position) noexcept:
        self.flushed = position
        store_release(&self.wrote, position)
        store_release(&self.committed, position)

    cdef void _unmap(self) noexcept:
        # In a forked child the mapping is the child's own copy: letting go of it touches no file.
        self._unmap_file()
        self.release_pool()
        self.closed = True

    cdef void release_pool(self) noexcept:
        if self.pool != NULL:
            munmap(self.pool, <size_t>self.size_bytes)
            self.pool = NULL
        if self.pool_fd >= 0:
            c_close(self.pool_fd)
            self.pool_fd = -1

    cdef inline uint8_t* write_base(self) noexcept nogil:
        return self.base if self.pool == NULL else self.pool

    cdef inline void publish(self, int64_t position) noexcept nogil:
        """Show bytes below `position` to readers. They must be in place."""
        store_release(&self.wrote, position)
        if self.pool == NULL:
            store_release(&self.committed, position)

    cdef int allocate_to(self, int64_t position) noexcept nogil:
        """Allocate blocks up to `position`, in chunks. 0, or an errno. Needs no GIL.

        The thread that appends and the one that prepares the file may run this together: each uses the values
        that it read once, and allocating blocks again costs nothing.
        """
        cdef int64_t chunk = self.allocate_chunk_bytes or self.size_bytes
        cdef int64_t begin = load_acquire(&self.allocated)
        cdef int64_t end
        cdef int result
        cdef int fd
        if position <= begin:
            return 0
        end = min(page_ceiling((position + chunk - 1) // chunk * chunk), self.size_bytes)
        fd = open_regular(self.c_path, O_RDWR)
        if fd < 0:
            return errno
        result = allocate_range(fd, begin, end)
        c_close(fd)
        if result == 0 and end > load_acquire(&self.allocated):
            store_release(&self.allocated, end)
        return result

    def reserve(self, int64_t position):
        """Make sure that bytes up to `position` have allocated blocks."""
        cdef int result
        self.check_writable()
        with nogil:
            result = self.allocate_to(position)
        if result != 0:
            raise_errno(result, self.path, "allocate space for")

    def populate(self, int64_t end=-1):
        """Allocate blocks up to `end` (-1: all) and fault in the pages beyond the wrote position."""
        cdef int64_t begin = page_floor(max(self.allocated, load_acquire(&self.wrote)))
        self.reserve(self.size_bytes if end < 0 else min(end, self.size_bytes))
        self.pin()
        with nogil:
            populate_ahead(self.base, begin, self.allocated, &self.wrote, NULL, True)
        self.unpin()

    cdef int commit_to_file(self) noexcept nogil:
        """Move pooled bytes to the file. 0, or an errno. One caller at a time."""
        cdef int64_t wrote = load_acquire(&self.wrote)
        cdef int64_t done = self.committed
        cdef ssize_t put
        if self.pool == NULL:
            return 0
        while done < wrote:
            put = pwrite(self.pool_fd, self.pool + done, <size_t>(wrote - done), done)
            if put < 0:
                if errno == EINTR:
                    continue
                return errno
            done += put
            store_release(&self.committed, done)
        return 0

    cdef int flush_to_disk(self) noexcept nogil:
        """Make committed bytes durable. 0, or an errno, which stays latched. One caller at a time."""
        cdef int64_t end = load_acquire(&self.committed)
        cdef int64_t begin = page_floor(self.flushed)
        if self.flush_errno == 0 and is_damaged(self.mapping, begin, end):
            self.flush_errno = EIO
        if self.flush_errno != 0:
            return self.flush_errno
        if end <= self.flushed or self.base == NULL and self.closed:
            return 0
        if self.base == NULL:
            self.sync_whole()
        elif self.pool_fd >= 0:
            self.flush_errno = sync_data(self.pool_fd)
        else:
            self.unmap_full_pages(end)
            self.flush_errno = sync_mapping(self.base + begin, <size_t>(end - begin), self.c_path)
            if self.flush_errno == 0 and is_damaged(self.mapping, begin, end):
                self.flush_errno = EIO
        if self.flush_errno == 0:
            store_release(&self.flushed, end)
        return self.flush_errno

    cdef void unmap_full_pages(self, int64_t end) noexcept nogil:
        """Drop the page-table entries of the pages that a flush writes; the page cache keeps the bytes.

        Otherwise the kernel write-protects these pages one by one and interrupts all processors for each,
        which slows down appends. This takes one interrupt for all pages, and a reader maps such a page again.
        """
        cdef int64_t first = page_floor(self.flushed)
        cdef int64_t last = page_floor(end)
        if last - first >= UNMAP_BYTES_MIN:
            unmap_pages(self.base + first, <size_t>(last - first))

    def flush(self):
        """Make everything committed durable; return the flushed position (bytes)."""
        cdef int result
        self._check_usable()
        self.pin()
        with nogil:
            result = self.flush_to_disk()
        self.unpin()
        if result != 0:
            raise errors.StoreFailedError(self.path) from OSError(result, "flush failed", self.path)
        return self.flushed

    def view(self, int64_t position, int64_t length):
        """View bytes without copying; the file stays mapped until the view is released."""
        cdef int64_t end = load_acquire(&self.committed)
        if position < 0 or length < 0 or length > end - position:
            raise errors.OffsetOutOfRangeError(self.start_offset + position, self.start_offset,
                                               self.start_offset + end)
        return self.export_range(position, length)

    cdef object export_range(self, int64_t position, int64_t length):
        """A view of bytes that exist, as the caller has checked; decompresses only these if cold."""
        cdef object whole
        self.range_only = True
        try:
            whole = memoryview(self)
        finally:
            self.range_only = False
        load_cold(self, position, position + length)
        self.check_intact(position, position + length)
        return whole[position:position + length]

    def read(self, int64_t position, int64_t length):
        """Copy bytes below the committed position."""
        cdef int64_t end = load_acquire(&self.committed)
        self._check_usable()
        self.map_again()
        if position < 0 or length < 0 or length > end - position:
            raise errors.OffsetOutOfRangeError(self.start_offset + position, self.start_offset,
                                               self.start_offset + end)
        if self.cold != NULL:
            return bytes(self.export_range(position, length))
        copy = PyBytes_FromStringAndSize(<char*>self.base + position, length)
        self.check_intact(position, position + length)
        return copy

    cdef inline bint intact(self, int64_t begin=0, int64_t end=INT64_MAX) noexcept nogil:
        """Whether all that was read or written in a range of the file (bytes) were bytes of the file.

        Of a cold segment the answer is for all of it, as its blocks have other positions.
        """
        if self.cold != NULL:
            return not is_damaged(self.cold.mapping, 0, INT64_MAX)
        return not is_damaged(self.mapping, begin, end)

    cdef inline int check_intact(self, int64_t begin=0, int64_t end=INT64_MAX) except -1:
        """Raise when bytes that were read or written in a range are not the file's."""
        if not self.intact(begin, end):
            raise_damaged(self.path)
        return 0

    def close(self):
        """Unmap and close. Raises BufferError while a buffer is alive; a log view only delays unmapping."""
        if self.generation != fork_generation:
            return
        if self.exports:
            raise BufferError(f"{self.path}: {self.exports} views are still in use")
        self.retire()

    cdef void retire(self):
        """Close for new users; the mapping is removed with the last buffer or log view on it."""
        global mapped_count
        cdef file_mapping* mapping = self.mapping
        self.closed = True
        if self.exports or self.pins:
            return
        if self.cold != NULL:
            self._unmap()
            return
        self.mapping = NULL
        self.base = NULL
        self._unmap()
        if mapping != NULL:
            mapped_count -= 1
            with nogil:
                # Steps let a writer's threads in between; who only reads may close ten thousand files.
                unmap_file(mapping, not self.readonly)

    cdef void pin(self) noexcept:
        self.pins += 1

    cdef void unpin(self) noexcept:
        self.pins -= 1
        if self.closed:
            self.retire()

    cdef int sync_whole(self) noexcept nogil:
        """Make every byte of the file durable, of all writers. 0, or an errno, which stays latched."""
        cdef int fd
        if self.flush_errno == 0:
            fd = open_regular(self.c_path, O_RDONLY)
            if fd < 0:
                return errno
            self.flush_errno = sync_data(fd)
            c_close(fd)
        return self.flush_errno

    cdef int _check_usable(self) except -1:
        if self.closed or self.generation != fork_generation:
            raise_status(STATUS_CLOSED, self.path, "use")
        return 0

    cdef int check_writable(self) except -1:
        self._check_usable()
        if self.readonly:
            raise_status(STATUS_READ_ONLY, self.path, "write to")
        return 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        # A view of the log stays readable after its file is deleted.
        if not (self.range_only and self.base != NULL and self.generation == fork_generation):
            self._check_usable()
        self.map_again()
        PyBuffer_FillInfo(buffer, self, self.base, load_acquire(&self.committed), 1, flags)
        self.exports += 1
        if self.cold != NULL:
            COLD_ADD(&self.cold.holds, 1)
            if not self.range_only:
                load_cold(self, 0, self.mapped_bytes)

    def __releasebuffer__(self, Py_buffer* buffer):
        self.exports -= 1
        if self.cold != NULL:
            COLD_ADD(&self.cold.holds, -1)
        if self.closed:
            self.retire()
