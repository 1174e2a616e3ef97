# Sleeping on a word of memory, and the barrier that lets the other side do without one. Linux.
from libc.stdint cimport int64_t, uint32_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)

cdef extern from *:
    """
    #include <errno.h>
    #include <limits.h>
    #include <linux/futex.h>
    #include <linux/membarrier.h>
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>

    static inline int64_t monotonic_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    /* Sleeps while *word is `expected`, until the deadline (monotonic; negative: none). 0, or an errno. */
    static inline int futex_wait(uint32_t *word, uint32_t expected, int64_t deadline_ns) {
        struct timespec until = {deadline_ns / 1000000000, deadline_ns % 1000000000};
        long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected,
                              deadline_ns < 0 ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
        return result == 0 ? 0 : errno;
    }

    static inline void futex_wake_all(uint32_t *word) {
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
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

    /* The slow side fences with a system call, so that the fast side need not fence at all.
       If the kernel does not support it, both sides fence. */
    static int light_fence_is_heavy = 1;

    static inline void prepare_fences(void) {
        light_fence_is_heavy = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
    }
    static inline void light_fence(void) {
        if (light_fence_is_heavy)
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
        else
            __asm__ __volatile__("" ::: "memory");
    }
    static inline void heavy_fence(void) {
        if (light_fence_is_heavy || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    /* A signal for the process interrupts its first thread, where Python runs the handlers. */
    static inline int is_first_thread(void) { return syscall(SYS_gettid) == getpid(); }
    """
    int64_t monotonic_ns() noexcept nogil
    int futex_wait(uint32_t* word, uint32_t expected, int64_t deadline_ns) noexcept nogil
    void futex_wake_all(uint32_t* word) noexcept nogil
    uint32_t load_word(const uint32_t* word) noexcept nogil
    void store_word(uint32_t* word, uint32_t value) noexcept nogil
    uint32_t exchange_word(uint32_t* word, uint32_t value) noexcept nogil
    bint replace_word(uint32_t* word, uint32_t expected, uint32_t value) noexcept nogil
    void prepare_fences() noexcept nogil
    void light_fence() noexcept nogil
    void heavy_fence() noexcept nogil
    bint is_first_thread() noexcept nogil
