# Declarations missing in Cython's posix.* and libc.*, the same on every system; platform.pxd has the others.
from libc.stdint cimport int64_t, uint32_t
from posix.types cimport off_t

cdef extern from "unistd.h" nogil:
    int unlink(const char* path)

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset)

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int c_poll "poll" (pollfd* fds, unsigned int count, int timeout_ms)
    enum: POLLIN
    enum: POLLOUT

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
    enum: MADV_NORMAL
    enum: MADV_RANDOM

cdef extern from *:
    """
    #include <pthread.h>
    #include <stdint.h>
    #include <time.h>
    static inline int64_t load_acquire(const int64_t *where) {
        return __atomic_load_n(where, __ATOMIC_ACQUIRE);
    }
    static inline void store_release(int64_t *where, int64_t value) {
        __atomic_store_n(where, value, __ATOMIC_RELEASE);
    }
    static inline uint32_t load_word(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
    static inline void store_word(uint32_t *word, uint32_t value) {
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
    }
    static inline uint32_t exchange_word(uint32_t *word, uint32_t value) {
        return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
    }
    static inline int replace_word(uint32_t *word, uint32_t expected, uint32_t value) {
        return __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
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
    int64_t load_acquire(const int64_t* where) noexcept nogil
    void store_release(int64_t* where, int64_t value) noexcept nogil
    uint32_t load_word(const uint32_t* word) noexcept nogil
    void store_word(uint32_t* word, uint32_t value) noexcept nogil
    uint32_t exchange_word(uint32_t* word, uint32_t value) noexcept nogil
    bint replace_word(uint32_t* word, uint32_t expected, uint32_t value) noexcept nogil
