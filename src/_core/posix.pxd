# What Cython's posix.* and libc.* lack: allocation ahead of a write, paging advice, C11 ordering.
from libc.stdint cimport int64_t
from posix.types cimport off_t

cdef extern from "fcntl.h" nogil:
    int posix_fallocate(int fd, off_t offset, off_t length)
    int fallocate(int fd, int mode, off_t offset, off_t length)
    int sync_file_range(int fd, off_t offset, off_t nbytes, unsigned int flags)
    enum: FALLOC_FL_KEEP_SIZE

cdef extern from "unistd.h" nogil:
    int fdatasync(int fd)

cdef extern from "sys/mman.h" nogil:
    int madvise(void* address, size_t length, int advice)
    int msync(void* address, size_t length, int flags)
    enum: MS_SYNC
    enum: MADV_DONTNEED
    enum: MADV_SEQUENTIAL
    enum: MADV_WILLNEED

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>
    #ifndef MADV_POPULATE_READ
    #define MADV_POPULATE_READ 22
    #endif
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
    static inline int64_t load_acquire(const int64_t *where) {
        return __atomic_load_n(where, __ATOMIC_ACQUIRE);
    }
    static inline void store_release(int64_t *where, int64_t value) {
        __atomic_store_n(where, value, __ATOMIC_RELEASE);
    }
    """
    enum: MADV_POPULATE_READ
    enum: MADV_POPULATE_WRITE
    int64_t load_acquire(const int64_t* where) noexcept nogil
    void store_release(int64_t* where, int64_t value) noexcept nogil
