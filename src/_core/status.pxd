cdef extern from "base/checks.h" nogil:
    # Ends the process of a checked build where the condition does not hold.
    void ASSERT(bint condition)

# Negative results of C-level functions. Only status.pyx turns them into exceptions.
cdef enum:
    STATUS_OK = 0
    STATUS_END_OF_FILE = -1          # no space in this file: roll to the next; never an exception
    STATUS_IO_ERROR = -2             # errno has the reason
    STATUS_STORE_FULL = -3           # no space at allocation
    STATUS_STORE_FAILED = -4         # an earlier flush failed
    STATUS_CLOSED = -5
    STATUS_RECORD_TOO_LARGE = -6
    STATUS_PROPERTIES_TOO_LARGE = -7
    STATUS_OUT_OF_RANGE = -8
    STATUS_READ_ONLY = -9
