# Finds the data of a mapped file, and zeroes what follows a position. Holes are skipped: reading one through
# the mapping would take memory for it.
from _core.platform cimport find_data, find_hole, sync_data
from _core.posix cimport open_regular
from libc.errno cimport EIO, ENXIO, errno
from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.fcntl cimport O_RDONLY, O_RDWR
from posix.unistd cimport close as c_close

cdef enum:
    ZERO_STEP_BYTES = 4096           # compared or zeroed at a time, so that pages of zeroes stay untouched


cdef int64_t first_set(MappedFile file, int64_t position) except -2:
    """The first position at or after `position` whose byte is not zero; -1 when none is."""
    cdef int64_t found
    cdef int fd
    if position >= file.mapped_bytes or file.base == NULL:
        return -1
    # Most callers go unit by unit.
    if file.base[position] != 0:
        return position
    fd = open_regular(file.c_path, O_RDONLY)
    if fd < 0:
        raise_errno(errno, file.path, "open")
    file.pin()
    with nogil:
        found = search_data(file, fd, position)
    c_close(fd)
    file.unpin()
    return found


cdef int64_t search_data(MappedFile file, int fd, int64_t position) noexcept nogil:
    cdef int64_t end, length
    while position < file.mapped_bytes:
        end = find_data(fd, position)
        if end < 0 and errno == ENXIO:
            return -1
        position = max(position, end)
        end = find_hole(fd, position)
        end = file.mapped_bytes if end <= position else min(end, file.mapped_bytes)
        while position < end:
            length = min(end - position, ZERO_STEP_BYTES - (position & (ZERO_STEP_BYTES - 1)))
            if any_set(file.base + position, length):
                while position < end and file.base[position] == 0:
                    position += 1
                return position
            position += length
    return -1


cdef int zero_rest(MappedFile file, int64_t position, bint sync) noexcept nogil:
    """Zero what is not zero after `position` and make that durable. 0, or an errno. Holes stay holes.

    Bytes that are zero in memory may differ on disk: where that is possible, the caller sets `sync`.
    """
    cdef int64_t begin = position
    cdef int64_t data, end, length
    cdef int failed = 0
    cdef int fd = open_regular(file.c_path, O_RDWR)
    if fd < 0:
        return errno
    # First the bytes where the next record would start: a crash in between leaves no valid record there.
    length = min(file.mapped_bytes - position, <int64_t>ZERO_STEP_BYTES)
    if length > 0 and any_set(file.base + position, length):
        memset(file.base + position, 0, <size_t>length)
        sync = True
        failed = sync_data(fd)
    while begin < file.mapped_bytes and failed == 0:
        data = find_data(fd, begin)
        if data < 0 and errno == ENXIO:
            break
        begin = max(begin, data)
        end = find_hole(fd, begin)
        end = file.mapped_bytes if end <= begin else min(end, file.mapped_bytes)
        while begin < end:
            length = min(end - begin, ZERO_STEP_BYTES - (begin & (ZERO_STEP_BYTES - 1)))
            if any_set(file.base + begin, length):
                memset(file.base + begin, 0, <size_t>length)
                sync = True
            begin += length
    if failed == 0 and sync:
        failed = sync_data(fd)
    if failed == 0 and not file.intact():
        failed = EIO
    c_close(fd)
    if file.pool != NULL:
        memset(file.pool + position, 0, <size_t>(file.size_bytes - position))
    return failed
