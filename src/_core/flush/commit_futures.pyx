# CommitFutures: what the tasks of one event loop wait for in a group commit. A flush signals an event that
# the loop watches, at most once; the loop then completes every future that was reached.
#
# The flush is requested after all tasks that could run have run: a flush for the first one alone would serve
# few of them, and the others would wait for it and for their own.
from _core.platform cimport clear_event, close_event, loop_event, monotonic_ns, open_event
from _core.posix cimport load_acquire, load_word, pthread_mutex_lock, pthread_mutex_unlock
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from collections import deque

from pyledger import errors


cdef class CommitFutures:
    """What the tasks of one event loop wait for. Only that loop's thread touches it, except the event."""

    cdef GroupCommit commit
    cdef object loop
    cdef object pending              # deque of (offset, future, deadline_ns), by offset
    cdef object timer                # one for all; None while it is not set
    cdef int64_t timer_ns            # when it fires, no later than the first deadline
    cdef int64_t last_offset         # of the last one pending
    cdef bint flush_scheduled        # the loop will call `request_flush`
    cdef LoopEvent* event             # owned by the commit, which outlives this

    cdef int start(self, GroupCommit commit, object loop) except -1:
        cdef LoopEvent* event = <LoopEvent*>calloc(1, sizeof(LoopEvent))
        cdef int failed
        if event == NULL:
            raise MemoryError()
        failed = open_event(&event.wakes)
        if failed != 0:
            free(event)
            raise_errno(failed, commit.path, "wake the event loop for")
        event.awaited = NO_OFFSET
        self.commit = commit
        self.loop = loop
        self.pending = deque()
        self.event = event
        pthread_mutex_lock(&commit.lock)
        event.next = commit.loop_events
        commit.loop_events = event
        pthread_mutex_unlock(&commit.lock)
        loop.add_reader(event.wakes.event_fd, self.drain)
        return 0

    cdef int retire(self) except -1:
        """Stop listening. The event itself stays with the commit, silent."""
        cdef loop_event* wakes = &self.event.wakes
        if wakes.event_fd < 0:
            return 0
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if not self.loop.is_closed():
            self.loop.remove_reader(wakes.event_fd)
        pthread_mutex_lock(&self.commit.lock)
        close_event(wakes)
        pthread_mutex_unlock(&self.commit.lock)
        self.commit.loops.remove(self)
        return 0

    cdef int add(self, int64_t offset, object future, int64_t deadline_ns) except -1:
        self.pending.append((offset, future, deadline_ns))
        if offset >= self.last_offset:
            self.last_offset = offset
        else:
            self.pending = deque(sorted(self.pending, key=_first))
        if deadline_ns >= 0 and (self.timer is None or deadline_ns < self.timer_ns):
            self.set_timer(deadline_ns)
        if not self.flush_scheduled:
            self.flush_scheduled = True
            self.loop.call_soon(self.request_flush)
        return 0

    def request_flush(self):
        """Request the flush of all that is pending; the event loop calls this after its tasks."""
        self.flush_scheduled = False
        if self.pending and not self.listen(self.pending[0][0], self.last_offset):
            self.drain()

    cdef bint listen(self, int64_t offset, int64_t wanted) noexcept nogil:
        """Have all below `wanted` flushed, and the event signalled when `offset` is reached.

        False when it already is, or never will be.
        """
        cdef bint waits, asks = False
        pthread_mutex_lock(&self.commit.lock)
        waits = self.commit.flushed < offset and self.commit.status_word == 0
        if waits:
            if self.event.awaited > offset:
                self.event.awaited = offset
            asks = self.commit.request(wanted)
        pthread_mutex_unlock(&self.commit.lock)
        if asks:
            self.commit.flusher.wake()
        return waits

    def drain(self):
        """Answer the futures that the last flush reached; the event loop calls this after the signal."""
        cdef int64_t flushed
        if self.event.wakes.event_fd >= 0:
            clear_event(&self.event.wakes)
        while True:
            flushed = load_acquire(&self.commit.flushed)
            while self.pending and self.pending[0][0] <= flushed:
                future = self.pending.popleft()[1]
                if not future.done():
                    future.set_result(True)
            if load_word(&self.commit.status_word) != 0 and flushed == load_acquire(&self.commit.flushed):
                self.refuse()
                return
            if not self.pending or self.listen(self.pending[0][0], self.pending[0][0]):
                return

    cdef int set_timer(self, int64_t deadline_ns) except -1:
        """A timer a future would cost more than its append."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer_ns = deadline_ns
        self.timer = self.loop.call_later(max(<int64_t>0, deadline_ns - monotonic_ns()) / 1e9, self.expire)
        return 0

    def expire(self):
        """Answer False to those whose time has passed; the event loop calls this."""
        cdef int64_t now_ns = monotonic_ns()
        cdef int64_t first_ns = -1
        cdef int64_t deadline_ns
        self.timer = None
        self.drain()
        waiting = deque()
        for entry in self.pending:
            deadline_ns = entry[2]
            if 0 <= deadline_ns <= now_ns:
                if not entry[1].done():
                    entry[1].set_result(False)
                continue
            waiting.append(entry)
            if deadline_ns >= 0 and (first_ns < 0 or deadline_ns < first_ns):
                first_ns = deadline_ns
        self.pending = waiting
        if first_ns >= 0:
            self.set_timer(first_ns)

    cdef int refuse(self) except -1:
        """Give those who still wait the final error, and stop listening."""
        while self.pending:
            future = self.pending.popleft()[1]
            if future.done():
                continue
            try:
                self.commit.check_usable()
            except errors.StoreError as error:
                future.set_exception(error)
        return self.retire()


def _first(pair):
    return pair[0]
