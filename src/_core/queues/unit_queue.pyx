# UnitQueue: ordered mapped files of fixed-size units, the base of both kinds of consume queue.
# Invariants: unit n of a file is at byte n * unit_bytes; cursor.end_where is published after the unit's
# bytes, by one writer; readers never pass it; the list of files changes under the interpreter lock only.
from _core.layout cimport get_i32, get_i64
from _core.posix cimport load_acquire, store_release
from _core.status cimport STATUS_END_OF_FILE, STATUS_IO_ERROR
from libc.stdint cimport int32_t, int64_t, uint8_t

import os

from pyledger import errors


cdef str queue_folder(str folder, str topic, object queue_id):
    """Path of a queue's folder. Topics come from outside: none may lead out of the store."""
    if (not topic or topic in (".", "..") or "/" in topic or "\0" in topic
            or len(topic.encode("utf-8", "surrogateescape")) > 255):
        raise errors.IllegalMessageError(f"topic {topic!r} cannot name a folder")
    if queue_id < 0:
        raise errors.IllegalMessageError(f"queue id {queue_id} of topic {topic!r} is negative")
    return os.path.join(folder, topic, str(queue_id))


cdef int make_folders(str folder) except -1:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise_errno(error.errno, folder, "create")
    return 0


cdef int make_names_durable(str folder) except -1:
    cdef bytes path = folder.encode("utf-8", "surrogateescape")
    cdef const char* c_path = path
    cdef int failed
    with nogil:
        failed = sync_folder(c_path)
    if failed != 0:
        raise_errno(failed, folder, "make names durable in")
    return 0


cdef list list_units_files(str folder):
    """(start offset, path, size) of files with 20-digit names, in order; others are not ours."""
    found = []
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return found
    for entry in entries:
        if len(entry.name) == 20 and entry.name.isdecimal() and entry.name.isascii() and entry.is_file():
            start = int(entry.name)
            if start < 1 << 62:
                found.append((start, entry.path, entry.stat().st_size))
    return sorted(found)


cdef int64_t guess_file_size(list found, int unit_bytes):
    """The size that files were made with, from names and sizes; wrong only for a lone truncated file."""
    steps = [b[0] - a[0] for a, b in zip(found, found[1:], strict=False) if (b[0] - a[0]) % unit_bytes == 0]
    if steps:
        return min(steps)
    return max([size for _, _, size in found], default=0) // unit_bytes * unit_bytes


