# CommitLog appends records to a mapped file queue; a QueueAppender does so for one queue.
# The interpreter lock is the append lock. `make_space` may release it, so nothing is decided before it; the
# result of `has_space` is valid until the lock is released, which `MappedFileQueue.publish` asserts.
# Invariant: the queue offsets of one (topic, queue) are dense, and store timestamps never fall along the log.
from _core.layout cimport (SYS_INNER_BATCH, SYS_NEED_UNWRAP, SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK,
                           SYS_TRANSACTION_NONE)
from _core.posix cimport wall_clock_ms
from _core.dledger_layout cimport ENTRY_BYTES_MAX, ENTRY_HEAD_BYTES
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

import re

from pyledger import errors

cdef object _TOPIC_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
cdef str _LIGHT_QUEUE_PREFIX = "%LMQ%"

cdef enum:
    BLANK_BYTES = 8
    QUEUE_ID_MAX = 2147483647


cdef inline int32_t queue_units(int32_t sys_flag) noexcept nogil:
    """Queue offsets one message takes: none for prepared and rolled-back ones."""
    cdef int32_t kind = sys_flag & SYS_TRANSACTION_MASK
    return 1 if kind == SYS_TRANSACTION_NONE or kind == SYS_TRANSACTION_COMMIT else 0


cdef struct OffsetList:
    int64_t* offsets                 # physical offsets of records, in the order in which they were written
    int64_t count
    int64_t capacity


cdef inline int keep_offsets(OffsetList* written, int64_t more) except -1:
    """Grow the list so that this many more offsets fit."""
    cdef int64_t capacity = max(<int64_t>16, 2 * written.capacity)
    cdef int64_t* offsets
    if written.count + more <= written.capacity:
        return 0
    capacity = max(capacity, written.count + more)
    offsets = <int64_t*>realloc(written.offsets, <size_t>capacity * sizeof(int64_t))
    if offsets == NULL:
        raise MemoryError()
    written.offsets = offsets
    written.capacity = capacity
    return 0


cdef bytes check_topic(str topic, bint strict):
    """The topic's bytes, or IllegalMessageError. Not strict: any name that cannot leave a folder."""
    cdef bytes encoded
    if strict and _TOPIC_ALLOWED.fullmatch(topic) is None:
        raise errors.IllegalMessageError(f"topic {topic!r} may hold only letters, digits and %|_-")
    if strict and topic.startswith(_LIGHT_QUEUE_PREFIX):
        raise errors.IllegalMessageError(f"topic {topic!r} names a light queue, which is not written here")
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        raise errors.IllegalMessageError(f"topic {topic!r} cannot be the name of a folder")
    try:
        encoded = topic.encode()
    except UnicodeEncodeError as error:
        raise errors.IllegalMessageError(f"topic {topic!r} cannot be encoded as UTF-8") from error
    limit = TOPIC_V1_UNITS_MAX if strict and not topic.startswith("%RETRY%") else TOPIC_BYTES_MAX
    if len(encoded) > limit:
        raise errors.IllegalMessageError(f"topic has {len(encoded)} bytes, the limit is {limit}")
    return encoded


cdef class DLedgerLog


