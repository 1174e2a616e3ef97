# GroupCommit: many callers wait until their bytes are on disk, one thread flushes for all of them.
#
# That thread is the first caller, which leads, or the flush thread. A caller leads when no flush is running:
# a single caller then needs no other thread. Callers that arrive meanwhile are served by the flush thread,
# which the leader wakes.
#
# Waiters form a list in the order of their offsets. A flush makes those it reached ready, and they run one
# after another (handoff_queue.pyx). The flush thread needs no GIL in between.
#
# Tasks of an event loop wait as futures in one CommitFutures per loop. A flush signals its event, which the
# loop watches, at most once; the loop then completes every future that was reached.
#
# Invariants: flushed_where only grows; no caller returns before its bytes are durable, and none succeeds
# after `fail` unless it had succeeded before. The lock is held briefly, never while Python code runs.
from _core.platform cimport close_event, futex_wake_all, loop_event, notify_loop
from _core.posix cimport (fork_generation, load_acquire, load_word, pthread_mutex_destroy, pthread_mutex_init,
                          pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, store_release,
                          store_word)
from _core.status cimport STATUS_CLOSED, STATUS_OK, STATUS_STORE_FAILED
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, ETIMEDOUT
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from posix.unistd cimport usleep

from pyledger import errors

cdef enum:
    FLUSH_RETRY_US = 1000            # pause when a flush did not reach the requested offset
    # A caller that leads cannot give up in time. So none does when the last flush took as long as this.
    LED_FLUSH_NS_MAX = 20_000_000
    LED_LATE = 2

cdef int64_t NO_OFFSET = 0x7FFFFFFFFFFFFFFF

cdef struct LoopEvent:
    LoopEvent* next
    int64_t awaited                  # lowest offset that its loop waits for
    loop_event wakes                 # closed: retired


cdef class CommitFutures


