# Pulls that find messages, answered in batches: pulls of one topic with the same parameters that a connection
# received together. A pull that is not plain ends the batch and is left to Python, which is the model that
# this is tested against.
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy


@cython.final
cdef class PullBatch:
    """Answers to pulls that found messages, in order."""

    cdef readonly int request_count
    cdef readonly int64_t message_count
    cdef readonly int64_t record_bytes
    cdef readonly list parts         # whole frames together
    cdef list heads                  # while copying: of each answer, with the records that follow it
    cdef list ranges
    cdef int64_t total_bytes

    def __init__(self):
        raise TypeError("answer_pulls makes these")

    cdef int add(self, bytes head, RecordRanges ranges, bint copied) except -1:
        """Answer a pull with records."""
        cdef int i
        self.total_bytes += PyBytes_GET_SIZE(head) + ranges.size_bytes
        self.record_bytes += ranges.size_bytes
        self.request_count += 1
        if copied:
            self.heads.append(head)
            self.ranges.append(ranges)
            return 0
        self.parts.append(head)
        for i in range(ranges.count):
            self.parts.append(ranges.log.view(ranges.starts[i], ranges.lengths[i]))
        return 0

    cdef int copy(self) except -1:
        """Make one piece of all answers."""
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, self.total_bytes)
        cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(whole)
        cdef RecordRanges ranges
        cdef const uint8_t* records
        cdef bytes head
        cdef Py_ssize_t i
        cdef int j
        for i in range(len(self.heads)):
            head = self.heads[i]
            ranges = self.ranges[i]
            memcpy(to, PyBytes_AS_STRING(head), <size_t>PyBytes_GET_SIZE(head))
            to += PyBytes_GET_SIZE(head)
            for j in range(ranges.count):
                cold_enter()
                records = ranges.log.range_at(ranges.starts[j], ranges.lengths[j])
                if records != NULL:
                    memcpy(to, records, <size_t>ranges.lengths[j])
                cold_leave()
                if records == NULL:
                    raise errors.OffsetOutOfRangeError(ranges.starts[j], ranges.log.start_offset,
                                                       ranges.log.end_offset)
                ranges.log.check_intact(ranges.starts[j], ranges.starts[j] + ranges.lengths[j], True)
                to += ranges.lengths[j]
        ASSERT(to == <uint8_t*>PyBytes_AS_STRING(whole) + self.total_bytes)
        self.heads = self.ranges = None
        self.parts = [whole]
        return 0


cdef inline bint asks_alike(PullRequest one, PullRequest other) noexcept:
    """Whether the same rules hold for two pulls."""
    return (one.code == other.code and one.sys_flag == other.sys_flag and one.sub_version == other.sub_version
            and one.topic == other.topic and one.consumer_group == other.consumer_group
            and one.subscription == other.subscription and one.expression_type == other.expression_type)


def answer_pulls(list frames not None, Py_ssize_t begin, dict queues not None, LogView log not None,
                 PullLimits limits not None, tuple codes not None, dict next_offsets not None, *,
                 int queue_count, int topic_flags, int group_flags, int64_t record_bytes_max, bint copied,
                 int64_t bytes_max):
    """Answer frames from `begin` on as far as they are one run; see _core.pyi."""
    cdef PullBatch run = PullBatch.__new__(PullBatch)
    cdef PullRequest first = frames[begin]
    cdef PullRequest request
    cdef UnitQueue queue
    cdef _PullWalk walk
    cdef int64_t next_offset
    cdef bytes head
    cdef Py_ssize_t i
    run.parts = []
    run.heads = []
    run.ranges = []
    for i in range(begin, len(frames)):
        if type(frames[i]) is not PullRequest or (run.request_count and run.total_bytes >= bytes_max):
            break
        request = frames[i]
        if request.flag & COMMAND_ONEWAY or not 0 <= request.queue_id < queue_count:
            break
        if not asks_alike(request, first):
            break
        queue = queues.get((request.topic, request.queue_id))
        if queue is None:
            break
        walk = start_walk(log, max(1, request.max_msg_nums), record_bytes_max, limits, codes, (), True)
        next_offset = walk.read(queue, limits, request.queue_offset)
        if walk.status != PULL_FOUND:
            break
        head = write_pull_response(request.serialize, request.opaque, 0, "FOUND", 0, next_offset,
                                   walk.min_offset, walk.max_offset, topic_flags, group_flags,
                                   walk.ranges.size_bytes)
        run.add(head, walk.ranges, copied)
        run.message_count += walk.count
        next_offsets[request.queue_id] = next_offset
    if run.request_count == 0:
        return None
    if copied:
        run.copy()
    return run