cdef class CommitLog:
    """The one physical log of a broker."""

    cdef readonly MappedFileQueue queue
    cdef readonly tuple store_host
    cdef readonly int64_t max_message_size_bytes
    cdef readonly int64_t last_store_timestamp_ms
    cdef readonly bint crc_property
    cdef readonly bint strict_topics
    cdef bytes store_host_bytes
    cdef dict appenders
    cdef DLedgerLog entries             # each record becomes the body of one; None: records only
    cdef int64_t head_bytes          # of the entry head before each record
    cdef object append_error         # makes the error of every append; None: appends are accepted
    cdef EventNotifier notifier

    def __cinit__(self, MappedFileQueue queue not None, *, store_host=("127.0.0.1", 10911),
                  int64_t max_message_size_bytes=4 << 20, bint crc_property=False, bint strict_topics=True,
                  int64_t last_store_timestamp_ms=0, EventNotifier notifier=None, DLedgerLog entries=None):
        self.queue = queue
        self.entries = entries
        self.head_bytes = 0 if entries is None else ENTRY_HEAD_BYTES
        self.store_host = tuple(store_host)
        self.store_host_bytes = encode_host(store_host)
        self.max_message_size_bytes = max_message_size_bytes
        self.crc_property = crc_property
        self.strict_topics = strict_topics
        self.last_store_timestamp_ms = last_store_timestamp_ms
        self.appenders = {}
        self.notifier = notifier

    # -- queues

    def appender(self, str topic not None, queue_id):
        """The prepared way to one queue; the same object at every call."""
        cdef QueueAppender appender = self.appenders.get((topic, queue_id))
        if appender is None:
            if not 0 <= queue_id <= QUEUE_ID_MAX:
                raise errors.IllegalMessageError(f"queue id {queue_id} is negative, or above {QUEUE_ID_MAX}")
            appender = QueueAppender.__new__(QueueAppender)
            appender.prepare(self, topic, queue_id)
            # Another thread may have made it meanwhile, and have appended with it.
            appender = self.appenders.setdefault((topic, queue_id), appender)
        return appender

    def next_queue_offset(self, topic, queue_id):
        """Queue offset (units) that the next message of a queue gets; 0 for an unknown queue."""
        cdef QueueAppender appender = self.appenders.get((topic, queue_id))
        return 0 if appender is None else appender.next_offset

    def set_next_queue_offset(self, topic, queue_id, int64_t queue_offset):
        """Set it after a recovery, before the first append."""
        if queue_offset < 0:
            raise errors.InvariantError(f"queue offset {queue_offset} of {topic}/{queue_id} is negative")
        (<QueueAppender>self.appender(topic, queue_id)).next_offset = queue_offset

    def note_store_timestamp(self, int64_t timestamp_ms):
        """A record of this store time (ms) was written by other means; none of an earlier one follows."""
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, timestamp_ms)

    def reject_appends(self, make_error):
        """Let every append fail with the error that `make_error()` returns; None: accept appends again."""
        self.append_error = make_error

    # -- appending

    def append(self, topic, queue_id, body, tags=None, keys=None, properties=None, *, int flag=0,
               int sys_flag=0, int64_t born_timestamp_ms=0, born_host=None, int reconsume_times=0,
               int64_t prepared_transaction_offset=0, int64_t store_timestamp_ms=0, int64_t queue_offset=-1):
        """Append one fully described message."""
        cdef QueueAppender appender = self.appender(topic, queue_id)
        cdef Draft draft
        cdef int64_t size_bytes
        start_draft(&draft, self.crc_property)
        draft.flag = flag
        draft.sys_flag = sys_flag
        draft.born_timestamp = born_timestamp_ms
        draft.reconsume_times = reconsume_times
        draft.prepared_transaction_offset = prepared_transaction_offset
        draft.store_timestamp = store_timestamp_ms
        draft.queue_offset = queue_offset
        draft.keep_queue_offset = queue_offset >= 0
        size_bytes = appender.append_draft(&draft, body, tags, keys, properties, born_host)
        return draft.physical_offset, size_bytes, draft.queue_offset, draft.store_timestamp

    def append_messages(self, messages not None):
        """Append messages, `pyledger.model.message.Message`: all of them, or none; see _core.pyi."""
        return append_all_or_none(self, messages)

    def append_encoded_batch(self, topic, queue_id, batch, *, int sys_flag=0, int64_t born_timestamp_ms=0,
                             born_host=None, int reconsume_times=0, int64_t store_timestamp_ms=0):
        """Append the messages of a client's batch body as records of their own, all in one file."""
        cdef QueueAppender appender = self.appender(topic, queue_id)
        cdef Draft draft
        cdef RecordTemplate with_host
        cdef const RecordTemplate* template
        cdef OffsetList written
        cdef Py_buffer view
        cdef int64_t end, i
        cdef list results = []
        start_draft(&draft, self.crc_property)
        draft.sys_flag = sys_flag
        draft.born_timestamp = born_timestamp_ms
        draft.reconsume_times = reconsume_times
        draft.store_timestamp = store_timestamp_ms
        template = appender.template_from(born_host, &with_host)
        written.offsets = NULL
        written.count = written.capacity = 0
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            end = self.place_batch(template, appender, &draft, <const uint8_t*>view.buf, view.len, &written)
            end += written.offsets[0]
            self.wake()
            # The last record comes first: each ends where the next one begins.
            for i in range(written.count - 1, -1, -1):
                results.append((written.offsets[i], end - written.offsets[i],
                                draft.queue_offset - written.count + 1 + i, draft.store_timestamp))
                end = written.offsets[i] - self.head_bytes
        finally:
            PyBuffer_Release(&view)
            free(written.offsets)
        results.reverse()
        return results

    def append_inner_batch(self, topic, queue_id, batch, tags=None, keys=None, properties=None, *, int flag=0,
                           int sys_flag=0, int64_t born_timestamp_ms=0, born_host=None, int reconsume_times=0,
                           int64_t store_timestamp_ms=0):
        """Append a client's batch body as one record, for a queue of batches (`queue.type=BatchCQ`)."""
        cdef QueueAppender appender = self.appender(topic, queue_id)
        cdef RecordTemplate with_host
        cdef const RecordTemplate* template = NULL
        cdef Draft draft
        cdef bytes encoded, numbered
        cdef bytes body = batch if type(batch) is bytes else bytes(memoryview(batch))
        cdef int64_t count, size_bytes, base
        start_draft(&draft, self.crc_property)
        draft.flag = flag
        draft.sys_flag = sys_flag | SYS_NEED_UNWRAP | SYS_INNER_BATCH
        draft.born_timestamp = born_timestamp_ms
        draft.reconsume_times = reconsume_times
        draft.store_timestamp = store_timestamp_ms
        if sys_flag & SYS_TRANSACTION_MASK:
            raise errors.IllegalMessageError("a batch takes part in no transaction")
        draft.body = <const uint8_t*>PyBytes_AS_STRING(body)
        draft.body_bytes = PyBytes_GET_SIZE(body)
        count = count_batch(draft.body, draft.body_bytes)
        encoded = b"" if properties is None else properties_to_bytes(properties)
        if b"INNER_NUM\x01" in encoded or b"INNER_BASE\x01" in encoded:
            raise errors.IllegalMessageError("INNER_NUM and INNER_BASE are set by the log")
        if encoded and not encoded.endswith(b"\x02"):
            encoded += b"\x02"
        base = -1
        while base != appender.next_offset:
            # Another thread may take this queue offset while a file is added.
            base = appender.next_offset
            numbered = encoded + b"INNER_NUM\x01%d\x02INNER_BASE\x01%d\x02" % (count, base)
            template = appender.fill_draft(&draft, tags, keys, numbered, born_host, &with_host)
            self.make_space(self.head_bytes + self.record_size(template, &draft), 1)
        size_bytes = self.place(template, appender, &draft, count)
        self.wake()
        return draft.physical_offset, size_bytes, draft.queue_offset, draft.store_timestamp, count

    def append_rows(self, str topic not None, const int32_t[::1] queue_ids not None,
                    const int32_t[::1] body_offsets not None, const uint8_t[::1] bodies not None,
                    const int32_t[::1] property_offsets not None, const uint8_t[::1] properties not None,
                    const int64_t[::1] born_ms not None, *, int64_t store_timestamp_ms=0):
        """Append one message for each row; see _core.pyi."""
        write_rows(self, topic, queue_ids, body_offsets, bodies, property_offsets, properties, born_ms,
                   store_timestamp_ms)

    # -- the only code that writes records at the end of the log

    cdef int64_t place_batch(self, const RecordTemplate* t, QueueAppender appender, Draft* d,
                             const uint8_t* batch, int64_t batch_bytes, OffsetList* written) except -1:
        """Write the messages of a client's batch body, all in one file.

        Bytes from the start of the first record to the end of the last. Their offsets are added to `written`.
        """
        cdef int64_t total = 0
        cdef int64_t count = 0
        cdef int64_t at = 0
        if d.sys_flag & (SYS_TRANSACTION_MASK | SYS_INNER_BATCH):
            raise errors.IllegalMessageError("a batch takes part in no transaction and holds no inner batch")
        if batch_bytes > self.max_message_size_bytes:
            raise errors.RecordTooLargeError("batch", batch_bytes, self.max_message_size_bytes)
        while True:
            # Measure again after each wait for space: the caller's buffer may have changed meanwhile.
            at = total = count = 0
            while at < batch_bytes:
                at = read_batch_item(batch, at, batch_bytes, d)
                total += self.head_bytes + self.record_size(t, d)
                count += 1
            if count == 0:
                raise errors.IllegalMessageError("the batch is empty")
            keep_offsets(written, count)
            if self.has_space(total, count):
                break
            self.make_space(total, count)
        at = 0
        while at < batch_bytes:
            at = read_batch_item(batch, at, batch_bytes, d)
            self.place(t, appender, d, 1)
            ASSERT(written.count < written.capacity)
            written.offsets[written.count] = d.physical_offset
            written.count += 1
        return total - self.head_bytes

    cdef inline int64_t allowed_size(self, const RecordTemplate* t, const Draft* d) noexcept:
        """Size of a record; -1 when it exceeds a limit."""
        cdef int64_t properties_bytes = properties_length(d)
        cdef int64_t size_bytes = t.header_bytes + d.body_bytes + t.topic_field_bytes + 2 + properties_bytes
        if (properties_bytes > PROPERTIES_BYTES_MAX or d.body_bytes > self.max_message_size_bytes
                or self.head_bytes and size_bytes > ENTRY_BYTES_MAX - ENTRY_HEAD_BYTES):
            return -1
        return size_bytes

    cdef inline int64_t record_size(self, const RecordTemplate* t, const Draft* d) except -1:
        """Size of a record, every limit checked."""
        cdef int64_t size_bytes = self.allowed_size(t, d)
        if size_bytes < 0:
            self.raise_too_large(t, d)
        return size_bytes

    cdef int64_t check_record(self, const RecordTemplate* t, const Draft* d) except -1:
        """The same, and that it fits into a file."""
        cdef int64_t size_bytes = self.record_size(t, d)
        self.check_fits(self.head_bytes + size_bytes)
        return size_bytes

    cdef inline int check_fits(self, int64_t size_bytes) except -1:
        if size_bytes + BLANK_BYTES > self.queue.file_size_bytes:
            raise errors.RecordTooLargeError("record", size_bytes, self.queue.file_size_bytes - BLANK_BYTES)
        return 0

    cdef int raise_too_large(self, const RecordTemplate* t, const Draft* d) except -1:
        cdef int64_t properties_bytes = properties_length(d)
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise errors.RecordTooLargeError("properties", properties_bytes, PROPERTIES_BYTES_MAX)
        if d.body_bytes > self.max_message_size_bytes:
            raise errors.RecordTooLargeError("body", d.body_bytes, self.max_message_size_bytes)
        raise errors.RecordTooLargeError(
            "record", t.header_bytes + d.body_bytes + t.topic_field_bytes + 2 + properties_bytes,
            ENTRY_BYTES_MAX - ENTRY_HEAD_BYTES)

    cdef int64_t place(self, const RecordTemplate* t, QueueAppender appender, Draft* d,
                       int64_t units) except -1:
        """Write one record at the end, publish it, advance the queue by `units`; return the record's size."""
        cdef MappedFileQueue queue = self.queue
        cdef MappedFile file
        cdef int64_t size_bytes = self.record_size(t, d)
        cdef int64_t epoch, position
        if not self.has_space(self.head_bytes + size_bytes, 1):
            self.make_space(self.head_bytes + size_bytes, 1)
            if d.follows_clock:
                d.store_timestamp = 0
        epoch = queue.append_epoch
        file = queue.last
        position = file.wrote + self.head_bytes
        ASSERT(position + size_bytes + BLANK_BYTES <= file.allocated <= file.size_bytes)
        d.physical_offset = file.start_offset + position
        if not d.keep_queue_offset:
            d.queue_offset = appender.next_offset if units > 0 else 0
        self.stamp(d)
        encode_record(file.write_base() + position, t, d, properties_length(d), size_bytes)
        if not file.intact(file.wrote, position + size_bytes):
            queue.fail(EIO, file.path)
        if units > 0:
            appender.next_offset = d.queue_offset + units
        if self.head_bytes:
            self.entries.enter(epoch, position - ENTRY_HEAD_BYTES, size_bytes)
        else:
            queue.publish(file, position + size_bytes, epoch)
        return size_bytes

    cdef inline bint has_space(self, int64_t size_bytes, int64_t count) noexcept:
        """Whether `count` records of `size_bytes` together, entry heads included, and a blank record fit into
        the last file now. Never releases the interpreter lock."""
        cdef MappedFileQueue queue = self.queue
        if self.append_error is not None:
            return False
        if self.entries is not None:
            self.entries.end_run()
            return self.entries.has_space(size_bytes, count)
        return queue.takes_appends() and queue.last.wrote + size_bytes + BLANK_BYTES <= queue.last.allocated

    cdef inline void stamp(self, Draft* d) noexcept:
        """Set the store timestamp: as given, or now and never before the last one."""
        if d.store_timestamp == 0:
            d.store_timestamp = max(wall_clock_ms(), self.last_store_timestamp_ms)
        if d.store_timestamp > self.last_store_timestamp_ms:
            self.last_store_timestamp_ms = d.store_timestamp
        if d.born_timestamp == 0:
            d.born_timestamp = d.store_timestamp

    cdef int make_space(self, int64_t size_bytes, int64_t count) except -1:
        """Return when `has_space` is true. Other threads may append meanwhile."""
        cdef MappedFileQueue queue = self.queue
        cdef MappedFile file
        cdef int64_t remaining
        self.check_fits(size_bytes)
        while not self.has_space(size_bytes, count):
            if self.append_error is not None:
                raise self.append_error()
            if self.entries is not None:
                self.entries.make_space(size_bytes, count, -1)
                continue
            queue.check_writable()
            file = queue.last
            if file is None or file.wrote >= file.size_bytes:
                queue.roll(file, 0)
                continue
            remaining = file.size_bytes - file.wrote
            if file.wrote + min(size_bytes + BLANK_BYTES, remaining) > file.allocated:
                queue.reserve(file, file.wrote + min(size_bytes + BLANK_BYTES, remaining))
            elif size_bytes + BLANK_BYTES > remaining:
                if remaining >= BLANK_BYTES:
                    put_blank(file.write_base() + file.wrote, remaining)
                queue.publish(file, file.size_bytes, queue.append_epoch)
        return 0

    cdef inline void wake(self):
        if self.notifier is not None:
            self.notifier.wake()
