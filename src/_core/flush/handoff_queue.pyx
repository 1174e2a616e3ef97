# Handoff: wakes the threads whose flush completed one at a time, so that they do not all compete for the GIL.
#
# One thread runs. The next one is already awake and spins briefly without the GIL until the handoff;
# the others sleep. A thread hands over when it waits again and has released the GIL: the GIL is then free for
# the next thread, which is on a processor, and no message pays for a wake-up of its own. A thread that does
# other things first is not waited for: after the spin the next one runs, and wakes another only once it has
# the GIL. So threads never crowd at the GIL, where each switch would cost two more context switches.
#
# All functions but `spin_for_handoff` need the lock of the owner of the struct.
from _core.platform cimport monotonic_ns
from _core.posix cimport load_word, store_word
from libc.stdint cimport int64_t, uint32_t

cdef extern from *:
    """
    #include <unistd.h>

    /* Its address identifies the thread. */
    static __thread char thread_mark;
    static inline void *this_thread(void) { return &thread_mark; }

    static inline void spin_pause(void) {
    #if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
    #elif defined(__aarch64__)
        __asm__ __volatile__("yield");
    #endif
    }
    static int has_processors(void) { return sysconf(_SC_NPROCESSORS_ONLN) > 1; }
    """
    void* this_thread() noexcept nogil
    void spin_pause() noexcept nogil
    bint has_processors() noexcept nogil

cdef enum:
    # States of a waiter; its word in memory is what it sleeps on.
    WAITER_ASLEEP = 0
    WAITER_READY = 1                 # its flush is done, but it may not run yet
    WAITER_NEXT = 2                  # awake, runs next
    WAITER_RUNS = 3
    SPINS_PER_LOOK = 32              # at the clock

# How long it spins at most, about two appends. Longer keeps others from the processor; on a single one that
# holds for any time.
cdef int64_t SPIN_NS = 4_000 if has_processors() else 0

cdef struct Waiter:
    Waiter* previous
    Waiter* next
    int64_t offset
    void* thread
    uint32_t word

cdef struct WaiterList:
    Waiter* first
    Waiter* last

cdef struct Handoff:
    WaiterList ready                 # asleep
    Waiter* next                     # awake
    void* runner                     # thread that runs; NULL: none


cdef inline void unlink_waiter(WaiterList* waiters, Waiter* waiter) noexcept nogil:
    if waiter.previous == NULL:
        waiters.first = waiter.next
    else:
        waiter.previous.next = waiter.next
    if waiter.next == NULL:
        waiters.last = waiter.previous
    else:
        waiter.next.previous = waiter.previous


cdef inline void insert_after(WaiterList* waiters, Waiter* waiter, Waiter* before) noexcept nogil:
    waiter.previous = before
    waiter.next = waiters.first if before == NULL else before.next
    if before == NULL:
        waiters.first = waiter
    else:
        before.next = waiter
    if waiter.next == NULL:
        waiters.last = waiter
    else:
        waiter.next.previous = waiter


cdef inline void insert_waiter(WaiterList* waiters, Waiter* waiter) noexcept nogil:
    """Keep ascending order; offsets nearly always grow, so the search starts at the end."""
    cdef Waiter* before = waiters.last
    while before != NULL and before.offset > waiter.offset:
        before = before.previous
    insert_after(waiters, waiter, before)


cdef inline Waiter* take_ready(Handoff* handoff) noexcept nogil:
    cdef Waiter* waiter = handoff.ready.first
    if waiter != NULL:
        unlink_waiter(&handoff.ready, waiter)
    return waiter


cdef inline void run_waiter(Handoff* handoff, Waiter* waiter) noexcept nogil:
    handoff.runner = waiter.thread
    store_word(&waiter.word, WAITER_RUNS)


cdef uint32_t* call_next(Handoff* handoff) noexcept nogil:
    """Make the first ready waiter the next unless there is one. The word to wake, or NULL.

    The waiter may be gone when its word is woken: then the wake-up has no effect.
    """
    cdef Waiter* waiter = take_ready(handoff) if handoff.next == NULL else NULL
    if waiter == NULL:
        return NULL
    handoff.next = waiter
    store_word(&waiter.word, WAITER_NEXT)
    return &waiter.word


cdef uint32_t* start_handoff(Handoff* handoff) noexcept nogil:
    """Let the first ready waiter run if no thread does. The word to wake, or NULL."""
    cdef Waiter* waiter = take_ready(handoff) if handoff.runner == NULL and handoff.next == NULL else NULL
    if waiter == NULL:
        return NULL
    run_waiter(handoff, waiter)
    return &waiter.word


cdef uint32_t* hand_over(Handoff* handoff) noexcept nogil:
    """Let the next waiter run instead of the calling thread, which has released the GIL. The word to wake."""
    if handoff.runner != this_thread():
        return NULL
    handoff.runner = NULL
    if handoff.next != NULL:
        run_waiter(handoff, handoff.next)
        handoff.next = NULL
    return call_next(handoff)


cdef void spin_for_handoff(const Waiter* waiter) noexcept nogil:
    """Return when the waiter may run, or after SPIN_NS."""
    cdef int64_t until_ns = monotonic_ns() + SPIN_NS
    cdef int _i
    while monotonic_ns() < until_ns:
        for _i in range(SPINS_PER_LOOK):
            if load_word(&waiter.word) == WAITER_RUNS:
                return
            spin_pause()
