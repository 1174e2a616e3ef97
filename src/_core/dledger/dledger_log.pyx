# DLedgerLog: the data files and index files of a DLedger log, appended to and read together.
# The interpreter lock is the append lock: `make_space` may release it, so an entry's index and offset are
# chosen after it. Invariant: entries begin_index..end_index are contiguous, each has its unit at index * 32,
# and end_index is published after the bytes of both.
from _core.layout cimport PARSED_RECORD, get_i32, put_i32, put_i64
from _core.dledger_layout cimport (ENTRY_BYTES_MAX, ENTRY_FILLER, ENTRY_HEAD_BYTES, ENTRY_NORMAL,
                                   FILLER_BYTES_MIN, INDEX_UNIT_BYTES, Entry, parse_entry, put_entry_head,
                                   put_index_unit)
from _core.posix cimport open_regular
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.fcntl cimport O_WRONLY
from posix.unistd cimport close as c_close, pwrite

cimport cython

from pyledger import errors

cdef enum:
    STAGE_BYTES = 256 << 10          # bytes of entries that are written with one system call


@cython.final
cdef class DLedgerLog:
    """The log of one member of a DLedger group."""

    cdef readonly MappedFileQueue data
    cdef readonly MappedFileQueue units
    cdef readonly int64_t begin_index    # of the first entry; end_index + 1 when there is none
    cdef readonly int64_t end_index      # -1: nothing was ever appended
    cdef readonly int64_t end_term
    cdef readonly bint seal
    cdef public int64_t term             # of entries that `CommitLog` makes
    cdef readonly int64_t patch_at       # where in a body its physical offset is written; -1: nowhere
    # A batch is encoded here and written with one `pwrite`, which costs little more for many pages than for a
    # few; writing to the mapping costs a page fault for each page, and another one after each flush.
    # No reader sees an entry that is only here: end_index is raised after the bytes are in the file.
    # The buffer is empty, and stays empty, wherever the interpreter lock may be released, so that entries of
    # other threads never become part of this batch.
    cdef uint8_t* stage
    cdef int64_t staged_bytes
    cdef int64_t staged_count
    cdef int64_t staged_term             # of the last one
    cdef bint staging
    cdef MappedFile staged_for           # the file that `stage_fd` writes to
    cdef int stage_fd

    def __cinit__(self, MappedFileQueue data not None, MappedFileQueue units not None, *, bint seal=True,
                  int64_t patch_at=-1):
        self.data = data
        self.units = units
        self.seal = seal
        self.patch_at = patch_at
        self.end_index = self.end_term = -1
        self.stage_fd = -1

    def __dealloc__(self):
        free(self.stage)
        self.let_go()

    def set_range(self, int64_t begin_index, int64_t end_index, int64_t end_term):
        """Set what the files hold, after recovery, truncation or removal of files."""
        self.let_go()
        self.begin_index = begin_index
        self.end_index = end_index
        self.end_term = end_term

    @property
    def end_offset(self):
        """Where the next entry starts, or the filler before it (bytes)."""
        return self.data.readable_end()

    def close(self):
        """Close data and index; nothing can be appended or read any more."""
        self.let_go()
        self.data.close()
        self.units.close()

    cdef void let_go(self) noexcept:
        """Keep no file open: a removed file that is open still takes space on the disk."""
        if self.stage_fd >= 0:
            c_close(self.stage_fd)
        self.stage_fd = -1
        self.staged_for = None

    def clear(self):
        """Remove all files: the log is as one where nothing was ever appended."""
        drop_files(self.units)
        drop_files(self.data)
        self.set_range(0, -1, -1)

    def clear_units(self):
        """Remove all index files; `start_units` and `put_units` make new ones."""
        drop_files(self.units)

    # -- appending

    cdef int64_t body_bytes_max(self) noexcept:
        """Longest body that an entry here can have."""
        return min(<int64_t>ENTRY_BYTES_MAX, self.data.file_size_bytes - FILLER_BYTES_MIN) - ENTRY_HEAD_BYTES

    def append_many(self, int64_t term, bodies not None):
        """Append entries as a leader; return their offsets."""
        cdef Entry entry
        cdef Py_buffer view
        cdef int64_t limit = self.body_bytes_max()
        cdef list places = []
        for body in bodies:
            if len(body) > limit:
                raise errors.RecordTooLargeError("the body of an entry", len(body), limit)
        entry.term = term
        entry.magic = ENTRY_NORMAL
        self.begin_run()
        try:
            for body in bodies:
                entry.channel = entry.chain_crc = entry.body_crc = 0
                PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
                try:
                    self.put_next(&entry, <const uint8_t*>view.buf, view.len, -1)
                finally:
                    PyBuffer_Release(&view)
                places.append(entry.pos)
        finally:
            self.end_run()
        return places

    def append_bodies(self, int64_t term, data not None):
        """Append the bodies that each have their length (i32) before them; see _core.pyi."""
        cdef Entry entry
        cdef Py_buffer view
        cdef const uint8_t* p
        cdef int64_t at
        cdef int64_t size_bytes = 0
        cdef int64_t limit = self.body_bytes_max()
        cdef bint writes
        cdef list places = []
        entry.term = term
        entry.magic = ENTRY_NORMAL
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self.begin_run()
        try:
            for writes in (False, True):
                at = 0
                while at < view.len:
                    p = <const uint8_t*>view.buf + at
                    size_bytes = get_i32(p) if view.len - at >= 4 else -1
                    if not 0 <= size_bytes <= view.len - at - 4:
                        raise errors.InvariantError("the lengths of bodies do not add up; use count_bodies")
                    if size_bytes > limit:
                        raise errors.RecordTooLargeError("the body of an entry", size_bytes, limit)
                    at += 4 + size_bytes
                    if writes:
                        entry.channel = entry.chain_crc = entry.body_crc = 0
                        self.put_next(&entry, p + 4, size_bytes, -1)
                        places.append(entry.pos)
        finally:
            self.end_run()
            PyBuffer_Release(&view)
        return places

    def append_batch(self, data not None):
        """Append entries of a leader as `read_batch` gives them; see _core.pyi."""
        cdef Entry entry
        cdef Py_buffer view
        cdef int64_t at = 0
        cdef int64_t count = 0
        cdef int32_t size_bytes
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self.begin_run()
        try:
            while parse_entry(<const uint8_t*>view.buf + at, view.len - at, &entry) == PARSED_RECORD:
                if entry.index != self.next_index():
                    break
                if is_sealed(&entry) and entry_body_crc(entry.body, entry.body_bytes) != entry.body_crc:
                    break
                size_bytes = entry.size_bytes
                self.put_next(&entry, entry.body, entry.body_bytes, entry.pos)
                count += 1
                at += size_bytes
        except (errors.EntryPositionError, errors.RecordTooLargeError):
            return count
        except errors.StoreFullError:
            if not count:
                raise
        finally:
            self.end_run()
            PyBuffer_Release(&view)
        return count

    def append_entry(self, int64_t index, int64_t term, int64_t pos, int magic, int channel, int chain_crc,
                     int body_crc, body):
        """Append an entry of a leader; it must be the next one and land where the leader has it."""
        cdef Entry entry
        cdef Py_buffer view
        if index != self.end_index + 1:
            raise errors.OffsetOutOfRangeError(index, self.end_index + 1, self.end_index + 1)
        entry.term = term
        entry.magic = magic
        entry.channel = channel
        entry.chain_crc = chain_crc
        entry.body_crc = body_crc
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        self.end_run()
        try:
            self.put_next(&entry, <const uint8_t*>view.buf, view.len, pos)
        finally:
            PyBuffer_Release(&view)

    cdef int put_next(self, Entry* e, const uint8_t* body, Py_ssize_t size_bytes, int64_t pos) except -1:
        """Write an entry and its unit. `pos` -1: any offset, as the entry is our own."""
        cdef MappedFile file
        cdef uint8_t* where
        cdef int64_t epoch
        if size_bytes > ENTRY_BYTES_MAX - ENTRY_HEAD_BYTES:
            raise errors.RecordTooLargeError("the body of an entry", size_bytes,
                                             ENTRY_BYTES_MAX - ENTRY_HEAD_BYTES)
        e.body_bytes = <int32_t>size_bytes
        e.size_bytes = <int32_t>(size_bytes + ENTRY_HEAD_BYTES)
        self.make_space(e.size_bytes, 1, pos)
        file = self.data.last
        e.index = self.next_index()
        e.pos = file.start_offset + file.wrote + self.staged_bytes
        if self.staged_bytes + e.size_bytes > STAGE_BYTES:
            self.write_staged()
        epoch = self.data.append_epoch
        if self.staging and e.size_bytes <= STAGE_BYTES:
            where = self.stage + self.staged_bytes
        else:
            ASSERT(self.staged_bytes == 0 and file.wrote + e.size_bytes <= file.allocated)
            where = file.base + file.wrote
        memcpy(where + ENTRY_HEAD_BYTES, body, <size_t>size_bytes)
        if pos < 0 and 0 <= self.patch_at <= size_bytes - 8:
            put_i64(where + ENTRY_HEAD_BYTES + self.patch_at, e.pos + ENTRY_HEAD_BYTES)
        self.finish(e, where, epoch)
        return 0

    cdef int enter(self, int64_t epoch, int64_t position, int64_t size_bytes) except -1:
        """Make an entry of the own term of a body that is already written, by adding its head at `position`
        of the last file. `has_space` must be true."""
        cdef MappedFile file = self.data.last
        cdef Entry entry
        ASSERT(self.staged_bytes == 0)
        entry.magic = ENTRY_NORMAL
        entry.index = self.end_index + 1
        entry.term = self.term
        entry.pos = file.start_offset + position
        entry.channel = entry.chain_crc = entry.body_crc = 0
        entry.body_bytes = <int32_t>size_bytes
        entry.size_bytes = <int32_t>(size_bytes + ENTRY_HEAD_BYTES)
        self.finish(&entry, file.base + position, epoch)
        return 0

    cdef int finish(self, Entry* e, uint8_t* where, int64_t epoch) except -1:
        """Write the head before a body, and the unit, then publish both. `epoch` is that of the decision."""
        cdef MappedFile file = self.data.last
        cdef MappedFile unit_file
        if self.units.last.wrote == self.units.last.size_bytes:
            self.units.take_spare()
        unit_file = self.units.last
        ASSERT(unit_file.start_offset + unit_file.wrote == e.index * INDEX_UNIT_BYTES)
        ASSERT(unit_file.wrote + INDEX_UNIT_BYTES <= unit_file.allocated)
        if self.seal and e.chain_crc == 0 and e.body_crc == 0:
            e.body_crc = entry_body_crc(where + ENTRY_HEAD_BYTES, e.body_bytes)
            put_entry_head(where, e)
            e.chain_crc = seal_of(where)
        put_entry_head(where, e)
        put_index_unit(unit_file.base + unit_file.wrote, e, e.pos)
        self.units.publish(unit_file, unit_file.wrote + INDEX_UNIT_BYTES, self.units.append_epoch)
        if self.staging and self.stage <= where < self.stage + STAGE_BYTES:
            ASSERT(epoch == self.data.append_epoch)
            self.staged_bytes += e.size_bytes
            self.staged_count += 1
            self.staged_term = e.term
            return 0
        if not (file.intact() and unit_file.intact()):
            self.data.fail(EIO, file.path)
        self.data.publish(file, e.pos - file.start_offset + e.size_bytes, epoch)
        self.end_index = e.index
        self.end_term = e.term
        return 0

    cdef inline int64_t next_index(self) noexcept:
        """Index of the entry that is appended next."""
        return self.end_index + 1 + self.staged_count

    cdef void begin_run(self) noexcept:
        """Put the entries that come together, until `end_run`."""
        if self.stage == NULL:
            self.stage = <uint8_t*>malloc(STAGE_BYTES)
        self.staging = self.stage != NULL

    cdef void end_run(self) noexcept:
        self.write_staged()
        self.staging = False

    cdef void write_staged(self) noexcept:
        """Bring what was put together to the end of the file, and publish it."""
        cdef MappedFile file = self.data.last
        if self.staged_bytes == 0:
            return
        ASSERT(file.wrote + self.staged_bytes <= file.allocated)
        if not self.write_at_end(file):
            memcpy(file.base + file.wrote, self.stage, <size_t>self.staged_bytes)
        self.data.publish(file, file.wrote + self.staged_bytes, self.data.append_epoch)
        self.end_index += self.staged_count
        self.end_term = self.staged_term
        self.staged_bytes = self.staged_count = 0

    cdef bint write_at_end(self, MappedFile file) noexcept:
        """Write the encoded batch with `pwrite`; False if the system reports an error."""
        cdef int64_t done = 0
        cdef ssize_t wrote
        if self.staged_for is not file:
            self.let_go()
            self.stage_fd = open_regular(file.c_path, O_WRONLY)
            self.staged_for = file
        while self.stage_fd >= 0 and done < self.staged_bytes:
            wrote = pwrite(self.stage_fd, self.stage + done, <size_t>(self.staged_bytes - done),
                           file.wrote + done)
            if wrote <= 0 and not (wrote < 0 and errno == EINTR):
                return False
            done += max(<ssize_t>0, wrote)
        return self.stage_fd >= 0

    cdef inline bint has_space(self, int64_t size_bytes, int64_t count) noexcept:
        """Whether `count` entries of `size_bytes` together fit into the last file, and their units into the
        index. Never releases the interpreter lock."""
        cdef MappedFile file = self.data.last
        return (self.data.takes_appends() and self.has_unit_room(count)
                and file.wrote + self.staged_bytes + size_bytes + FILLER_BYTES_MIN <= file.allocated)

    cdef inline bint has_unit_room(self, int64_t count) noexcept:
        """The same of units: in the last file, or in it and in the one at hand that follows it."""
        cdef MappedFile file = self.units.last
        cdef int64_t beyond
        if not self.units.takes_appends():
            return False
        beyond = file.wrote + count * INDEX_UNIT_BYTES - file.size_bytes
        if beyond <= 0:
            return beyond + file.size_bytes <= file.allocated
        return file.allocated == file.size_bytes and self.units.spare is not None and (
            beyond <= self.units.spare.allocated)

    cdef int make_space(self, int64_t size_bytes, int64_t count, int64_t pos) except -1:
        """Return when `has_space` is true, for an entry that its leader has at `pos` (-1: any offset).

        Other threads may append meanwhile, so what was read before is out of date.
        """
        cdef bint staging = self.staging
        cdef bint early
        if size_bytes + FILLER_BYTES_MIN > self.data.file_size_bytes:
            raise errors.RecordTooLargeError("an entry", size_bytes,
                                             self.data.file_size_bytes - FILLER_BYTES_MIN)
        if count * INDEX_UNIT_BYTES > self.units.file_size_bytes:
            raise errors.RecordTooLargeError("the index of a batch", count * INDEX_UNIT_BYTES,
                                             self.units.file_size_bytes)
        while True:
            early = pos >= 0 and pos != self.place_of(size_bytes)
            if early and not self.may_close_at(pos):
                raise errors.EntryPositionError(self.data.folder, pos, self.place_of(size_bytes))
            if not early and self.has_space(size_bytes, count):
                self.staging = staging
                return 0
            self.end_run()
            self.extend(size_bytes, count, early)

    cdef int64_t place_of(self, int64_t size_bytes) noexcept:
        """Offset of the next entry of this size: after the last one, or at the start of the next file."""
        cdef MappedFile file = self.data.last
        cdef int64_t position
        if file is None:
            return 0
        position = file.wrote + self.staged_bytes
        if position + size_bytes + FILLER_BYTES_MIN > file.size_bytes:
            return file.start_offset + file.size_bytes
        return file.start_offset + position

    cdef bint may_close_at(self, int64_t pos) noexcept:
        """Would a leader that has its next entry there have closed its last file early?"""
        cdef MappedFile file = self.data.last
        return (file is not None and file.wrote + self.staged_bytes > 0
                and pos == file.start_offset + file.size_bytes)

    cdef int extend(self, int64_t size_bytes, int64_t count, bint early) except -1:
        """Do one step towards `has_space`; `early`: close the last file even if it has free space.

        May release the interpreter lock.
        """
        cdef MappedFile file
        self.data.check_writable()
        self.units.check_writable()      # an index that failed never gets space
        file = self.units.writable_file(self.next_index() * INDEX_UNIT_BYTES)
        if not self.has_unit_room(count):
            self.units.reserve(file, min(file.wrote + count * INDEX_UNIT_BYTES, file.size_bytes))
            if file.wrote + count * INDEX_UNIT_BYTES > file.size_bytes:
                make_spare(self.units)
                self.units.reserve(self.units.spare,
                                   min(count * INDEX_UNIT_BYTES, self.units.file_size_bytes))
            return 0
        file = self.data.last
        if file is not None and file.wrote >= file.size_bytes:
            self.sync_full()
        file = self.data.writable_file(0)
        if early or file.wrote + size_bytes + FILLER_BYTES_MIN > file.size_bytes:
            return self.fill(file, size_bytes + FILLER_BYTES_MIN)
        return self.data.reserve(file, file.wrote + size_bytes + FILLER_BYTES_MIN)

    cdef int fill(self, MappedFile file, int64_t next_bytes) except -1:
        """Close the last file with a filler, once the next one has space; its bytes beyond are zero already.

        So a full disk leaves no filler, which would shift the offsets of later entries on this member only.
        """
        if self.data.spare is None or self.data.spare.allocated < next_bytes:
            self.data.reserve(file, file.wrote + FILLER_BYTES_MIN)
            make_spare(self.data)
            try:
                return self.data.reserve(self.data.spare, next_bytes)
            except errors.StoreError:
                with self.data.roll_lock:
                    self.data.drop_files_ahead()
                raise
        ASSERT(file.wrote + FILLER_BYTES_MIN <= file.allocated)
        put_i32(file.base + file.wrote + 4, <int32_t>(file.size_bytes - file.wrote))
        put_i32(file.base + file.wrote, ENTRY_FILLER)
        self.data.publish(file, file.size_bytes, self.data.append_epoch)
        return self.sync_full()

    cdef int sync_full(self) except -1:
        """Make a full file durable before the next one is begun: so a hole before a later file is damage,
        never what a crash leaves."""
        while self.data.flush(0):
            pass
        return 0

    cdef MappedFile room_for_unit(self, int64_t index):
        cdef MappedFile file = self.units.writable_file(index * INDEX_UNIT_BYTES)
        cdef int failed = file.allocate_to(file.wrote + INDEX_UNIT_BYTES)
        if failed != 0:
            raise_errno(failed, file.path, "allocate space for")
        return file

    def start_at(self, int64_t index, int64_t pos, int64_t term):
        """Let an empty log begin with entry `index` at `pos`, after a head filler; see _core.pyi."""
        cdef MappedFile file
        cdef int64_t position
        if self.data.run or self.units.run:
            raise errors.InvariantError("only a log without files can start at another index")
        file = self.data.writable_file(pos)
        position = pos - file.start_offset
        if position >= FILLER_BYTES_MIN:
            file.reserve(position)
            put_i32(file.base + 4, <int32_t>position)
            put_i32(file.base, ENTRY_FILLER)
        self.data.publish(file, position, self.data.append_epoch)
        self.start_units(index)
        self.set_range(index, index - 1, term)

    def start_units(self, int64_t index):
        """Let the index, which has no files, begin with the unit of an entry."""
        cdef MappedFile file = self.units.writable_file(index * INDEX_UNIT_BYTES)
        file.reserve(index * INDEX_UNIT_BYTES - file.start_offset)
        self.units.publish(file, index * INDEX_UNIT_BYTES - file.start_offset, self.units.append_epoch)

    def put_units(self, int64_t start):
        """Rebuild the index for the entries from offset `start` to the log's end."""
        cdef EntryWalk w = [start, 0, -1, -1, -1, -1, -1, -1, 0, True]
        cdef LogView view = self.data.view()
        cdef Entry entry
        cdef MappedFile file
        while next_entry(view, None, &w, &entry) == PARSED_RECORD:
            file = self.room_for_unit(entry.index)
            if file.start_offset + file.wrote != entry.index * INDEX_UNIT_BYTES:
                raise errors.InvariantError(f"unit {entry.index} has no place at {file.wrote} of {file.path}")
            put_index_unit(file.base + file.wrote, &entry, w.last_offset)
            self.units.publish(file, file.wrote + INDEX_UNIT_BYTES, self.units.append_epoch)

    # -- reading

    def read(self, int64_t index):
        """The entry of an index, as a tuple; see `scan_entries`."""
        cdef Entry entry
        find_entry(self, index, &entry)
        found = entry_tuple(&entry)
        check_entry_intact(self)
        return found

    def read_batch(self, int64_t first, int64_t count_max, int64_t bytes_max):
        """The bytes of entries from `first` on, that index, and how many they are; see _core.pyi."""
        return copy_entries(self, first, count_max, bytes_max)

    def term_of(self, int64_t index):
        """The term of an entry, from its index unit."""
        return unit_field(self, index, 24)

    def position_of(self, int64_t index):
        """Where an entry starts (bytes), from its index unit."""
        return unit_field(self, index, 4)
