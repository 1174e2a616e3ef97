# ReplicaLog: the end of a slave's commit log. Bytes come from a master as they stand there, cut anywhere, and
# are written at exactly the log's end. What stands there is checked to be records before it counts as whole.
# Invariants: whole <= wrote_where, both only grow but for `cut_partial`; one thread appends. Readers, the
# dispatcher and the flush see what is whole alone.
from _core.layout cimport PARSED_BLANK, PARSED_RECORD, PARSED_SHORT, Record, parse_record
from _core.posix cimport load_acquire, store_release
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from pyledger import errors


cdef class ReplicaLog:
    """Appends a master's bytes to a commit log; see _core.pyi."""

    cdef readonly MappedFileQueue queue
    cdef int64_t whole
    cdef int64_t last_store_timestamp

    def __init__(self, MappedFileQueue queue not None):
        self.queue = queue
        self.whole = queue.wrote_where

    @property
    def whole_where(self):
        return load_acquire(&self.whole)

    @property
    def last_store_timestamp_ms(self):
        return load_acquire(&self.last_store_timestamp)

    def append(self, int64_t offset, data):
        """Write a master's bytes at a physical offset, which must be the log's end; the new end (bytes)."""
        cdef MappedFileQueue queue = self.queue
        cdef Py_buffer view
        cdef MappedFile file = queue.last
        cdef int64_t position
        queue.check_writable()
        if file is None:
            if offset < 0 or offset % queue.file_size_bytes:
                raise errors.OffsetOutOfRangeError(offset, 0, 0)
        elif offset != queue.wrote_where:
            raise errors.OffsetOutOfRangeError(offset, queue.min_offset, queue.wrote_where)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len == 0:
                return offset
            file = queue.writable_file(offset)
            if self.whole < file.start_offset and file.wrote == 0:
                self.whole = file.start_offset
            position = file.wrote
            if view.len > file.size_bytes - position:
                self.raise_other_size(file)
            if position + view.len > file.allocated:
                file.reserve(position + view.len)
            memcpy(file.write_base() + position, view.buf, <size_t>view.len)
            try:
                self.walk(file, position + view.len)
            except BaseException:
                memset(file.write_base() + position, 0, <size_t>view.len)
                raise
            store_release(&file.wrote, position + view.len)
            if file.pool == NULL:
                store_release(&file.committed, self.whole - file.start_offset)
        finally:
            PyBuffer_Release(&view)
        return queue.wrote_where

    def cut_partial(self):
        """Take back the bytes behind the last whole record, durably; how many there were."""
        cdef int64_t rest = self.queue.wrote_where - self.whole
        if rest > 0:
            self.queue.truncate(self.whole)
        return max(<int64_t>0, rest)

    cdef int walk(self, MappedFile file, int64_t end) except -1:
        """Go over the records that are whole now that a file's bytes go up to `end`, a position."""
        cdef Record record
        cdef int64_t position = self.whole - file.start_offset
        cdef const uint8_t* base = file.write_base()
        cdef int64_t timestamp = self.last_store_timestamp
        cdef int status = PARSED_RECORD
        while position < end:
            record.size_bytes = 0
            status = parse_record(base + position, end - position, &record)
            if status == PARSED_SHORT and record.size_bytes <= file.size_bytes - position:
                break
            if status == PARSED_BLANK:
                if position + record.size_bytes != file.size_bytes:
                    self.raise_other_size(file)
                if end == file.size_bytes:
                    position = end
                break
            if status != PARSED_RECORD or record.physical_offset != file.start_offset + position:
                raise errors.CorruptRecordError(file.path, file.start_offset + position,
                                                "the master's bytes are no record that belongs here")
            timestamp = max(timestamp, record.store_timestamp)
            position += record.size_bytes
        store_release(&self.last_store_timestamp, timestamp)
        store_release(&self.whole, file.start_offset + position)
        return 0

    cdef int raise_other_size(self, MappedFile file) except -1:
        raise errors.StoreFormatError(
            file.path, f"is {file.size_bytes} bytes long, but the master's files have another size",
            "set mappedFileSizeCommitLog to the master's, and empty this slave")
