# MappedFile owns one mapping of one file.
# Invariant: flushed <= committed <= wrote <= size, each published after the bytes it covers, by one writer;
# readers never pass `committed` (which equals `wrote` without a pool).
from _core.posix cimport (FALLOC_FL_KEEP_SIZE, MADV_POPULATE_WRITE, MS_SYNC, fallocate, fdatasync,
                          load_acquire, madvise, msync, posix_fallocate, store_release)
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR, open as c_open
from posix.mman cimport (MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap,
                         munmap)
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as c_close, ftruncate, getpid, pwrite

from pyledger import errors


cdef class MappedFile:
    """One fixed-size file mapped to memory; its name is its start offset in 20 digits."""

    cdef readonly str path
    cdef readonly int64_t start_offset
    cdef readonly int64_t size_bytes        # nominal; a cut file maps less
    cdef readonly int64_t mapped_bytes
    cdef readonly bint readonly
    cdef uint8_t* base                      # the mapping; readers use only this
    cdef uint8_t* pool                      # transient pool: appends go here until commit; else NULL
    cdef int64_t wrote
    cdef int64_t committed
    cdef int64_t flushed
    cdef int64_t allocated                  # bytes that have blocks behind them
    cdef int64_t allocate_chunk_bytes       # 0: everything at creation
    cdef int fd
    cdef int exports
    cdef int pins                           # log views that point into the mapping
    cdef bint closing                       # closed while pinned: unmapped with the last view
    cdef int owner_pid
    cdef int flush_errno                    # latched: a failed flush is never retried

    def __cinit__(self):
        self.fd = -1
        self.owner_pid = getpid()

    def __dealloc__(self):
        if self.owner_pid == getpid():
            self._unmap()

    @property
    def wrote_position(self):
        return load_acquire(&self.wrote)

    @property
    def committed_position(self):
        return load_acquire(&self.committed)

    @property
    def flushed_position(self):
        return load_acquire(&self.flushed)

    @property
    def closed(self):
        return self.base == NULL or self.closing

    @staticmethod
    def open(str path, *, int64_t size_bytes=0):
        """Map an existing file read-only. `size_bytes` is the nominal size when the file may be cut short."""
        cdef MappedFile file = MappedFile.__new__(MappedFile)
        file._open(path, O_RDONLY, size_bytes)
        file.readonly = True
        file._map(PROT_READ)
        file._set_positions(file.mapped_bytes)
        return file

    @staticmethod
    def open_writable(str path, *, int64_t allocate_chunk_bytes=0):
        """Map an existing file of full size for reading and writing; all positions at its end."""
        cdef MappedFile file = MappedFile.__new__(MappedFile)
        file._open(path, O_RDWR, 0)
        file.allocate_chunk_bytes = allocate_chunk_bytes
        file._map(PROT_READ | PROT_WRITE)
        # Blocks may be missing anywhere in a file that Java made sparse: allocate before writing again.
        file.allocated = 0
        file._set_positions(file.mapped_bytes)
        return file

    @staticmethod
    def create(str path, int64_t size_bytes, *, int64_t allocate_chunk_bytes=0, bint warm=False,
               bint pooled=False):
        """Create, allocate and map a file. Blocks until the blocks are there; safe off the append path.

        `warm` populates the page tables for writing; `pooled` appends to memory until `commit`.
        """
        cdef MappedFile file = MappedFile.__new__(MappedFile)
        file._open(path, O_RDWR | O_CREAT, size_bytes)
        try:
            if ftruncate(file.fd, size_bytes) != 0:
                raise_errno(errno, path, "set the length of")
            file.mapped_bytes = size_bytes
            file.allocate_chunk_bytes = allocate_chunk_bytes
            if allocate_chunk_bytes == 0:
                file.reserve(size_bytes)
            file._map(PROT_READ | PROT_WRITE)
            if pooled:
                file._map_pool()
            elif warm:
                file.populate()
        except BaseException:
            file._unmap()
            raise
        return file

    cdef int _open(self, str path, int flags, int64_t size_bytes) except -1:
        cdef struct_stat facts
        cdef bytes encoded = path.encode("utf-8", "surrogateescape")
        self.path = path
        name = path.rpartition("/")[2]
        self.start_offset = int(name) if len(name) == 20 and name.isdecimal() else 0
        self.fd = c_open(encoded, flags, 0o644)
        if self.fd < 0:
            raise_errno(errno, path, "open")
        if fstat(self.fd, &facts) != 0:
            raise_errno(errno, path, "read the size of")
        self.mapped_bytes = facts.st_size
        self.size_bytes = size_bytes or facts.st_size
        if size_bytes and self.mapped_bytes > size_bytes:
            self.mapped_bytes = size_bytes
        return 0

    cdef int _map(self, int protection) except -1:
        cdef void* address
        if self.mapped_bytes == 0:
            return 0
        address = mmap(NULL, <size_t>self.mapped_bytes, protection, MAP_SHARED, self.fd, 0)
        if address == MAP_FAILED:
            raise_errno(errno, self.path, "map")
        self.base = <uint8_t*>address
        return 0

    cdef int _map_pool(self) except -1:
        cdef void* address = mmap(NULL, <size_t>self.size_bytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if address == MAP_FAILED:
            raise_errno(errno, self.path, "get a pool buffer for")
        self.pool = <uint8_t*>address
        return 0

    cdef void _set_positions(self, int64_t position) noexcept:
        self.flushed = position
        self.committed = position
        store_release(&self.wrote, position)

    cdef void _unmap(self) noexcept:
        if self.base != NULL:
            munmap(self.base, <size_t>self.mapped_bytes)
            self.base = NULL
        if self.pool != NULL:
            munmap(self.pool, <size_t>self.size_bytes)
            self.pool = NULL
        if self.fd >= 0:
            c_close(self.fd)
            self.fd = -1

    cdef inline uint8_t* write_base(self) noexcept nogil:
        return self.base if self.pool == NULL else self.pool

    cdef int allocate_to(self, int64_t position) noexcept nogil:
        """Put blocks behind bytes up to `position`, in chunks. 0, or an errno. Needs no GIL."""
        cdef int64_t chunk = self.allocate_chunk_bytes or self.size_bytes
        cdef int64_t end = ((position + chunk - 1) // chunk) * chunk
        cdef int result
        if position <= self.allocated:
            return 0
        if end > self.size_bytes:
            end = self.size_bytes
        result = posix_fallocate(self.fd, self.allocated, end - self.allocated)
        if result == 0:
            self.allocated = end
        return result

    def reserve(self, int64_t position):
        """Make sure that bytes up to `position` have blocks behind them.

        Raises:
            StoreFullError: the disk has no room. Nothing was written.
        """
        cdef int result
        with nogil:
            result = self.allocate_to(position)
        if result != 0:
            raise_errno(result, self.path, "allocate space for")

    def populate(self):
        """Fault every page in for writing. Kernels without MADV_POPULATE_WRITE do it on first touch."""
        if self.base != NULL:
            with nogil:
                madvise(self.base, <size_t>self.mapped_bytes, MADV_POPULATE_WRITE)

    cdef int commit_to_file(self) noexcept nogil:
        """Move pooled bytes to the file. 0, or an errno."""
        cdef int64_t wrote = load_acquire(&self.wrote)
        cdef int64_t done = self.committed
        cdef ssize_t put
        if self.pool == NULL:
            store_release(&self.committed, wrote)
            return 0
        while done < wrote:
            put = pwrite(self.fd, self.pool + done, <size_t>(wrote - done), done)
            if put < 0:
                return errno
            done += put
            store_release(&self.committed, done)
        return 0

    cdef int flush_to_disk(self) noexcept nogil:
        """Make committed bytes durable. 0, or an errno, which stays latched."""
        cdef int64_t end = load_acquire(&self.committed)
        cdef int64_t begin = (self.flushed // 4096) * 4096
        if self.flush_errno != 0:
            return self.flush_errno
        if self.base == NULL or end <= self.flushed:
            return 0
        if self.pool != NULL:
            if fdatasync(self.fd) != 0:
                self.flush_errno = errno
                return self.flush_errno
        elif msync(self.base + begin, <size_t>(end - begin), MS_SYNC) != 0:
            self.flush_errno = errno
            return self.flush_errno
        store_release(&self.flushed, end)
        return 0

    def flush(self):
        """Make everything committed durable; return the flushed position (bytes).

        Raises:
            StoreFailedError: this or an earlier flush failed. It is never retried: the kernel may have
                dropped the dirty pages.

        Durability: on return bytes below the flushed position survive a power cut.
        """
        cdef int result
        self._check_usable()
        with nogil:
            result = self.flush_to_disk()
        if result != 0:
            raise errors.StoreFailedError(self.path) from OSError(result, "flush failed", self.path)
        return self.flushed

    def view(self, int64_t position, int64_t length):
        """View bytes without copying; the file stays mapped until the view is released."""
        if position < 0 or length < 0 or position + length > self.committed:
            raise errors.OffsetOutOfRangeError(self.start_offset + position, self.start_offset,
                                               self.start_offset + self.committed)
        return memoryview(self)[position:position + length]

    def read(self, int64_t position, int64_t length):
        """Copy bytes below the committed position."""
        self._check_usable()
        if position < 0 or length < 0 or position + length > load_acquire(&self.committed):
            raise errors.OffsetOutOfRangeError(self.start_offset + position, self.start_offset,
                                               self.start_offset + self.committed)
        return PyBytes_FromStringAndSize(<char*>self.base + position, length)

    def close(self):
        """Unmap and close. Raises BufferError while a view is alive; a log view only delays the unmapping."""
        if self.owner_pid != getpid():
            return
        if self.exports:
            raise BufferError(f"{self.path}: {self.exports} views are still in use")
        self.closing = True
        if self.pins == 0:
            self._unmap()

    cdef void pin(self) noexcept:
        self.pins += 1

    cdef void unpin(self) noexcept:
        self.pins -= 1
        if self.closing and self.pins == 0 and self.exports == 0 and self.owner_pid == getpid():
            self._unmap()

    cdef int _check_usable(self) except -1:
        if self.base == NULL or self.closing or self.owner_pid != getpid():
            raise_status(-5, self.path, "use")
        return 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        self._check_usable()
        PyBuffer_FillInfo(buffer, self, self.base, load_acquire(&self.committed), 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.exports -= 1