cdef class UnitQueue:
    """Files of fixed-size units of one topic and queue. See ConsumeQueue and BatchConsumeQueue."""

    cdef readonly str folder
    cdef readonly str topic
    cdef readonly int queue_id
    cdef readonly int64_t file_size_bytes
    cdef readonly bint readonly
    cdef readonly list files
    cdef readonly int64_t min_where     # bytes: first unit that names a record of the log
    cdef UnitCursor cursor
    cdef bytes cursor_path
    cdef bint folder_changed            # names here may not be durable
    cdef readonly bint incomplete       # had units that `recover` could not keep, or files that are gone
    cdef bint closed
    cdef readonly bint parked           # files may be unmapped until somebody needs a unit
    cdef bint bounded                   # positions of files are known: before, they are at the files' ends
    cdef bint used                      # since `park` came by
    cdef int64_t seen_where             # the end then
    cdef int generation

    cdef int _open(self, str folder, str topic, int queue_id, object file_size_bytes, bint readonly,
                   int unit_bytes) except -1:
        self.generation = fork_generation
        self.folder = queue_folder(folder, topic, queue_id)
        self.topic = topic
        self.queue_id = queue_id
        self.readonly = readonly
        # What is found may be of a process that was killed before it made the names durable.
        self.folder_changed = not readonly
        self.cursor.unit_bytes = unit_bytes
        self.cursor.max_physical_offset = -1
        found = list_units_files(self.folder)
        if readonly:
            self.file_size_bytes = file_size_bytes or guess_file_size(found, unit_bytes)
        else:
            self.file_size_bytes = (file_size_bytes + unit_bytes - 1) // unit_bytes * unit_bytes
            self._check_sizes(found)
        self.files = [self._map(path, size) for _, path, size in found if size >= unit_bytes]
        self._end_at_missing_file()
        self._enter_last_file()
        return 0

    cdef int _check_sizes(self, list found) except -1:
        if found and found[len(found) - 1][2] == 0:
            os.unlink(found.pop()[1])
        for start, path, size in found:
            if size != self.file_size_bytes or start % self.cursor.unit_bytes:
                raise errors.StoreFormatError(
                    path, f"a queue file of {size} bytes where {self.file_size_bytes} are configured",
                    "set the size that the store was made with, or rebuild with `pyledger rebuild`")
        return 0

    cdef MappedFile _map(self, str path, int64_t size_bytes):
        if self.readonly:
            return MappedFile.open(path, size_bytes=self.file_size_bytes)
        self.parked = True
        return MappedFile.open_unmapped(path, size_bytes, allocate_chunk_bytes=SMALL_CHUNK_BYTES)

    cdef int _end_at_missing_file(self) except -1:
        """Drop the units after a missing or truncated file: no lookup reaches them, and the log has them."""
        cdef MappedFile file
        cdef int64_t expected
        keep = []
        expected = (<MappedFile>self.files[0]).start_offset if self.files else 0
        for file in self.files:
            if file.start_offset != expected:
                break
            keep.append(file)
            if file.mapped_bytes != self.file_size_bytes:
                break
            expected += file.mapped_bytes
        if len(keep) < len(self.files):
            self.incomplete = True
            if not self.readonly:
                self._remove_files(self.files[len(keep):])
        self.files = keep
        return 0

    cdef int _remove_files(self, list files) except -1:
        # Unlinked, not unmapped: views that readers hold stay good until they are released.
        for file in files:
            remove_file((<MappedFile>file).path)
        if files:
            make_names_durable(self.folder)
        return 0

    cdef MappedFile last_file(self):
        return <MappedFile>self.files[len(self.files) - 1]

    cdef int _enter_last_file(self) except -1:
        """Point the cursor at the last file, at the position its MappedFile has."""
        cdef MappedFile file
        self.cursor.file_size = self.file_size_bytes
        self.cursor.reserved = 0
        if not self.files:
            self.cursor.base = NULL
            self.cursor.position = 0
            store_release(&self.cursor.end_where, 0)
            return 0
        file = self.last_file()
        self.cursor_path = file.path.encode("utf-8", "surrogateescape")
        self.cursor.path = self.cursor_path
        self.cursor.base = file.base
        self.cursor.reserved = file.allocated
        self.cursor.wrote = &file.wrote
        self.cursor.committed = &file.committed
        self.cursor.position = file.wrote // self.cursor.unit_bytes * self.cursor.unit_bytes
        store_release(&self.cursor.end_where, file.start_offset + self.cursor.position)
        return 0

    cdef int _add_file(self, int64_t start) except -1:
        cdef MappedFile file
        make_folders(self.folder)
        file = MappedFile.create(os.path.join(self.folder, f"{start:020d}"), self.file_size_bytes,
                                 allocate_chunk_bytes=SMALL_CHUNK_BYTES)
        read_ahead(file.base, file.mapped_bytes, 0)
        self.folder_changed = True
        self.files = [*self.files, file]
        self._enter_last_file()
        return 0

    cdef int _check_writable(self) except -1:
        if self.closed or self.generation != fork_generation:
            raise errors.StoreClosedError(self.folder)
        if self.readonly:
            raise errors.ReadOnlyStoreError(self.folder)
        return 0

    cdef int _make_space(self, int status, int64_t queue_offset, int64_t physical_offset) except -1:
        """Provide what a nogil put needs; the caller then puts again."""
        self._check_writable()
        if status == STATUS_END_OF_FILE:
            if self.parked and self.cursor.base == NULL:
                self._unpark()
            elif self.cursor.base == NULL:
                self._add_file(0)
            elif self.cursor.position + self.cursor.unit_bytes > self.file_size_bytes:
                # Else a reader has mapped the files since the put found none: it is tried again.
                self._add_file(self.last_file().start_offset + self.file_size_bytes)
        elif status == STATUS_IO_ERROR:
            raise_errno(self.cursor.error, self.folder, "allocate space for")
        return 0

    def park(self, *, bint at_once=False):
        """Unmap the files until somebody needs a unit, unless they were needed since the last call."""
        cdef MappedFile file
        cdef int64_t end = self.cursor.end_where
        if self.readonly or self.closed:
            return
        if not at_once and (self.used or self.seen_where != end):
            self.used = False
            self.seen_where = end
            return
        for file in self.files:
            if file.let_go():
                self.parked = True
        if self.files and self.last_file().base == NULL:
            self.cursor.base = NULL

    cdef int _unpark(self) except -1:
        cdef MappedFile file
        self.used = True
        if not self.parked:
            return 0
        for file in self.files:
            file.map_again()
            read_ahead(file.base, file.mapped_bytes, file.wrote if self.bounded else 0)
        self.parked = False
        if self.files:
            self.cursor.base = self.last_file().base
        return 0

    cdef const uint8_t* unit_at(self, int64_t where, int64_t* available) except? NULL:
        """The unit at a byte offset and the bytes readable from there in its file; NULL outside the queue."""
        cdef int64_t end = load_acquire(&self.cursor.end_where)
        cdef MappedFile file
        cdef int64_t first, index
        cdef list files = self.files
        if where < 0 or where >= end or not files or self.file_size_bytes == 0:
            return NULL
        file = <MappedFile>files[0]
        first = file.start_offset
        if where < first:
            return NULL
        index = (where - first) // self.file_size_bytes
        if index >= len(files):
            return NULL
        file = <MappedFile>files[index]
        available[0] = min(end - where, file.start_offset + file.mapped_bytes - where)
        self.used = True
        if file.base == NULL and self.parked:
            self._unpark()
        if file.base == NULL or available[0] < self.cursor.unit_bytes:
            return NULL
        available[0] -= available[0] % self.cursor.unit_bytes
        ASSERT(where >= file.start_offset)
        ASSERT(where - file.start_offset + available[0] <= file.mapped_bytes)
        return file.base + (where - file.start_offset)

    cdef int check_intact(self) except -1:
        """Raise when units that were read are not the files': before any of them is given away."""
        cdef MappedFile file
        if damaged_mappings != 0:
            for file in self.files:
                file.check_intact()
        return 0

    cdef int64_t first_where(self) noexcept:
        return (<MappedFile>self.files[0]).start_offset if self.files else 0

    cdef object view_units_at(self, int64_t where, int64_t count):
        """Raw units as one memoryview, ending at the file's end."""
        cdef int64_t available = 0
        cdef int64_t length
        cdef MappedFile file
        if count <= 0 or self.unit_at(where, &available) == NULL:
            return memoryview(b"")
        file = <MappedFile>self.files[(where - self.first_where()) // self.file_size_bytes]
        length = min(available, min(count, available) * self.cursor.unit_bytes)
        return memoryview(file)[where - file.start_offset:where - file.start_offset + length]

    cdef int _set_end(self, int64_t end_where) except -1:
        """Truncate the queue; a writable one durably, without leftover bytes that could be read as a unit."""
        cdef MappedFile file
        keep = [f for f in self.files if (<MappedFile>f).start_offset < end_where]
        if not keep and self.first_where() > 0:
            keep = self.files[:1]        # only its name has the queue's offsets
        gone = self.files[len(keep):]
        self.files = keep
        self.bounded = True
        if keep:
            file = self.last_file()
            end_where = max(end_where, file.start_offset)
            store_release(&file.wrote, end_where - file.start_offset)
            store_release(&file.committed, end_where - file.start_offset)
            file.flushed = min(file.flushed, file.wrote)
            read_ahead(file.base, file.mapped_bytes, file.wrote)
        self._enter_last_file()
        if not self.readonly:
            self._remove_files(gone)
            if keep:
                self._zero_tail()
        return 0

    def remove_files(self):
        """Delete all files, so that a queue whose first files are lost can be rebuilt from the log."""
        self._check_writable()
        gone = self.files
        self.files = []
        self._enter_last_file()
        self.cursor.max_physical_offset = -1
        self.cursor.next_queue_offset = 0
        self.min_where = 0
        self.incomplete = True
        self._remove_files(gone)

    cdef int64_t _count_dropped(self, int64_t good, int64_t limit) except -1:
        """Units after `good` that are not empty; also record whether the queue had more units than before it.

        Units that point beyond the log's end (`limit`) remain after a crash; they do not count as missing.
        """
        cdef MappedFile file
        cdef const uint8_t* unit
        cdef int64_t where = good
        cdef int64_t at
        cdef int64_t count = 0
        cdef int32_t size
        self._unpark()
        for file in self.files:
            at = max(good, file.start_offset) - file.start_offset
            while at < file.mapped_bytes:
                at = first_set(file, at)
                if at < 0:
                    break
                at -= at % self.cursor.unit_bytes
                if at + self.cursor.unit_bytes > file.mapped_bytes:
                    break
                unit = file.base + at
                size = get_i32(unit + 8)
                count += 1
                if where != file.start_offset + at or size <= 0 or get_i64(unit) <= limit - size:
                    self.incomplete = True
                at += self.cursor.unit_bytes
                where = file.start_offset + at
        if self.files and good == self.first_where():
            self.incomplete = True       # a queue is made for its first unit
        self.check_intact()
        return count

    cdef int _zero_tail(self) except -1:
        cdef MappedFile file = self.last_file()
        cdef int failed
        self._unpark()
        file.pin()
        with nogil:
            failed = zero_rest(file, self.cursor.position, False)
        file.unpin()
        if failed != 0:
            raise_errno(failed, self.folder, "make the truncation durable in")
        return 0

    @property
    def max_physical_offset(self):
        return self.cursor.max_physical_offset

    @property
    def end_where(self):
        return load_acquire(&self.cursor.end_where)

    @property
    def filled_units(self):
        return self.cursor.filled_units

    @property
    def flushed_where(self):
        cdef MappedFile file
        for file in self.files:
            if file.flushed < file.size_bytes:
                return file.start_offset + file.flushed
        return self.first_where() + len(self.files) * self.file_size_bytes

    def flush_is_due(self, int64_t least_pages):
        """Whether `flush` would do something."""
        cdef MappedFile file
        if self.readonly or self.closed:
            return False
        for file in self.files:
            if flush_is_due(load_acquire(&file.wrote), file.flushed, file.size_bytes, least_pages):
                return True
        return self.folder_changed and least_pages == 0 and bool(self.files)

    def begin_flush(self):
        """Start an external flush; return the byte offset up to which it will make units durable."""
        self.folder_changed = False
        return self.end_where

    def end_flush(self, int64_t end_where):
        """Everything below `end_where` is durable."""
        cdef MappedFile file
        cdef int64_t position
        for file in self.files:
            position = min(end_where - file.start_offset, file.size_bytes)
            if position > file.flushed:
                store_release(&file.flushed, position)

    def flush(self, int64_t least_pages=0):
        """Make units durable when `least_pages` pages are dirty or a file is full; True if it did."""
        cdef MappedFile file
        done = False
        if self.readonly or self.closed:
            return False
        for file in list(self.files):
            if flush_is_due(load_acquire(&file.wrote), file.flushed, file.size_bytes, least_pages):
                file.flush()
                done = True
        if self.folder_changed and self.files and (done or least_pages == 0):
            self.folder_changed = False
            topic_folder = os.path.dirname(self.folder)
            for path in (self.folder, topic_folder, os.path.dirname(topic_folder)):
                make_names_durable(path)
        return done

    def sync(self):
        """Make all files and names durable, including writes of an earlier process that was killed."""
        cdef MappedFile file
        cdef int failed
        for file in list(self.files):
            file.pin()
            with nogil:
                failed = file.sync_whole()
            file.unpin()
            if failed != 0:
                raise errors.StoreFailedError(file.path) from OSError(failed, "sync failed", file.path)
        self.flush(0)

    def close(self):
        """Let the files go. Units viewed before stay readable until their views are released."""
        self.closed = True
        self.cursor.base = NULL
        self.cursor.end_where = 0
        self.files = []

    cdef list _delete_head(self):
        """Remove files whose units are all below `min_where`; never the last file."""
        cdef MappedFile file
        gone = []
        for file in self.files[:max(len(self.files) - 1, 0)]:
            if file.start_offset + self.file_size_bytes > self.min_where:
                break
            gone.append(file)
        self.files = self.files[len(gone):]
        self._remove_files(gone)
        return [(<MappedFile>file).path for file in gone]
