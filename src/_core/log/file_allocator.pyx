# FileAllocator: makes the next files of a log ahead of the appends, in a thread that uses nothing of Python.
# Page faults limit the speed of appends, so its files are allocated and their pages populated.
# Invariant: the ready files are the `count` ones before `next_start`, in order, in a ring.
from _core.posix cimport (fork_generation, pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_init,
                          pthread_cond_t, pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init,
                          pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, store_release, unlink)
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from posix.unistd cimport close as c_close

import os

from pyledger import errors

cdef enum:
    AHEAD_MAX = 8
    AHEAD_BYTES = 64 << 20           # bytes made ahead when files are small
    PATH_BYTES_MAX = 4096


cdef struct Ahead:
    pthread_mutex_t mutex
    pthread_cond_t changed
    Mapping made[AHEAD_MAX]
    const char* folder
    int64_t file_size_bytes
    int64_t allocate_chunk_bytes
    int64_t next_start               # of the file to be made next; -1: not known yet
    int first
    int count
    int depth
    int64_t wanted                   # appends that wait for a file
    int failed                       # errno of the last attempt; the next request tries again
    bint pooled
    bint making                      # outside the mutex, at this moment
    bint running
    bint stopping


cdef class FileAllocator:
    """The files made ahead for one folder."""

    cdef Ahead ahead
    cdef str folder
    cdef bytes encoded_folder
    cdef int generation

    def __cinit__(self, str folder, int64_t file_size_bytes, int64_t allocate_chunk_bytes, bint pooled):
        self.folder = folder
        self.encoded_folder = os.fsencode(folder)
        self.generation = fork_generation
        if len(self.encoded_folder) + 22 > PATH_BYTES_MAX:
            raise errors.ConfigError("folder", "the path is too long")
        self.ahead.folder = self.encoded_folder
        self.ahead.file_size_bytes = file_size_bytes
        self.ahead.allocate_chunk_bytes = allocate_chunk_bytes
        self.ahead.pooled = pooled
        self.ahead.next_start = -1
        pthread_mutex_init(&self.ahead.mutex, NULL)
        pthread_cond_init(&self.ahead.changed, NULL)

    def __dealloc__(self):
        # A child's copies of these mappings go with it; the files are its parent's.
        if self.generation == fork_generation and self.ahead.count > 0:
            remove_files_ahead(&self.ahead)
        pthread_cond_destroy(&self.ahead.changed)
        pthread_mutex_destroy(&self.ahead.mutex)

    @property
    def ready(self):
        """Files that are ready."""
        return self.ahead.count

    cdef int begin(self, int depth, int64_t next_start) except -1:
        """Let `take` wait for files from `next_start` on, which `run` makes; the caller holds `roll_lock`."""
        cdef Ahead* ahead = &self.ahead
        if ahead.running or not 0 <= depth <= AHEAD_MAX:
            raise errors.InvariantError(f"{self.folder}: an allocator runs, or depth {depth} is impossible")
        if depth == 0:
            depth = <int>max(2, min(AHEAD_MAX, AHEAD_BYTES // ahead.file_size_bytes))
        ahead.depth = depth
        ahead.stopping = False
        ahead.running = True
        if ahead.count == 0:
            ahead.next_start = next_start
        return 0

    cdef void run(self):
        """The body of the allocator thread, after `begin`."""
        cdef Ahead* ahead = &self.ahead
        with nogil:
            make_files_ahead(ahead)

    cdef int stop(self) except -1:
        """Let `run` return, and remove the ready files."""
        cdef Ahead* ahead = &self.ahead
        if self.generation != fork_generation:
            return 0
        with nogil:
            pthread_mutex_lock(&ahead.mutex)
            ahead.stopping = True
            pthread_cond_broadcast(&ahead.changed)
            while ahead.running:
                pthread_cond_wait(&ahead.changed, &ahead.mutex)
            pthread_mutex_unlock(&ahead.mutex)
        return self.drop()

    cdef int drop(self) except -1:
        """Remove the ready files; the thread continues when appends request files again."""
        cdef Ahead* ahead = &self.ahead
        with nogil:
            pthread_mutex_lock(&ahead.mutex)
            while ahead.making:
                pthread_cond_wait(&ahead.changed, &ahead.mutex)
            remove_files_ahead(ahead)
            ahead.next_start = -1
            pthread_mutex_unlock(&ahead.mutex)
        return 0

    cdef MappedFile take(self, int64_t start):
        """The file that starts at `start`, waiting for the thread to make it; None without a thread."""
        cdef Ahead* ahead = &self.ahead
        cdef Mapping made
        cdef bint taken = False
        cdef int failed
        cdef MappedFile file
        if not ahead.running and ahead.count == 0:
            return None
        with nogil:
            pthread_mutex_lock(&ahead.mutex)
            store_release(&ahead.wanted, ahead.wanted + 1)
            while ahead.making and ahead.count == 0:
                pthread_cond_wait(&ahead.changed, &ahead.mutex)
            if ahead.next_start - ahead.count * ahead.file_size_bytes != start:
                while ahead.making:
                    pthread_cond_wait(&ahead.changed, &ahead.mutex)
                remove_files_ahead(ahead)
            if ahead.count == 0:
                ahead.next_start = start
                ahead.failed = 0
                pthread_cond_broadcast(&ahead.changed)
            while ahead.count == 0 and ahead.failed == 0 and ahead.running:
                pthread_cond_wait(&ahead.changed, &ahead.mutex)
            if ahead.count > 0:
                made = ahead.made[ahead.first]
                ahead.first = (ahead.first + 1) % AHEAD_MAX
                ahead.count -= 1
                taken = True
                pthread_cond_broadcast(&ahead.changed)
            failed = ahead.failed
            store_release(&ahead.wanted, ahead.wanted - 1)
            pthread_mutex_unlock(&ahead.mutex)
        if not taken:
            if failed != 0:
                raise_errno(failed, f"{self.folder}/{start:020d}", "create")
            return None
        file = MappedFile.__new__(MappedFile)
        file._name(f"{self.folder}/{start:020d}")
        file._adopt(&made, ahead.file_size_bytes, ahead.allocate_chunk_bytes)
        return file


cdef void file_path(char* into, const char* folder, int64_t start) noexcept nogil:
    snprintf(into, PATH_BYTES_MAX, b"%s/%020lld", folder, <long long>start)


cdef void release_file(Mapping* made, int64_t size_bytes) noexcept nogil:
    drop_mapping(made, size_bytes)
    if made.pool_fd >= 0:
        c_close(made.pool_fd)


cdef void remove_files_ahead(Ahead* ahead) noexcept nogil:
    """Remove the ready files, the last one first.

    A process that is killed meanwhile, or a file that cannot be removed, must not leave a gap between files:
    no store opens with one.
    """
    cdef char[PATH_BYTES_MAX] path
    cdef Mapping* made
    cdef bint keeps = False
    while ahead.count > 0:
        ahead.count -= 1
        ahead.next_start -= ahead.file_size_bytes
        made = &ahead.made[(ahead.first + ahead.count) % AHEAD_MAX]
        release_file(made, ahead.file_size_bytes)
        file_path(path, ahead.folder, ahead.next_start)
        keeps = keeps or unlink(path) != 0


cdef void make_files_ahead(Ahead* ahead) noexcept nogil:
    """The thread's loop. A file is made outside the mutex, so that taking one never waits for another."""
    cdef char[PATH_BYTES_MAX] path
    cdef Mapping made
    cdef int failed
    pthread_mutex_lock(&ahead.mutex)
    while not ahead.stopping:
        if ahead.next_start < 0 or ahead.count == ahead.depth or ahead.failed != 0:
            pthread_cond_wait(&ahead.changed, &ahead.mutex)
            continue
        file_path(path, ahead.folder, ahead.next_start)
        ahead.making = True
        pthread_mutex_unlock(&ahead.mutex)
        failed = make_mapped_file(path, ahead.file_size_bytes, ahead.allocate_chunk_bytes, True, ahead.pooled,
                                  &ahead.wanted, &made)
        if failed == 0:
            # Whoever takes it may rely on its name: no flush has to wait for the folder.
            failed = sync_folder(ahead.folder)
            if failed != 0:
                release_file(&made, ahead.file_size_bytes)
                unlink(path)
        pthread_mutex_lock(&ahead.mutex)
        ahead.making = False
        ahead.failed = failed
        if failed == 0:
            ahead.made[(ahead.first + ahead.count) % AHEAD_MAX] = made
            ahead.count += 1
            ahead.next_start += ahead.file_size_bytes
        pthread_cond_broadcast(&ahead.changed)
    ahead.running = False
    pthread_cond_broadcast(&ahead.changed)
    pthread_mutex_unlock(&ahead.mutex)
