# MappedFileQueue: the ordered run of mapped files of one folder or several; its last file takes the appends.
# Invariant: flushed_where <= committed_where <= max_offset, and no byte below flushed_where is volatile.
# The interpreter lock orders appends and changes of the list; `io_lock` orders commit, flush and truncation,
# and `roll_lock` the making of new files. Waiting for either never holds the interpreter lock.
# An append depends on the last file, its end and the state. It reads them after the last point where the
# interpreter lock may be released: `append_epoch` changes with each of them, and only `publish`, which checks
# it, sets a new end.
from _core.platform cimport monotonic_ns
from _core.posix cimport fork_generation, load_acquire, store_release
from _core.status cimport STATUS_CLOSED, STATUS_OK, STATUS_READ_ONLY, STATUS_STORE_FAILED
from libc.stdint cimport int64_t

import os
from threading import Lock

from pyledger import errors


cdef class MappedFileQueue:
    """The mapped files of one log, in order."""

    cdef readonly str folder
    cdef readonly tuple more_folders     # others that have files of this run
    cdef object choose               # start offset -> the folder of a new file; None: `folder`
    cdef readonly int64_t file_size_bytes
    cdef readonly int64_t allocate_chunk_bytes
    cdef readonly bint pooled
    cdef readonly bint readonly
    cdef tuple run                   # of MappedFile; replaced, never changed
    cdef MappedFile last             # takes the appends; None when there is no file
    cdef LogView cached_view
    cdef _IoLock io_lock
    cdef object roll_lock
    cdef object failure              # what made the queue fail
    cdef int failed_errno            # the same, before a thread with the interpreter lock has noted it
    cdef bytes encoded_folder
    cdef const char* folder_chars    # of `encoded_folder`
    cdef int64_t flushed
    cdef readonly int64_t flush_count
    cdef readonly int64_t flush_total_ns
    cdef readonly int64_t flush_longest_ns
    cdef int64_t flush_last_ns
    cdef int64_t run_version         # grows with every change of the list of files
    cdef int64_t append_epoch        # grows with every change of what an append depends on
    cdef MappedFile spare            # follows the last file, created but not in the list yet
    cdef bint truncating             # appends wait for `roll_lock`
    cdef int state                   # STATUS_OK or why nothing may be appended
    cdef int generation
    cdef bint names_volatile         # files were created since the folder was last synced
    cdef FileAllocator allocator

    def __cinit__(self, folder, int64_t file_size_bytes, *, int64_t allocate_chunk_bytes=0, bint pooled=False,
                  bint readonly=False, more_folders=(), choose=None):
        self.folder = os.fspath(folder)
        self.more_folders = tuple(more_folders)
        self.choose = choose
        self.file_size_bytes = file_size_bytes
        self.allocate_chunk_bytes = allocate_chunk_bytes
        self.pooled = pooled
        self.readonly = readonly
        self.encoded_folder = os.fsencode(self.folder)
        self.folder_chars = self.encoded_folder
        self.run = ()
        self.io_lock = _IoLock()
        self.roll_lock = Lock()
        self.generation = fork_generation
        self.state = STATUS_READ_ONLY if readonly else STATUS_OK
        if file_size_bytes <= 0 or file_size_bytes >= (1 << 31):
            raise errors.ConfigError("file_size_bytes", f"{file_size_bytes} is outside [1, 2147483647]")
        self.allocator = FileAllocator(self.folder, file_size_bytes, allocate_chunk_bytes, pooled)

    # -- what there is

    @property
    def files(self):
        """The mapped files, in order."""
        return self.run

    @property
    def min_offset(self):
        """Start of the first file; -1 when there is none."""
        return (<MappedFile>self.run[0]).start_offset if self.run else -1

    @property
    def max_offset(self):
        """End of what readers may see; 0 when there is no file."""
        return self.readable_end()

    @property
    def wrote_where(self):
        """End of what was appended, pooled bytes included."""
        return 0 if self.last is None else self.last.start_offset + load_acquire(&self.last.wrote)

    @property
    def committed_where(self):
        return self.readable_end()

    @property
    def flushed_where(self):
        return load_acquire(&self.flushed)

    @property
    def next_file_offset(self):
        """Start of the file that follows the last one."""
        return self.next_start()

    @property
    def failed(self):
        """The error that made the queue reject writes, or None."""
        return self.failure

    @property
    def closed(self):
        return self.state == STATUS_CLOSED

    cdef int64_t next_start(self) noexcept:
        return 0 if self.last is None else self.last.start_offset + self.file_size_bytes

    cdef int64_t readable_end(self) noexcept:
        cdef int64_t committed
        cdef Py_ssize_t i
        cdef MappedFile file
        if self.last is None:
            return 0
        committed = load_acquire(&self.last.committed)
        if committed > 0 or not self.pooled:
            return self.last.start_offset + committed
        # With a pool the file before may still have bytes in memory.
        for i in range(len(self.run) - 1, -1, -1):
            file = self.run[i]
            committed = load_acquire(&file.committed)
            if committed > 0:
                return file.start_offset + committed
        return (<MappedFile>self.run[0]).start_offset

    cdef MappedFile find(self, int64_t offset):
        """The file that holds `offset`, or None."""
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = len(self.run) - 1
        cdef Py_ssize_t middle
        cdef MappedFile file
        while low <= high:
            middle = (low + high) >> 1
            file = self.run[middle]
            if offset < file.start_offset:
                high = middle - 1
            elif offset >= file.start_offset + self.file_size_bytes:
                low = middle + 1
            else:
                return file
        return None

    def find_file(self, int64_t offset):
        """The mapped file that holds a physical offset, or None."""
        return self.find(offset)

    def view(self, end_offset=None):
        """A LogView of everything readable, or of what lies below `end_offset` (bytes)."""
        cdef int64_t end = self.readable_end()
        if end_offset is not None:
            end = min(end, <int64_t>end_offset)
        if self.cached_view is None or self.cached_view.end_offset != end:
            self.check_usable()
            self.cached_view = LogView(self.run, end)
        return self.cached_view

    cdef int check_usable(self) except -1:
        if self.state == STATUS_CLOSED or self.generation != fork_generation:
            raise_status(STATUS_CLOSED, self.folder, "use")
        return 0

    cdef int check_writable(self) except -1:
        """Raise unless the log takes appends. May release the interpreter lock."""
        if self.truncating:
            with self.roll_lock:
                pass
        self.check_usable()
        if self.state == STATUS_STORE_FAILED:
            raise errors.StoreFailedError(self.folder) from (
                self.failure or OSError(self.failed_errno, os.strerror(self.failed_errno), self.folder))
        if self.state != STATUS_OK:
            raise_status(self.state, self.folder, "write to")
        return 0

    cdef void set_run(self, tuple run):
        self.run = run
        self.last = run[len(run) - 1] if run else None
        self.cached_view = None
        self.run_version += 1
        self.append_epoch += 1

    cdef inline bint takes_appends(self) noexcept:
        """Whether the last file may be appended to; it may still be full."""
        return (self.last is not None and self.state == STATUS_OK and self.generation == fork_generation
                and not self.truncating)

    cdef inline void publish(self, MappedFile file, int64_t position, int64_t epoch) noexcept:
        """Move the end to a position of the last file; `epoch` is that of the append's decision."""
        ASSERT(epoch == self.append_epoch and file is self.last)
        ASSERT(file.wrote <= position <= file.size_bytes)
        self.append_epoch += 1
        file.publish(position)

    # -- opening

    def load(self):
        """Map the files of all folders, all positions at their ends; recovery then sets the true end."""
        cdef list paths, files
        self.check_usable()
        if not self.readonly:
            for folder in self.all_folders():
                make_folder(folder)
        paths = segment_paths(self.all_folders(), self.readonly)
        if paths and not self.readonly and os.path.getsize(paths[len(paths) - 1]) == 0:
            os.unlink(paths.pop())
        files = [self._open_file(path) for path in paths]
        self.set_run(tuple(files))
        self.flushed = self.readable_end()

    cdef tuple all_folders(self):
        return (self.folder, *self.more_folders)

    def _open_file(self, path):
        cdef MappedFile file
        if self.readonly or path.endswith(COLD_SUFFIX):
            file = MappedFile.open(path, size_bytes=self.file_size_bytes)
        else:
            file = MappedFile.open_writable(path, allocate_chunk_bytes=self.allocate_chunk_bytes)
        if file.size_bytes != self.file_size_bytes and not self.readonly:
            raise errors.StoreFormatError(
                path, f"has {file.size_bytes} bytes instead of {self.file_size_bytes}",
                "set the file size the store was made with; a file of a wrong size needs `pyledger repair`")
        return file

    # -- new files

    def last_file(self, int64_t start_offset=0):
        """The file that takes appends; a new one when the last is full, or to hold `start_offset`."""
        self.check_writable()
        return self.writable_file(start_offset)

    cdef MappedFile writable_file(self, int64_t start_offset):
        cdef MappedFile file = self.last
        while file is None or file.wrote >= file.size_bytes:
            self.roll(file, start_offset - start_offset % self.file_size_bytes)
            self.check_writable()
            file = self.last
        return file

    cdef int roll(self, MappedFile full, int64_t first_start) except -1:
        """Add the next file, unless another thread did or a truncation freed space. Waits without the GIL."""
        with self.roll_lock:
            self.check_writable()
            if self.last is not full or full is not None and full.wrote < full.size_bytes:
                return 0
            if self.spare is None:
                self.spare = self.make_file(first_start if full is None else self.next_start())
            self.take_spare()
        return 0

    cdef int reserve(self, MappedFile file, int64_t position) except -1:
        """Allocate blocks of the last file or the spare one; do nothing if `file` is neither any more."""
        with self.roll_lock:
            if file is not None and (file is self.last or file is self.spare):
                file.reserve(position)
        return 0

    cdef MappedFile make_file(self, int64_t start):
        """Create a file that is not in the list yet; `roll_lock` is held."""
        cdef MappedFile file = self.allocator.take(start)
        if file is None:
            folder = self.folder if self.choose is None else self.choose(start)
            file = MappedFile.create(f"{folder}/{start:020d}", self.file_size_bytes,
                                     allocate_chunk_bytes=self.allocate_chunk_bytes, pooled=self.pooled)
            if self.choose is None:
                self.names_volatile = True
            else:
                self.sync_name(folder)
        return file

    cdef int take_spare(self) except -1:
        """Let appends continue in the spare file. Never releases the interpreter lock."""
        cdef MappedFile file = self.spare
        if self.last is None:
            self.flushed = file.start_offset
        self.spare = None
        self.set_run(self.run + (file,))
        return 0

    cdef int drop_files_ahead(self) except -1:
        """Remove files that were made and not appended to; `roll_lock` is held."""
        cdef MappedFile file = self.spare
        self.spare = None
        if file is not None:
            remove_file(file.path)
            file.retire()
        return self.allocator.drop()

    # -- files made ahead

    def run_allocator(self, int depth=0):
        """Make up to `depth` files ahead of the appends until `stop_allocator`; the body of a thread."""
        cdef int64_t start
        self.check_writable()
        if self.choose is not None:
            raise errors.InvariantError(f"{self.folder}: files made ahead lie in one folder")
        with self.roll_lock:
            # An append may be making the next file itself.
            start = self.next_start()
            self.allocator.begin(depth, start if self.spare is None else start + self.file_size_bytes)
        self.allocator.run()

    def stop_allocator(self):
        """Let `run_allocator` return; its unused files are removed."""
        self.allocator.stop()

    @property
    def files_ahead(self):
        """Files that the allocator has ready."""
        return self.allocator.ready

    # -- commit and flush

    def commit(self, int least_pages=0):
        """Move pooled bytes into the file that holds `committed_where`; True if any moved. See `flush`."""
        cdef MappedFile file
        cdef int failed
        if not self.pooled:
            return False
        with self.io_lock:
            self.check_writable()
            file = self.file_after(self.readable_end())
            if file is None or not flush_is_due(load_acquire(&file.wrote), file.committed, file.size_bytes,
                                                least_pages):
                return False
            with nogil:
                failed = file.commit_to_file()
            if failed != 0:
                self.fail(failed, file.path)
            if file.committed == file.size_bytes:
                file.release_pool()
            return True

    def flush(self, int least_pages=0):
        """Make one file durable if the page rule demands it; True if `flushed_where` moved; see _core.pyi."""
        cdef MappedFile file
        cdef int64_t before
        cdef int failed
        with self.io_lock:
            self.check_writable()
            before = self.flushed
            file = self.file_after(before)
            if file is None or not flush_is_due(load_acquire(&file.committed),
                                                max(<int64_t>0, before - file.start_offset), file.size_bytes,
                                                least_pages):
                return False
            file.pin()
            with nogil:
                failed = self.flush_file(file)
            file.unpin()
            if failed != 0:
                self.fail(failed, file.path)
            return self.flushed > before

    cdef int flush_file(self, MappedFile file) noexcept nogil:
        """Make a pinned file and its name durable; `io_lock` is held. 0, or an errno: the queue failed."""
        cdef int64_t begin_ns = monotonic_ns()
        cdef int failed = 0
        if self.names_volatile:
            self.names_volatile = False
            failed = sync_folder(self.folder_chars)
        if failed == 0:
            failed = file.flush_to_disk()
        if failed == 0:
            store_release(&self.flushed, max(self.flushed, file.start_offset + file.flushed))
            self.flush_last_ns = monotonic_ns() - begin_ns
            self.flush_count += 1
            self.flush_total_ns += self.flush_last_ns
            self.flush_longest_ns = max(self.flush_longest_ns, self.flush_last_ns)
        else:
            # Before the lock is released: the next flush would find nothing dirty, and succeed.
            self.failed_errno = failed
            self.state = STATUS_STORE_FAILED
        return failed

    cdef MappedFile file_after(self, int64_t offset):
        """The file that holds `offset`, or the first beyond a gap there."""
        cdef MappedFile file = self.find(offset)
        cdef MappedFile other
        if file is None:
            for other in self.run:
                if other.start_offset >= offset:
                    return other
        return file

    cdef int fail(self, int number, str path) except -1:
        """Latch the queue: the kernel may have dropped the dirty pages, so nothing is tried again."""
        self.failure = OSError(number, os.strerror(number), path)
        self.state = STATUS_STORE_FAILED
        self.append_epoch += 1
        raise errors.StoreFailedError(path) from self.failure

    # -- both ends

    def set_end(self, int64_t offset):
        """Set the end after recovery, in the last file. No byte is changed; what is there is made durable."""
        cdef MappedFile file = self.last
        self.check_writable()
        if file is None or not file.start_offset <= offset <= file.start_offset + self.file_size_bytes:
            raise errors.OffsetOutOfRangeError(offset, self.next_start() - self.file_size_bytes,
                                               self.next_start())
        with self.roll_lock, self.io_lock:
            self.drop_files_ahead()
            self.sync_names()
            sync_files(self)
            self.end_at(file, offset)

    def truncate(self, int64_t offset):
        """Truncate the log at `offset`, durably."""
        with self.roll_lock, self.io_lock:
            self.check_writable()
            self.truncating = True
            try:
                cut_run(self, offset)
            finally:
                self.truncating = False

    def delete_head(self, int count):
        """Remove the first `count` files, never the last; return their paths. Views keep their bytes."""
        with self.roll_lock, self.io_lock:
            self.check_usable()
            if self.readonly:
                raise_status(STATUS_READ_ONLY, self.folder, "delete from")
            return cut_head(self, count)

    cdef int sync_names(self) except -1:
        for folder in self.all_folders():
            self.sync_name(folder)
        self.names_volatile = False
        return 0

    cdef int sync_name(self, folder) except -1:
        cdef bytes encoded = os.fsencode(folder)
        cdef const char* path = encoded
        cdef int failed
        with nogil:
            failed = sync_folder(path)
        if failed != 0:
            self.fail(failed, folder)
        return 0

    cdef int end_at(self, MappedFile file, int64_t offset) except -1:
        file.set_positions(offset - file.start_offset)
        store_release(&self.flushed, offset)
        self.cached_view = None
        self.append_epoch += 1
        return 0

    def close(self):
        """Reject appends and unmap files without views. Files made ahead are removed. Does not flush."""
        cdef MappedFile file
        if self.generation != fork_generation or self.state == STATUS_CLOSED:
            return
        self.stop_allocator()
        with self.roll_lock, self.io_lock:
            if self.state == STATUS_CLOSED:
                return
            self.state = STATUS_CLOSED
            self.drop_files_ahead()
            run = self.run
            self.set_run(())
            for file in run:
                file.retire()
