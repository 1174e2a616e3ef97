# Where a mapped file has data. Holes are skipped: reading one through the mapping would take memory for it.
from _core.posix cimport SEEK_DATA, SEEK_HOLE, lseek
from libc.errno cimport ENXIO, errno
from libc.stdint cimport int64_t
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open as c_open
from posix.unistd cimport close as c_close


cdef int64_t first_set(MappedFile file, int64_t position) except -2:
    """The first position at or after `position` whose byte is not zero; -1 when none is."""
    cdef int64_t found
    cdef int fd
    if position >= file.mapped_bytes or file.base == NULL:
        return -1
    # Mostly asked unit by unit.
    if file.base[position] != 0:
        return position
    fd = c_open(file.c_path, O_RDONLY | O_CLOEXEC)
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
        end = lseek(fd, position, SEEK_DATA)
        if end < 0 and errno == ENXIO:
            return -1
        position = max(position, end)
        end = lseek(fd, position, SEEK_HOLE)
        end = file.mapped_bytes if end <= position else min(end, file.mapped_bytes)
        while position < end:
            length = min(end - position, 4096 - (position & 4095))
            if any_set(file.base + position, length):
                while file.base[position] == 0:
                    position += 1
                return position
            position += length
    return -1
