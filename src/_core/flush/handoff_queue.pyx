# Turns: the threads that a flush has answered come back to the interpreter one after another.
#
# One thread has the turn. The next one is awake already and spins, for a moment and without the GIL, until it
# is handed the turn; the others sleep. A thread hands its turn on when it waits again and has let go of the
# GIL: so the GIL is free for the next, which is on a processor, and no message pays for a wake-up of its own.
# A thread that does other things first is not waited for: who is next takes the turn when the moment has
# passed, and wakes another only once it has the GIL. So there is never a crowd at the GIL, where every
# handover would cost two context switches more.
#
# The functions need the lock of whoever owns the struct, but for `spin_for_turn`.
from _core.futex cimport load_word, monotonic_ns, store_word
from libc.stdint cimport int64_t, uint32_t

cdef extern from *:
    """
    #include <unistd.h>

    /* Its address tells threads apart. */
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
    WAITER_READY = 1                 # its flush is done, its turn to run is not yet
    WAITER_NEXT = 2                  # awake, gets the turn next
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

cdef struct Turns:
    WaiterList ready                 # asleep
    Waiter* next                     # awake
    void* runner                     # thread that has the turn, NULL: nobody


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


cdef inline Waiter* take_ready(Turns* turns) noexcept nogil:
    cdef Waiter* waiter = turns.ready.first
    if waiter != NULL:
        unlink_waiter(&turns.ready, waiter)
    return waiter


cdef inline void give_turn(Turns* turns, Waiter* waiter) noexcept nogil:
    turns.runner = waiter.thread
    store_word(&waiter.word, WAITER_RUNS)


cdef uint32_t* call_next(Turns* turns) noexcept nogil:
    """Let the first ready one be next if nobody is. The word to wake, or NULL.

    The waiter may be gone when its word is woken: where nobody sleeps that does nothing.
    """
    cdef Waiter* waiter = take_ready(turns) if turns.next == NULL else NULL
    if waiter == NULL:
        return NULL
    turns.next = waiter
    store_word(&waiter.word, WAITER_NEXT)
    return &waiter.word


cdef uint32_t* start_turns(Turns* turns) noexcept nogil:
    """Give the first ready one the turn if nobody has it. The word to wake, or NULL."""
    cdef Waiter* waiter = take_ready(turns) if turns.runner == NULL and turns.next == NULL else NULL
    if waiter == NULL:
        return NULL
    give_turn(turns, waiter)
    return &waiter.word


cdef uint32_t* hand_turn_on(Turns* turns) noexcept nogil:
    """End the turn of the calling thread, which has let go of the GIL. The word to wake, or NULL."""
    if turns.runner != this_thread():
        return NULL
    turns.runner = NULL
    if turns.next != NULL:
        give_turn(turns, turns.next)
        turns.next = NULL
    return call_next(turns)


cdef void spin_for_turn(const Waiter* waiter) noexcept nogil:
    """Return when the turn has come, or has been another's for too long."""
    cdef int64_t until_ns = monotonic_ns() + SPIN_NS
    cdef int _i
    while monotonic_ns() < until_ns:
        for _i in range(SPINS_PER_LOOK):
            if load_word(&waiter.word) == WAITER_RUNS:
                return
            spin_pause()
