# The answers that a client gets by the million, decoded straight from a receive buffer. Each is handed to
# the request that it answers; every other frame stays as it is for Python.
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject, PyObject_GenericSetAttr
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    # ResponseCode
    CODE_FOUND = 0
    CODE_NOT_FOUND = 19
    CODE_RETRY_IMMEDIATELY = 20
    CODE_OFFSET_MOVED = 21

# Results are Python classes above this module in the order of imports, so they are handed in.
cdef object _result_class = None
cdef object _status_ok = None


def set_send_result(result_class, status_ok):
    """Name the class of a send's result, and the status of one that went well."""
    global _result_class, _status_ok
    _result_class = result_class
    _status_ok = status_ok


cdef object send_result(PendingSend out, const CommandHead* head):
    """Decode the response to a successful send; None if Python must decode it."""
    cdef const TextSpan* msg_id = NULL
    cdef const TextSpan* queue_id = NULL
    cdef const TextSpan* queue_offset = NULL
    cdef const TextSpan* transaction_id = NULL
    cdef const TextSpan* recall_handle = NULL
    cdef int32_t i, queue = 0
    cdef int64_t offset = 0
    for i in range(head.count):
        if span_is(&head.keys[i], b"msgId"):
            msg_id = &head.values[i]
        elif span_is(&head.keys[i], b"queueId"):
            queue_id = &head.values[i]
        elif span_is(&head.keys[i], b"queueOffset"):
            queue_offset = &head.values[i]
        elif span_is(&head.keys[i], b"transactionId"):
            transaction_id = &head.values[i]
        elif span_is(&head.keys[i], b"recallHandle"):
            recall_handle = &head.values[i]
    if head.code != 0 or msg_id == NULL or queue_id == NULL or queue_offset == NULL or out.target is None:
        return None
    if not parse_i32(queue_id, &queue) or not parse_i64(queue_offset, &offset):
        return None
    if queue != out.target.queue_id:
        return None
    place = span_value(msg_id)
    if place is None or _result_class is None:
        return None
    result = _result_class.__new__(_result_class)
    PyObject_GenericSetAttr(result, "status", _status_ok)
    PyObject_GenericSetAttr(result, "unique_key", out.unique_key)
    PyObject_GenericSetAttr(result, "offset_msg_id", place)
    PyObject_GenericSetAttr(result, "queue", out.target)
    PyObject_GenericSetAttr(result, "queue_offset", offset)
    PyObject_GenericSetAttr(result, "transaction_id",
                            None if transaction_id == NULL else span_value(transaction_id))
    PyObject_GenericSetAttr(result, "recall_handle",
                            None if recall_handle == NULL else span_value(recall_handle))
    return result


@cython.final
cdef class PullFuture(ResponseFuture):
    """A pull in flight; see _core.pyi."""

    cdef readonly int32_t code
    cdef readonly int64_t suggest_which_broker_id
    cdef readonly int64_t next_begin_offset
    cdef readonly int64_t min_offset
    cdef readonly int64_t max_offset
    cdef readonly int64_t offset_delta
    cdef readonly bytes body

    cdef bint read(self, const CommandHead* head, const uint8_t* body, int64_t body_bytes):
        """Decode a response; False if Python must decode it."""
        cdef int32_t i
        cdef int found = 0
        if head.code not in (CODE_FOUND, CODE_NOT_FOUND, CODE_RETRY_IMMEDIATELY, CODE_OFFSET_MOVED):
            return False
        for i in range(head.count):
            if span_is(&head.keys[i], b"suggestWhichBrokerId"):
                found += parse_i64(&head.values[i], &self.suggest_which_broker_id)
            elif span_is(&head.keys[i], b"nextBeginOffset"):
                found += parse_i64(&head.values[i], &self.next_begin_offset)
            elif span_is(&head.keys[i], b"minOffset"):
                found += parse_i64(&head.values[i], &self.min_offset)
            elif span_is(&head.keys[i], b"maxOffset"):
                found += parse_i64(&head.values[i], &self.max_offset)
            elif span_is(&head.keys[i], b"offsetDelta"):
                if not parse_i64(&head.values[i], &self.offset_delta):
                    return False
        if found != 4:
            return False
        self.code = head.code
        self.body = PyBytes_FromStringAndSize(<const char*>body, body_bytes)
        return True


cdef object answered_call(const uint8_t* frame, int64_t size, dict calls):
    """Remove from the table the request that a frame answers, with its result; None if Python must do it."""
    cdef CommandHead head
    cdef int64_t at_body = 0
    cdef PyObject* found
    if not read_command_head(frame, size, &head, &at_body) or not head.flag & COMMAND_RESPONSE:
        return None
    opaque = <object>head.opaque
    found = PyDict_GetItem(calls, opaque)
    if found == NULL:
        return None
    call = <object>found
    if type(call) is PendingSend:
        result = send_result(<PendingSend>call, &head)
        if result is None:
            return None
        (<PendingSend>call).result = result
    elif type(call) is PullFuture:
        if not (<PullFuture>call).read(&head, frame + at_body, size - at_body):
            return None
    elif type(call) is not AppendFuture:
        return None
    elif not (<AppendFuture>call).read(&head, frame + at_body, size - at_body):
        return None
    del calls[opaque]
    return call
