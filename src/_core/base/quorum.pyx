# quorum_index: the highest index that a majority holds. Small groups are sorted on the stack; the signature
# takes a list because getting a buffer would cost more than the work.
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLong
from libc.stdint cimport int64_t

from pyledger import errors

cdef enum:
    STACK_VOTERS_MAX = 15


def quorum_index(list water_marks not None, Py_ssize_t voters):
    """Highest index held by a majority of `voters`; see _core.pyi."""
    cdef Py_ssize_t count = PyList_GET_SIZE(water_marks)
    cdef Py_ssize_t i, place
    cdef int64_t mark
    cdef int64_t[STACK_VOTERS_MAX] marks
    if voters < 1 or voters != count:
        raise errors.InvariantError(f"{voters} voters, but {count} water marks")
    if count > STACK_VOTERS_MAX:
        return sorted(water_marks, reverse=True)[count // 2]
    for i in range(count):
        mark = PyLong_AsLongLong(<object>PyList_GET_ITEM(water_marks, i))
        place = i
        while place > 0 and marks[place - 1] < mark:
            marks[place] = marks[place - 1]
            place -= 1
        marks[place] = mark
    # Descending order: count // 2 + 1 voters hold this index or a higher one, which is a majority.
    return marks[count // 2]
