# Dispatcher: from the commit log to consume queues and index files. It walks a range of the log without the
# interpreter lock in small groups: parse and prefetch the hash slots of all keys of a group, then put. It
# takes the lock only for a new queue or a new file. Invariants: `dispatched_where` is published after all
# that it covers; a queue, or the index, that cannot be created or extended is skipped and nothing else waits
# for it: `dispatched_where` stays at its first missing record until `retry` has added its records.
from _core.layout cimport (PARSED_RECORD, SYS_INNER_BATCH, SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK,
                           Record)
from _core.posix cimport load_acquire, store_release
from _core.status cimport STATUS_END_OF_FILE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr

import threading

from pyledger import errors

cdef extern from *:
    """
    #define prefetch_write(p) __builtin_prefetch((p), 1, 3)
    """
    void prefetch_write(const void* p) noexcept nogil

cdef enum:
    GROUP_RECORDS = 32
    RECORD_KEYS_MAX = 16386          # a property string has at most 32,767 bytes
    GROUP_KEYS = 2 * RECORD_KEYS_MAX

# Upstream's delays of levels 1 to 18.
DELAYS_MS = tuple(1000 * s for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200,
                                     1800, 3600, 7200))


cdef class Dispatcher:
    """Builds consume queues and index files from the commit log."""

    cdef readonly dict queues
    cdef readonly object failure        # what the last call raised, until one succeeds
    cdef object open_queue
    cdef _Stalls stalls
    cdef IndexFileSet index
    cdef QueueTable table
    cdef object lock
    cdef readonly bint closed
    cdef int64_t where                  # published
    cdef int64_t parsed_where           # end of the pending group
    cdef int64_t index_from             # records below have all their entries
    cdef int32_t index_skip             # entries that the record at index_from has already
    cdef IndexFile index_file               # keeps index_cursor's memory when the set lets go of its files
    cdef IndexCursor* index_cursor
    cdef PendingRecord* records
    cdef PendingKey* keys
    cdef int record_count
    cdef int records_done
    cdef int32_t key_count
    cdef int32_t keys_done
    cdef int64_t* delays
    cdef int32_t delay_count
    cdef int generation
    cdef readonly int64_t message_count
    cdef readonly int64_t unit_count
    cdef readonly int64_t entry_count

    def __init__(self, open_queue, IndexFileSet index=None, *, int64_t start_offset=0, delays_ms=DELAYS_MS):
        cdef int i
        self.generation = fork_generation
        self.open_queue = open_queue
        self.index = index
        self.queues = {}
        self.stalls = _Stalls()
        self.table = QueueTable()
        self.lock = threading.RLock()    # the garbage collector may close a store during dispatch
        self.records = <PendingRecord*>malloc(GROUP_RECORDS * sizeof(PendingRecord))
        self.keys = <PendingKey*>malloc(GROUP_KEYS * sizeof(PendingKey))
        self.delay_count = <int32_t>len(delays_ms)
        self.delays = <int64_t*>malloc(<size_t>(self.delay_count + 1) * sizeof(int64_t))
        if self.records == NULL or self.keys == NULL or self.delays == NULL:
            raise MemoryError()
        for i in range(self.delay_count):
            self.delays[i] = delays_ms[i]
        self._enter_index()
        self.start_at(start_offset)

    def __dealloc__(self):
        free(self.records)
        free(self.keys)
        free(self.delays)

    cdef int _enter_index(self) except -1:
        if self.index is None:
            return 0
        self.index_from = self.index.end_physical_offset
        self.index_skip = self.index.entries_of_last_record()
        self.index_file = self.index.last_file() if self.index.files else None
        self.index_cursor = NULL if self.index_file is None else &self.index_file.cursor
        return 0

    @property
    def dispatched_where(self):
        """Physical offset up to which queues and index have everything."""
        cdef int64_t where = load_acquire(&self.where)
        return min(where, load_acquire(&self.stalls.least))

    @property
    def stalled(self):
        with self.lock:
            return self.stalls.listed()

    def start_at(self, int64_t offset):
        """Continue at the start of another record, after a truncation or past a damaged part."""
        with self.lock:
            self.stalls.clear()
            self._go_to(offset)
            store_release(&self.where, offset)

    cdef int _go_to(self, int64_t offset) except -1:
        self.record_count = self.records_done = 0
        self.key_count = self.keys_done = 0
        self.parsed_where = offset
        return self._enter_index()

    def close(self):
        """Wait for a walk in progress and reject further ones; the files may be unmapped afterwards."""
        with self.lock:
            self.closed = True
            self.index_cursor = NULL

    def park(self, queues):
        """Unmap the files of queues that were not used for a while; see `ConsumeQueue.park`."""
        with self.lock:
            for queue in queues:
                (<UnitQueue>queue).park()

    def forget(self, str topic, int queue_id):
        """Let a queue go; its next unit opens it again."""
        cdef bytes name = topic.encode("utf-8", "surrogateescape")
        cdef QueueEntry* entry
        with self.lock:
            entry = self.table.of(name, <int32_t>len(name), queue_id)
            entry.cursor = NULL
            self.queues.pop((topic, queue_id), None)
            self.stalls.remove((topic, queue_id))

    def dispatch(self, LogView view not None, end_offset=None):
        """Dispatch records that end at or before an offset; return where it stopped."""
        cdef int64_t end = view.end_offset
        if end_offset is not None:
            end = min(<int64_t>end_offset, end)
        if self.generation != fork_generation:
            raise errors.StoreClosedError("dispatch of the commit log")
        if load_acquire(&self.where) >= end:
            return self.dispatched_where
        with self.lock:
            if self.closed:
                raise errors.StoreClosedError("dispatch of the commit log")
            try:
                self._walk(view, end)
                self.failure = None
            except BaseException as failure:
                self.failure = failure
                raise
        return self.dispatched_where

    cdef int _walk(self, LogView view, int64_t end) except -1:
        cdef int status
        while True:
            with nogil:
                cold_enter()
                status = self._run(view, end)
                cold_leave()
            if status == 0:
                return 0
            self._resolve(view, status)

    def retry(self, LogView view not None):
        """Retry the stalled queues and index; those that can continue get their missing records."""
        with self.lock:
            if self.closed:
                raise errors.StoreClosedError("dispatch of the commit log")
            kept = dict(self.stalls.queues)
            kept_index = self.stalls.index
            starts = []
            for key, stall in kept.items():
                if self._put_missed(view, <_Stall>stall):
                    starts.append((<_Stall>stall).record.physical_offset)
                    self.stalls.lift(key)
            if kept_index is not None and self._put_missed_key(<_Stall>kept_index):
                starts.append((<_Stall>kept_index).record.physical_offset)
                self.stalls.lift_index()
            if not starts:
                return
            try:
                self._go_to(min(starts))
                self._walk(view, self.where)
            except BaseException:
                # How much of it they got is not known: they wait on.
                self.stalls.restore(kept, kept_index)
                raise
            self.stalls.publish()

    cdef bint _put_missed(self, LogView view, _Stall stall) except -1:
        """Put the first missing record into a stalled queue; False if the queue is still stalled."""
        cdef PendingRecord record = stall.record
        cdef int status
        while True:
            status = self._put_unit(&record)
            if status >= 0:
                return True
            try:
                self._make_space(view, &record, status)
            except REFUSED as error:
                stall.error = of_disk(error, "open")
                return False

    cdef bint _put_missed_key(self, _Stall stall) except -1:
        cdef int status
        while True:
            status = STATUS_END_OF_FILE
            if self.index_cursor != NULL:
                status = put_key(self.index_cursor, stall.key_hash, stall.record.physical_offset,
                                 stall.record.store_timestamp, slot_of(self.index_cursor, stall.key_hash))
            if status >= 0:
                self.entry_count += 1
                return True
            try:
                self.index.make_space(status)
            except REFUSED as error:
                stall.error = of_disk(error, "open")
                return False
            self._enter_new_index_file()

    cdef int _run(self, LogView view, int64_t end) noexcept nogil:
        """Walk on; 0 at the end, or what needs the interpreter lock."""
        cdef int status
        while True:
            cold_pause()
            status = self._put_group()
            if status < 0:
                return status
            self._publish()
            status = self._parse_group(view, end)
            if not view.intact(self.where, self.parsed_where + 1):
                # Nothing of the group may be put; it is parsed again should the log come back.
                self.record_count = self.key_count = 0
                self.parsed_where = self.where
                return WALK_DAMAGED
            if self.record_count == 0:
                self._publish()
                return status

    cdef void _publish(self) noexcept nogil:
        if self.parsed_where > self.where:
            store_release(&self.where, self.parsed_where)

    cdef int _parse_group(self, LogView view, int64_t end) noexcept nogil:
        cdef Record record
        cdef int64_t at
        cdef int status
        self.record_count = self.records_done = 0
        self.key_count = self.keys_done = 0
        while self.record_count < GROUP_RECORDS and self.key_count <= GROUP_KEYS - RECORD_KEYS_MAX:
            at = self.parsed_where
            status = step_to_record(view, &at, end, &record)
            if status != PARSED_RECORD:
                self.parsed_where = at
                return status
            prefetch_ahead(record.start, record.size_bytes)
            if self._parse_record(&record) < 0:
                return WALK_NO_MEMORY
            self.parsed_where = at + record.size_bytes
        return 0

    cdef int _parse_record(self, const Record* record) noexcept nogil:
        cdef RecordFacts facts
        cdef PendingRecord* pending = &self.records[self.record_count]
        cdef QueueEntry* entry = self.table.of(record.topic, record.topic_bytes, record.queue_id)
        if entry == NULL:
            return -1
        read_facts(record.properties, record.properties_bytes, &facts)
        pending.queue = entry
        pending.physical_offset = record.physical_offset
        pending.queue_offset = record.queue_offset
        pending.tags_code = code_of(entry, record, &facts, self.delays, self.delay_count)
        pending.store_timestamp = record.store_timestamp
        pending.size_bytes = record.size_bytes
        pending.unit = has_unit(record) and not entry.nameless
        pending.inner_batch = (record.sys_flag & SYS_INNER_BATCH) != 0
        batch_place(record, &facts, &pending.inner_base, &pending.inner_count)
        if self.index is not None and record.physical_offset >= self.index_from and (
                (record.sys_flag & SYS_TRANSACTION_MASK) != SYS_TRANSACTION_ROLLBACK):
            self._add_keys(entry, &facts, record.physical_offset)
        pending.keys_end = self.key_count
        self.record_count += 1
        return 0

    cdef void _add_keys(self, const QueueEntry* entry, const RecordFacts* facts,
                        int64_t physical_offset) noexcept nogil:
        cdef int32_t first = self.key_count
        cdef const uint8_t* at = facts.keys
        cdef const uint8_t* stop
        cdef const uint8_t* end
        if facts.unique_key != NULL:
            self._add_key(key_hash(entry.topic_hash, facts.unique_key, facts.unique_key_bytes))
        if at != NULL:
            end = at + facts.keys_bytes
            while at < end:
                stop = <const uint8_t*>memchr(at, 32, <size_t>(end - at))
                if stop == NULL:
                    stop = end
                if stop > at:
                    self._add_key(key_hash(entry.topic_hash, at, stop - at))
                at = stop + 1
        if physical_offset == self.index_from:
            self._drop_keys(first)

    cdef void _add_key(self, int32_t hash) noexcept nogil:
        cdef PendingKey* key = &self.keys[self.key_count]
        key.hash = hash
        key.slot = NULL
        if self.index_cursor != NULL:
            key.slot = slot_of(self.index_cursor, hash)
            prefetch_write(key.slot)
        self.key_count += 1

    cdef void _drop_keys(self, int32_t first) noexcept nogil:
        """Leave out the keys that the last indexed record has entries for."""
        cdef int32_t i
        cdef int32_t kept = max(self.key_count - first - self.index_skip, 0)
        for i in range(kept):
            self.keys[first + i] = self.keys[self.key_count - kept + i]
        self.key_count = first + kept

    cdef int _put_group(self) noexcept nogil:
        """Put the units and keys of the group, from where an earlier attempt stopped."""
        cdef PendingRecord* pending
        cdef PendingKey* key
        cdef int status
        while self.records_done < self.record_count:
            pending = &self.records[self.records_done]
            if pending.unit and pending.queue.stalled:
                pass_over(pending)
            elif pending.unit:
                status = self._put_unit(pending)
                if status < 0:
                    return status
            if self.stalls.has_index:
                self.keys_done = pending.keys_end
            while self.keys_done < pending.keys_end:
                key = &self.keys[self.keys_done]
                status = STATUS_END_OF_FILE
                if self.index_cursor != NULL:
                    if key.slot == NULL:
                        key.slot = slot_of(self.index_cursor, key.hash)
                    status = put_key(self.index_cursor, key.hash, pending.physical_offset,
                                     pending.store_timestamp, key.slot)
                if status < 0:
                    return WALK_INDEX + status
                self.keys_done += 1
                self.entry_count += 1
            self.records_done += 1
            if pending.physical_offset >= self.where:
                self.message_count += 1
        return 0

    cdef int _put_unit(self, PendingRecord* pending) noexcept nogil:
        cdef QueueEntry* entry = pending.queue
        cdef int status
        if entry.cursor == NULL:
            return WALK_NEEDS_QUEUE
        if entry.batch:
            status = put_batch_unit(entry.cursor, pending.physical_offset, pending.size_bytes,
                                    pending.tags_code, pending.store_timestamp, pending.inner_base,
                                    pending.inner_count)
        else:
            status = put_unit(entry.cursor, pending.physical_offset, pending.size_bytes, pending.tags_code,
                              pending.queue_offset)
        if status < 0:
            return status
        # Done: a later attempt at this record only adds its keys.
        pending.unit = False
        if status == PUT_APPENDED:
            self.unit_count += 1
        return 0

    cdef int _resolve(self, LogView view, int status) except -1:
        """Do with the interpreter lock what the walk could not."""
        cdef PendingRecord* pending = &self.records[self.records_done]
        if status == WALK_NO_MEMORY:
            raise MemoryError()
        if status == WALK_DAMAGED:
            view.check_intact(self.where, view.end_offset)
        if status == WALK_CORRUPT or status == WALK_DAMAGED:
            raise_corrupt(view, self.parsed_where, "there is no record")
        try:
            if status < WALK_INDEX:
                self.index.make_space(status - WALK_INDEX)
                self._enter_new_index_file()
            else:
                self._make_space(view, pending, status)
        except REFUSED as error:
            if status < WALK_INDEX:
                self.stalls.add_index(pending, self.keys[self.keys_done].hash, of_disk(error, "open"))
            else:
                self.stalls.add(pending, of_disk(error, "open"))
        return 0

    cdef int _make_space(self, LogView view, PendingRecord* pending, int status) except -1:
        """Open a queue, or let it grow, for a unit that had no place."""
        cdef UnitQueue queue
        topic = entry_topic(pending.queue)
        if status == WALK_NEEDS_QUEUE:
            queue = self.open_queue(topic, pending.queue.queue_id, pending.inner_batch)
            queue._check_writable()
            self.queues[topic, pending.queue.queue_id] = queue
            pending.queue.batch = isinstance(queue, BatchConsumeQueue)
            pending.queue.cursor = &queue.cursor
        else:
            queue = self.queues[topic, pending.queue.queue_id]
            try:
                queue._make_space(status, pending.queue_offset, pending.physical_offset)
            except errors.StoreFormatError as failure:
                raise_corrupt(view, pending.physical_offset, failure.problem)
        return 0

    cdef int _enter_new_index_file(self) except -1:
        cdef int32_t i
        self.index_file = self.index.last_file()
        self.index_cursor = &self.index_file.cursor
        for i in range(self.keys_done, self.key_count):
            self.keys[i].slot = NULL
        return 0
