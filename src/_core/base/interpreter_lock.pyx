# Long loops that hold the interpreter lock give it to the threads that wait for it.
from _core.futex cimport monotonic_ns
from libc.stdint cimport int64_t

cdef extern from *:
    """
    static __thread int64_t last_turn_ns;
    """
    int64_t last_turn_ns

cdef enum:
    # Longer than sys.getswitchinterval(), after which a waiting thread asks for the lock. Who lets go of it
    # more often wakes that thread before it asks, takes the lock back at once, and starves it.
    TURN_NS = 8_000_000


cdef inline bint let_others_run() noexcept:
    """Let go of the interpreter lock if this thread has not done so for a while; whether it did."""
    global last_turn_ns
    cdef int64_t now_ns = monotonic_ns()
    if now_ns - last_turn_ns < TURN_NS:
        return False
    with nogil:
        pass
    last_turn_ns = monotonic_ns()
    return True
