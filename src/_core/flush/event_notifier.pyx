# EventNotifier: one thread sleeps until there is work; others notify it. A notification costs a plain load
# while the one before has not been seen. Invariant: after `wake` returned, the sleeper checks for work again.
#
# States: QUIET -> (wake) SIGNALLED -> (wait) QUIET; QUIET -> (wait) ASLEEP -> (wake) SIGNALLED.
# A notifier that finds SIGNALLED does nothing. It must then be sure that the sleeper, which turns SIGNALLED
# into QUIET and checks for work, sees the work: that is a store before a load on either side. The sleeper's
# heavy fence between the two orders both sides, so `wake` needs no fence of its own.
from _core.platform cimport (futex_wait, futex_wake_all, heavy_fence, is_first_thread, light_fence,
                             monotonic_ns, prepare_fences)
from _core.posix cimport exchange_word, load_word, replace_word
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, ETIMEDOUT
from libc.stdint cimport int64_t, uint32_t

cdef enum:
    NOTIFIER_QUIET = 0
    NOTIFIER_SIGNALLED = 1
    NOTIFIER_ASLEEP = 2
    # How long the first thread sleeps at most before it checks for Ctrl-C again.
    SIGNAL_CHECK_NS = 100_000_000

cdef enum:
    WAIT_MAX_MS = 1_000_000_000_000  # in nanoseconds still an int64_t

prepare_fences()


cdef inline int64_t deadline_after(int64_t timeout_ms) noexcept nogil:
    """Monotonic nanoseconds; -1 for a negative timeout, which has no end."""
    if timeout_ms < 0:
        return -1
    return monotonic_ns() + min(timeout_ms, <int64_t>WAIT_MAX_MS) * 1_000_000


cdef inline int sleep_on(uint32_t* word, uint32_t expected, int64_t deadline_ns) noexcept nogil:
    """One sleep, short enough to notice Ctrl-C: 0, EAGAIN, EINTR (check for signals) or ETIMEDOUT."""
    cdef int64_t slice_ns
    cdef int result
    if not is_first_thread():
        return futex_wait(word, expected, deadline_ns)
    slice_ns = monotonic_ns() + SIGNAL_CHECK_NS
    if 0 <= deadline_ns <= slice_ns:
        return futex_wait(word, expected, deadline_ns)
    result = futex_wait(word, expected, slice_ns)
    return EINTR if result == ETIMEDOUT else result


cdef class EventNotifier:
    """One thread sleeps until there is work; others wake it."""

    cdef uint32_t state
    cdef int generation

    def __cinit__(self):
        self.generation = fork_generation

    cdef inline void wake(self) noexcept nogil:
        """There is work. Publish it before the call."""
        light_fence()
        if load_word(&self.state) == NOTIFIER_SIGNALLED:
            return
        if exchange_word(&self.state, NOTIFIER_SIGNALLED) == NOTIFIER_ASLEEP:
            futex_wake_all(&self.state)

    cdef bint take_signal(self) noexcept nogil:
        if not replace_word(&self.state, NOTIFIER_SIGNALLED, NOTIFIER_QUIET):
            return False
        heavy_fence()
        return True

    cdef int sleep(self, int64_t deadline_ns) noexcept nogil:
        """True: woken; False: the deadline passed; -1: check for signals, then sleep on."""
        cdef int result
        while not self.take_signal():
            replace_word(&self.state, NOTIFIER_QUIET, NOTIFIER_ASLEEP)
            result = sleep_on(&self.state, NOTIFIER_ASLEEP, deadline_ns)
            if result == EINTR:
                return -1
            if result == ETIMEDOUT:
                replace_word(&self.state, NOTIFIER_ASLEEP, NOTIFIER_QUIET)
                return self.take_signal()
        return True

    def wait(self, int64_t timeout_ms):
        """Sleep without the GIL until woken; see _core.pyi."""
        cdef int64_t deadline_ns = deadline_after(timeout_ms)
        cdef int woken
        if self.generation != fork_generation:
            raise_status(STATUS_CLOSED, "notifier", "wait on")
        while True:
            with nogil:
                woken = self.sleep(deadline_ns)
            if woken >= 0:
                return woken == 1
            PyErr_CheckSignals()

    def notify(self):
        """Wake the sleeper, or let its next `wait` return at once."""
        self.wake()