cdef class GroupCommit:
    """Callers wait until an offset is durable; one thread flushes for all of them."""

    cdef readonly str path
    cdef object cause
    cdef list loops
    cdef pthread_mutex_t lock
    cdef WaiterList waiting
    cdef Handoff handoff
    cdef int64_t flushed
    cdef int64_t requested
    cdef uint32_t status_word        # 0, or the negated status: failed, closed
    cdef int generation              # of the process; a child of a fork has no flush thread
    cdef LoopEvent* loop_events
    cdef EventNotifier flusher
    cdef MappedFileQueue queue       # that callers may flush; None: only the flush thread does
    cdef EventNotifier flushed_notifier         # woken after every flush of theirs
    cdef bint led                    # a caller flushes
    cdef bint served                 # the flush thread does, or is about to

    def __cinit__(self, str path="", *, int64_t flushed_where=0):
        self.path = path
        self.flushed = flushed_where
        self.requested = flushed_where
        self.loops = []
        self.flusher = EventNotifier()
        self.generation = fork_generation
        pthread_mutex_init(&self.lock, NULL)

    def __dealloc__(self):
        cdef LoopEvent* event = self.loop_events
        cdef LoopEvent* after
        while event != NULL:
            after = event.next
            close_event(&event.wakes)
            free(event)
            event = after
        pthread_mutex_destroy(&self.lock)

    @property
    def flushed_where(self):
        return load_acquire(&self.flushed)

    @property
    def requested_where(self):
        return load_acquire(&self.requested)

    @property
    def failed(self):
        return load_word(&self.status_word) == -STATUS_STORE_FAILED

    @property
    def closed(self):
        return load_word(&self.status_word) == -STATUS_CLOSED

    cdef int check_usable(self) except -1:
        cdef int status = -<int>load_word(&self.status_word)
        if self.generation != fork_generation:
            status = STATUS_CLOSED
        if status == STATUS_STORE_FAILED:
            raise errors.StoreFailedError(self.path) from self.cause
        if status != 0:
            raise_status(status, self.path, "wait for a flush of")
        return 0

    # --- callers

    cdef bint request(self, int64_t offset) noexcept nogil:
        """Request a flush; the lock is held. True when the flush thread must be woken.

        A caller that leads wakes it afterwards.
        """
        if offset <= self.requested:
            return False
        store_release(&self.requested, offset)
        return not self.led

    cdef bint enlist(self, Waiter* waiter) noexcept nogil:
        """Join the waiters and hand over; the GIL is released. False: there is nothing to wait for."""
        cdef bint waits, asks = False
        cdef uint32_t* word = NULL
        waiter.thread = this_thread()
        waiter.word = WAITER_ASLEEP
        pthread_mutex_lock(&self.lock)
        waits = self.flushed < waiter.offset and self.status_word == 0
        if waits:
            insert_waiter(&self.waiting, waiter)
            asks = self.request(waiter.offset)
            word = hand_over(&self.handoff)
        pthread_mutex_unlock(&self.lock)
        if word != NULL:
            futex_wake_all(word)
        if asks:
            self.flusher.wake()
        return waits

    cdef void leave(self, Waiter* waiter) noexcept nogil:
        """Give up waiting; hand over if this waiter may run by now."""
        cdef uint32_t* word
        pthread_mutex_lock(&self.lock)
        if waiter.word == WAITER_ASLEEP:
            unlink_waiter(&self.waiting, waiter)
        elif waiter.word == WAITER_READY:
            unlink_waiter(&self.handoff.ready, waiter)
        elif waiter.word == WAITER_NEXT:
            self.handoff.next = NULL
        word = hand_over(&self.handoff) if waiter.word == WAITER_RUNS else call_next(&self.handoff)
        pthread_mutex_unlock(&self.lock)
        if word != NULL:
            futex_wake_all(word)

    cdef void take_over(self, Waiter* waiter) noexcept nogil:
        """Wait briefly as the next waiter, then run: the running thread may be busy with other things."""
        spin_for_handoff(waiter)
        pthread_mutex_lock(&self.lock)
        if waiter.word == WAITER_NEXT:
            self.handoff.next = NULL
            run_waiter(&self.handoff, waiter)
        pthread_mutex_unlock(&self.lock)

    cdef void call_next_waiter(self) noexcept nogil:
        """Make another waiter the next unless there is one."""
        cdef uint32_t* word
        pthread_mutex_lock(&self.lock)
        word = call_next(&self.handoff)
        pthread_mutex_unlock(&self.lock)
        if word != NULL:
            futex_wake_all(word)

    cdef int sleep(self, Waiter* waiter, int64_t deadline_ns) noexcept nogil:
        """True: it may run; False: the deadline passed; -1: check for signals, then sleep on."""
        cdef uint32_t word
        cdef int result = 0
        while True:
            word = load_word(&waiter.word)
            if word == WAITER_RUNS:
                return True
            if word == WAITER_NEXT:
                self.take_over(waiter)
            elif result == ETIMEDOUT:
                return False
            else:
                result = sleep_on(&waiter.word, word, deadline_ns)
                if result == EINTR:
                    return -1

    cdef MappedFile file_to_lead(self, int64_t timeout_ms):
        """The file that a caller may have to flush, or None when somebody else surely does."""
        cdef MappedFileQueue queue = self.queue
        if queue is None or self.led or self.served or timeout_ms == 0:
            return None
        if queue.flush_last_ns >= LED_FLUSH_NS_MAX:
            return None
        if queue.last is None or queue.last.start_offset > load_acquire(&queue.flushed):
            return queue.file_after(load_acquire(&queue.flushed))
        return queue.last

    cdef bint begin_to_lead(self, Waiter* waiter) noexcept nogil:
        """Become the one who flushes, unless there is one or no need; the GIL is released."""
        cdef bint leads
        cdef uint32_t* word = NULL
        pthread_mutex_lock(&self.lock)
        leads = self.flushed < waiter.offset and self.status_word == 0 and not self.led and not self.served
        if leads:
            self.led = True
            self.request(waiter.offset)
            word = hand_over(&self.handoff)
        pthread_mutex_unlock(&self.lock)
        if word != NULL:
            futex_wake_all(word)
        return leads

    cdef int lead(self, MappedFile file, int64_t version) noexcept nogil:
        """Flush a pinned file for all who wait. 0, or an errno: the queue failed."""
        cdef int failed = 0
        cdef bint asks
        self.queue.io_lock.lock()
        if self.queue.state == STATUS_OK and self.queue.run_version == version:
            failed = self.queue.flush_file(file)
        self.queue.io_lock.unlock()
        self.answer(load_acquire(&self.queue.flushed) if failed == 0 else 0, 0, this_thread())
        pthread_mutex_lock(&self.lock)
        self.led = False
        asks = self.requested > self.flushed
        pthread_mutex_unlock(&self.lock)
        if asks:
            self.flusher.wake()
        if self.flushed_notifier is not None:
            self.flushed_notifier.wake()
        return failed

    cdef int flush_or_sleep(self, MappedFile file, int64_t version, Waiter* waiter, int64_t deadline_ns,
                            int* failure) noexcept nogil:
        """Lead if no flush is running, or wait among the others, as `sleep`. LED_LATE: it led too long."""
        if file is not None and self.begin_to_lead(waiter):
            failure[0] = self.lead(file, version)
            if 0 <= deadline_ns <= monotonic_ns():
                return LED_LATE
            if failure[0] != 0 or load_acquire(&self.flushed) >= waiter.offset:
                return True
        if not self.enlist(waiter):
            return True
        return self.sleep(waiter, deadline_ns)

    cdef int fail_queue(self, int number, str path) except -1:
        """Latch queue and group after a flush that a caller led; raises."""
        try:
            self.queue.fail(number, path)
        except errors.StoreFailedError as error:
            self.fail(error.__cause__)
            raise

    cdef int wait_until(self, int64_t offset, int64_t timeout_ms) except -1:
        """Wait without the GIL until bytes below `offset` are durable: 1, or 0 when the time passed."""
        cdef Waiter waiter
        cdef MappedFile file
        cdef int64_t version = 0
        cdef int64_t deadline_ns
        cdef int failure = 0
        cdef int woken
        if load_acquire(&self.flushed) >= offset and self.generation == fork_generation:
            return 1
        self.check_usable()
        waiter.offset = offset
        deadline_ns = deadline_after(timeout_ms)
        file = self.file_to_lead(timeout_ms)
        if file is not None:
            file.pin()
            version = self.queue.run_version
        with nogil:
            woken = self.flush_or_sleep(file, version, &waiter, deadline_ns, &failure)
        if file is not None:
            file.unpin()
            if failure != 0:
                self.fail_queue(failure, file.path)
        if woken == LED_LATE:
            return 0
        try:
            while woken < 0:
                PyErr_CheckSignals()
                with nogil:
                    woken = self.sleep(&waiter, deadline_ns)
        except BaseException:
            self.leave(&waiter)
            raise
        if woken:
            if self.handoff.ready.first != NULL:
                self.call_next_waiter()
        else:
            self.leave(&waiter)
        if load_acquire(&self.flushed) >= offset:
            return 1
        self.check_usable()
        return 0

    def wait(self, int64_t offset, int64_t timeout_ms):
        """Wait without the GIL until bytes below `offset` are durable; see _core.pyi."""
        return self.wait_until(offset, timeout_ms) == 1

    def register(self, int64_t offset, loop, int64_t timeout_ms=-1):
        """Future of `loop`, True when bytes below `offset` are durable; see _core.pyi."""
        future = loop.create_future()
        if load_acquire(&self.flushed) >= offset and self.generation == fork_generation:
            future.set_result(True)
            return future
        self.check_usable()
        self.futures_of(loop).add(offset, future, deadline_after(timeout_ms))
        return future

    cdef CommitFutures futures_of(self, object loop):
        cdef CommitFutures futures
        for futures in self.loops:
            if futures.loop is loop:
                return futures
        for futures in list(self.loops):
            if futures.loop.is_closed():
                futures.retire()
        futures = CommitFutures.__new__(CommitFutures)
        futures.start(self, loop)
        self.loops.append(futures)
        return futures

    # --- the flush thread

    cdef bint await_request(self, int64_t deadline_ns) noexcept nogil:
        """True: there is a request beyond what is flushed. May be early: -1: check for signals."""
        cdef int woken
        while not self.begin_to_serve():
            if load_word(&self.status_word) != 0:
                return False
            woken = self.flusher.sleep(deadline_ns)
            if woken != 1:
                return woken
        return True

    cdef bint begin_to_serve(self) noexcept nogil:
        """Whether the flush thread is wanted. While it is, no caller leads."""
        pthread_mutex_lock(&self.lock)
        self.served = self.requested > self.flushed and not self.led
        pthread_mutex_unlock(&self.lock)
        return self.served

    cdef void end_to_serve(self) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.served = False
        pthread_mutex_unlock(&self.lock)

    def wait_for_request(self, int64_t timeout_ms):
        """Sleep without the GIL until somebody waits for more than is flushed; see _core.pyi."""
        cdef int64_t deadline_ns = deadline_after(timeout_ms)
        cdef int woken = -1
        self.check_usable()
        while woken < 0:
            with nogil:
                woken = self.await_request(deadline_ns)
            if woken < 0:
                PyErr_CheckSignals()
        return woken == 1

    cdef void notify_loops(self) noexcept nogil:
        """Notify the event loops whose offset is reached; the lock is held."""
        cdef LoopEvent* event = self.loop_events
        while event != NULL:
            if event.wakes.event_fd >= 0 and (event.awaited <= self.flushed or self.status_word != 0):
                event.awaited = NO_OFFSET
                notify_loop(&event.wakes)
            event = event.next

    cdef void answer(self, int64_t flushed_where, int status, void* runner) noexcept nogil:
        """Move on to a new end or a final status; those it answers become ready, the first are woken.

        `runner` is the thread that runs if none does; NULL: the first that is ready.
        """
        cdef Waiter* waiter
        cdef uint32_t* first
        cdef uint32_t* second
        pthread_mutex_lock(&self.lock)
        if flushed_where > self.flushed and self.status_word == 0:
            store_release(&self.flushed, flushed_where)
        if status != 0 and self.status_word == 0:
            store_word(&self.status_word, <uint32_t>-status)
        if self.handoff.next == NULL and self.handoff.ready.first == NULL:
            # Whoever had the last turn may never wait again.
            self.handoff.runner = NULL
        if self.handoff.runner == NULL and self.handoff.next == NULL:
            self.handoff.runner = runner
        waiter = self.waiting.first
        while waiter != NULL and (waiter.offset <= self.flushed or self.status_word != 0):
            unlink_waiter(&self.waiting, waiter)
            insert_after(&self.handoff.ready, waiter, self.handoff.ready.last)
            store_word(&waiter.word, WAITER_READY)
            waiter = self.waiting.first
        self.notify_loops()
        first = start_handoff(&self.handoff)
        second = call_next(&self.handoff)
        pthread_mutex_unlock(&self.lock)
        if first != NULL:
            futex_wake_all(first)
        if second != NULL:
            futex_wake_all(second)

    cdef void publish_where(self, int64_t flushed_where) noexcept nogil:
        """Notify all waiters that bytes below `flushed_where` are durable."""
        self.answer(flushed_where, 0, NULL)

    def publish(self, int64_t flushed_where):
        """Notify all waiters that bytes below `flushed_where` are durable."""
        self.publish_where(flushed_where)

    def fail(self, cause=None):
        """Latch: a flush failed. Everybody who waits, or will, gets StoreFailedError."""
        if self.cause is None:
            self.cause = cause
        self.answer(0, STATUS_STORE_FAILED, NULL)
        self.flusher.wake()

    def close(self):
        """End all waiting: waiters get StoreClosedError."""
        if self.generation == fork_generation:
            self.answer(0, STATUS_CLOSED, NULL)
            self.flusher.wake()

    def serve(self, MappedFileQueue queue, int64_t timeout_ms, EventNotifier flushed=None):
        """Be the flush thread of a queue for a while; see _core.pyi."""
        cdef int64_t deadline_ns = deadline_after(timeout_ms)
        cdef int woken = 1
        self.check_usable()
        try:
            while woken != 0:
                queue.check_writable()
                woken = self.serve_file(queue, flushed, deadline_ns)
                PyErr_CheckSignals()
        except errors.StoreFailedError as error:
            self.fail(error.__cause__)
            raise
        finally:
            self.end_to_serve()
        return self.flushed_where

    def let_callers_flush(self, MappedFileQueue queue not None, EventNotifier flushed=None):
        """From now on who waits alone flushes the queue itself; see _core.pyi."""
        self.queue = queue
        self.flushed_notifier = flushed

    cdef int serve_file(self, MappedFileQueue queue, EventNotifier flushed, int64_t deadline_ns) except -2:
        """Serve the file with the first byte that is not durable."""
        cdef MappedFile file = queue.file_after(queue.flushed)
        cdef int failure = 0
        cdef int woken = 1
        if file is None:
            # Nothing is written yet: the first append also creates the file.
            with nogil:
                woken = self.await_request(deadline_ns)
                if woken == 1:
                    usleep(FLUSH_RETRY_US)
            return 0 if 0 <= deadline_ns <= monotonic_ns() else woken
        file.pin()
        with nogil:
            woken = self.serve_requests(queue, file, flushed, deadline_ns, &failure)
        file.unpin()
        if failure != 0:
            queue.fail(failure, file.path)
        return woken

    cdef int serve_requests(self, MappedFileQueue queue, MappedFile file, EventNotifier flushed,
                            int64_t deadline_ns, int* failure) noexcept nogil:
        """1: choose the next file, or a flush failed; 0: time is up; -1: check for signals."""
        cdef int64_t version = queue.run_version
        cdef int64_t before
        cdef int woken
        while file.flushed < file.size_bytes:
            woken = self.await_request(deadline_ns)
            if woken != 1:
                return woken
            queue.io_lock.lock()
            if queue.state != STATUS_OK or queue.run_version != version:
                queue.io_lock.unlock()
                return 1
            before = file.flushed
            failure[0] = queue.flush_file(file)
            queue.io_lock.unlock()
            if failure[0] != 0:
                return 1
            self.publish_where(load_acquire(&queue.flushed))
            if flushed is not None:
                flushed.wake()
            if load_word(&self.status_word) != 0 or 0 <= deadline_ns <= monotonic_ns():
                return 0
            if file.flushed == before:
                # Somebody waits for bytes that are not written yet.
                usleep(FLUSH_RETRY_US)
        return 1
