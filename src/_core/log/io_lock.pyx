# _IoLock orders commit, flush and truncation of one queue of files. A flush thread takes it without the
# interpreter lock; it holds it for one flush at a time and steps back while somebody else wants it.
from _core.posix cimport (load_acquire, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
                          pthread_mutex_t, pthread_mutex_unlock, store_release)
from libc.stdint cimport int64_t
from posix.unistd cimport usleep

cdef enum:
    STEP_BACK_US = 100               # mutexes are not fair: who comes again at once would have it for ever


cdef class _IoLock:
    """A mutex for `with`, whose waiting releases the interpreter lock."""

    cdef pthread_mutex_t mutex
    cdef int64_t wanted              # who waits; changed with the interpreter lock held

    def __cinit__(self):
        pthread_mutex_init(&self.mutex, NULL)

    def __dealloc__(self):
        pthread_mutex_destroy(&self.mutex)

    cdef inline void lock(self) noexcept nogil:
        """Take it in a thread that comes again and again: after those who wait."""
        if load_acquire(&self.wanted) > 0:
            usleep(STEP_BACK_US)
        pthread_mutex_lock(&self.mutex)

    cdef inline void unlock(self) noexcept nogil:
        pthread_mutex_unlock(&self.mutex)

    def __enter__(self):
        store_release(&self.wanted, self.wanted + 1)
        with nogil:
            pthread_mutex_lock(&self.mutex)
        store_release(&self.wanted, self.wanted - 1)

    def __exit__(self, kind, error, trace):
        pthread_mutex_unlock(&self.mutex)
