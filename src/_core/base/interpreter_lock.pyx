# Long loops that hold the interpreter lock give it to the threads that wait for it.
from _core.platform cimport monotonic_ns
from libc.stdint cimport int64_t

cdef extern from *:
    """
    static __thread int64_t last_yield_ns;
    """
    int64_t last_yield_ns

cdef enum:
    # Longer than sys.getswitchinterval(), after which a waiting thread requests the lock. A thread that
    # releases it more often wakes the waiter before its request, takes it back at once, and starves it.
    YIELD_NS = 8_000_000


cdef inline bint let_others_run() noexcept:
    """Let go of the interpreter lock if this thread has not done so for a while; whether it did."""
    global last_yield_ns
    cdef int64_t now_ns = monotonic_ns()
    if now_ns - last_yield_ns < YIELD_NS:
        return False
    with nogil:
        pass
    last_yield_ns = monotonic_ns()
    return True
