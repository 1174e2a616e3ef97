# Rows of columns become messages: the bulk way from Arrow buffers to the log, without an object for each row.
from _core.layout cimport java_hash
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from pyledger import errors

cdef enum:
    BY_FILE_BYTES = 64 << 10         # of rows; fewer are sooner in the mapping than a file is open
    NEAR_QUEUES = 64                 # whose appenders are found without asking a dictionary for each row


cdef int check_offsets(const int32_t[::1] offsets, Py_ssize_t rows, Py_ssize_t data_bytes,
                       str what) except -1:
    """Offsets of `rows` values that ascend within their data."""
    cdef Py_ssize_t i
    if offsets.shape[0] != rows + 1 or offsets[0] < 0 or offsets[rows] > data_bytes:
        raise errors.IllegalMessageError(f"{what} do not fit the number of rows")
    for i in range(rows):
        if offsets[i] > offsets[i + 1]:
            raise errors.IllegalMessageError(f"{what} do not ascend at row {i}")
    return 0


def choose_queues(const int32_t[::1] asked not None, const int32_t[::1] key_offsets not None,
                  const uint8_t[::1] keys not None, int32_t queue_count, int64_t turn):
    """The queue of each row; see _core.pyi."""
    cdef Py_ssize_t rows = asked.shape[0]
    cdef bytearray chosen = bytearray(4 * rows)
    cdef int32_t* out = <int32_t*><char*>chosen
    cdef const uint8_t* start = &keys[0] if keys.shape[0] else NULL
    cdef int64_t length
    cdef Py_ssize_t i
    if queue_count < 1:
        raise errors.IllegalMessageError(f"{queue_count} is no number of queues")
    check_offsets(key_offsets, rows, keys.shape[0], "keys")
    for i in range(rows):
        length = key_offsets[i + 1] - key_offsets[i]
        if asked[i] >= 0:
            out[i] = asked[i]
        elif length > 0:
            out[i] = <int32_t>(abs(<int64_t>java_hash(0, start + key_offsets[i], length)) % queue_count)
        else:
            out[i] = <int32_t>(turn % queue_count)
            turn += 1
    return chosen, turn


def append_rows(CommitLog log not None, str topic not None, const int32_t[::1] queue_ids not None,
                const int32_t[::1] body_offsets not None, const uint8_t[::1] bodies not None,
                const int32_t[::1] property_offsets not None, const uint8_t[::1] properties not None,
                const int64_t[::1] born_ms not None, *, int64_t store_timestamp_ms=0):
    """Append one message for each row; see _core.pyi."""
    cdef Py_ssize_t rows = queue_ids.shape[0]
    cdef const uint8_t* body = &bodies[0] if bodies.shape[0] else NULL
    cdef const uint8_t* stored = &properties[0] if properties.shape[0] else NULL
    cdef dict appenders = {}         # what `near` points to stays in it
    cdef PyObject* near[NEAR_QUEUES]
    cdef QueueAppender appender
    cdef Draft draft
    cdef _RowBatch run = None
    cdef int64_t since_yield = 0
    cdef int32_t queue_id
    cdef Py_ssize_t i
    memset(near, 0, sizeof(near))
    check_offsets(body_offsets, rows, bodies.shape[0], "bodies")
    check_offsets(property_offsets, rows, properties.shape[0], "properties")
    if born_ms.shape[0] != rows:
        raise errors.IllegalMessageError("born timestamps do not fit the number of rows")
    start_draft(&draft, log.crc_property)
    draft.store_timestamp = store_timestamp_ms
    draft.follows_clock = store_timestamp_ms == 0
    if (body_offsets[rows] - body_offsets[0] + property_offsets[rows] - property_offsets[0] >= BY_FILE_BYTES
            and not log.queue.pooled and log.entries is None):
        run = _RowBatch(log, appenders)
    try:
        for i in range(rows):
            queue_id = queue_ids[i]
            if 0 <= queue_id < NEAR_QUEUES and near[queue_id] != NULL:
                appender = <QueueAppender>near[queue_id]
            else:
                appender = appenders.get(queue_id)
                if appender is None:
                    if run is not None:
                        run.write()
                    appender = appenders[queue_id] = log.appender(topic, queue_id)
                if 0 <= queue_id < NEAR_QUEUES:
                    near[queue_id] = <PyObject*>appender
            draft.body = body + body_offsets[i]
            draft.body_bytes = body_offsets[i + 1] - body_offsets[i]
            draft.properties = stored + property_offsets[i]
            draft.properties_bytes = property_offsets[i + 1] - property_offsets[i]
            draft.born_timestamp = born_ms[i]
            if run is None:
                since_yield += log.place(&appender.template, appender, &draft, 1)
                since_yield = yield_if_due(&draft, since_yield)
            else:
                run.add(appender, &draft)
    finally:
        # Rows before one that is refused were appended.
        if run is not None:
            run.end()
    log.wake()
