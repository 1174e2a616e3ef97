# Both ends of a mapped file queue: truncation after an offset, and removal of the first files.
from _core.posix cimport store_release
from libc.stdint cimport int64_t

from pyledger import errors


cdef int cut_run(MappedFileQueue queue, int64_t offset) except -1:
    """Let a queue end at an offset, durably; see `MappedFileQueue.truncate`, which holds the locks."""
    cdef MappedFile file
    cdef int64_t position
    cdef int failed = 0
    cdef list kept
    if not queue.run or offset < queue.run[0].start_offset or offset > queue.next_start():
        raise errors.OffsetOutOfRangeError(offset, -1 if not queue.run else queue.run[0].start_offset,
                                           queue.next_start())
    kept = [f for f in queue.run if f.start_offset <= offset]
    file = kept[len(kept) - 1]
    if offset < file.start_offset + queue.file_size_bytes:
        file.check_writable()
    queue.drop_files_ahead()
    for gone in reversed(queue.run[len(kept):]):
        remove_file(gone.path)
    queue.set_run(tuple(kept))
    queue.sync_names()
    position = min(offset - file.start_offset, file.size_bytes)
    with nogil:
        failed = zero_rest(file, position, True)
    if failed != 0:
        queue.fail(failed, file.path)
    sync_files(queue)
    queue.end_at(file, file.start_offset + position)
    return 0


cdef list cut_head(MappedFileQueue queue, int count):
    """Remove the first files, never the last; return their paths. Both locks are held."""
    cdef MappedFile file
    gone = queue.run[:max(0, min(count, len(queue.run) - 1))]
    for file in gone:
        remove_file(file.path)
    queue.set_run(queue.run[len(gone):])
    queue.sync_names()
    if gone:
        store_release(&queue.flushed, max(queue.flushed, <int64_t>queue.run[0].start_offset))
    for file in gone:
        file.retire()
    return [file.path for file in gone]


cdef int drop_files(MappedFileQueue queue) except -1:
    """Remove every file of a queue, the last one first, so that a crash meanwhile leaves no gap."""
    cdef MappedFile file
    with queue.roll_lock, queue.io_lock:
        queue.check_writable()
        queue.drop_files_ahead()
        gone = queue.run
        for file in reversed(gone):
            remove_file(file.path)
        queue.set_run(())
        queue.sync_names()
        store_release(&queue.flushed, 0)
        for file in gone:
            file.retire()
    return 0


cdef int make_spare(MappedFileQueue queue) except -1:
    """Have the file that follows the last one at hand. Waits without the interpreter lock."""
    with queue.roll_lock:
        queue.check_writable()
        if queue.spare is None:
            queue.spare = queue.make_file(queue.next_start())
    return 0


cdef int sync_files(MappedFileQueue queue) except -1:
    """Make durable what an earlier process may have left in the page cache."""
    cdef MappedFile file
    cdef int failed
    for file in queue.run:
        with nogil:
            failed = file.sync_whole()
        if failed != 0:
            queue.fail(failed, file.path)
    return 0
