# Declarations missing in Cython's posix.* and libc.*: allocation, paging advice, C11 ordering.
from libc.stdint cimport int64_t
from posix.types cimport off_t

cdef extern from "fcntl.h" nogil:
    int posix_fallocate(int fd, off_t offset, off_t length)
    int fallocate(int fd, int mode, off_t offset, off_t length)
    int sync_file_range(int fd, off_t offset, off_t nbytes, unsigned int flags)
    enum: FALLOC_FL_KEEP_SIZE
    enum: SYNC_FILE_RANGE_WRITE
    enum: O_TMPFILE
    enum: AT_FDCWD
    enum: AT_SYMLINK_FOLLOW

cdef extern from "unistd.h" nogil:
    int fdatasync(int fd)
    int syncfs(int fd)
    int fsync(int fd)
    int unlink(const char* path)
    int linkat(int from_folder, const char* path, int to_folder, const char* name, int flags)
    off_t lseek(int fd, off_t offset, int whence)
    enum: SEEK_DATA
    enum: SEEK_HOLE

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset)

cdef extern from "base/store_file.h" nogil:
    int open_regular(const char* path, int flags)

cdef extern from "base/page.h" nogil:
    int64_t page_bytes
    int64_t page_floor(int64_t position)
    int64_t page_ceiling(int64_t position)

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_broadcast(pthread_cond_t* condition)

cdef extern from "sys/mman.h" nogil:
    int madvise(void* address, size_t length, int advice)
    int msync(void* address, size_t length, int flags)
    enum: MS_SYNC
    enum: MADV_DONTNEED
    enum: MADV_NOHUGEPAGE
    enum: MADV_NORMAL
    enum: MADV_RANDOM
    enum: MADV_SEQUENTIAL
    enum: MADV_WILLNEED

cdef extern from *:
    """
    #include <pthread.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <time.h>
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

    /* Counts the forks on the way from the first process to this one: a fork guard that costs a load. */
    static int fork_generation;
    static void count_fork(void) { fork_generation++; }
    static inline void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

    /* Gives the core away, if somebody waits for it. */
    static inline void pause_briefly(void) {
        const struct timespec pause = {0, 50000};
        nanosleep(&pause, NULL);
    }

    static inline int64_t wall_clock_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    int fork_generation
    void watch_forks() noexcept nogil
    int64_t wall_clock_ms() noexcept nogil
    void pause_briefly() noexcept nogil
    enum: MADV_POPULATE_READ
    enum: MADV_POPULATE_WRITE
    int64_t load_acquire(const int64_t* where) noexcept nogil
    void store_release(int64_t* where, int64_t value) noexcept nogil
