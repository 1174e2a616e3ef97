# IndexFileSet: the index files of a store, oldest to newest by name; the last one takes the new keys.
from _core.layout cimport INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES, get_i64
from _core.status cimport STATUS_END_OF_FILE
from libc.stdint cimport int32_t, int64_t

import os
from datetime import datetime

from pyledger import errors

cdef enum:
    QUERY_MAX = 64                   # upstream's maxMsgsNumBatch


def index_file_name():
    """A name for an index file made now: local time as yyyyMMddHHmmssSSS."""
    now = datetime.now()
    return now.strftime("%Y%m%d%H%M%S") + f"{now.microsecond // 1000:03d}"


cdef class IndexFileSet:
    """All index files of a store."""

    cdef readonly str folder
    cdef readonly bint readonly
    cdef readonly list files
    cdef readonly list removed          # paths that were unsafe or unreadable when the set was opened
    cdef int64_t slots
    cdef int64_t entries
    cdef object name_file
    cdef object clean                   # files that need no flush any more
    cdef bint folder_changed
    cdef bint closed

    def __init__(self, str folder, int64_t slots=5_000_000, int64_t entries=20_000_000, *,
                 bint readonly=False, name_file=index_file_name, safe_timestamp_ms=None):
        self.folder = folder
        self.slots = slots
        self.entries = entries
        self.readonly = readonly
        self.name_file = name_file
        self.files = []
        self.removed = []
        self.clean = set()
        for path, size in self._list():
            self._load(path, size, safe_timestamp_ms)

    cdef list _list(self):
        try:
            found = [(int(entry.name), entry.path, entry.stat().st_size) for entry in os.scandir(self.folder)
                     if entry.name.isascii() and entry.name.isdecimal() and entry.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [(path, size) for _, path, size in sorted(found)]

    cdef int _load(self, str path, int64_t size, safe_timestamp_ms) except -1:
        cdef IndexFile file
        # The configured counts when they fit the size; else whatever the file shows.
        fits = size == INDEX_HEADER_BYTES + self.slots * INDEX_SLOT_BYTES + self.entries * INDEX_ENTRY_BYTES
        try:
            file = IndexFile(path, self.slots if fits else 0, readonly=self.readonly)
        except errors.StoreFormatError:
            file = None
        # One that is not full is never safe: its times may be those of the file before it.
        if file is None or safe_timestamp_ms is not None and (
                file.end_timestamp > safe_timestamp_ms or not file.full):
            self.removed.append(path)
            if not self.readonly:
                os.unlink(path)
            return 0
        self.files.append(file)
        return 0

    @property
    def end_physical_offset(self):
        """Start of the last record with an entry, where dispatch continues; -1 without one."""
        cdef IndexFile file
        for file in reversed(self.files):
            if file.entry_count > 1:
                return file.end_physical_offset
        return -1

    @property
    def end_timestamp(self):
        return self.files[len(self.files) - 1].end_timestamp if self.files else 0

    cdef IndexFile last_file(self):
        return <IndexFile>self.files[len(self.files) - 1] if self.files else None

    cdef int roll(self) except -1:
        """Add a file that continues at the last one's end."""
        cdef IndexFile last = self.last_file()
        previous = (0, 0)
        name = self.name_file()
        if last is not None:
            previous = (last.end_timestamp, last.end_physical_offset)
            newest = int(os.path.basename(last.path))
            if int(name) <= newest:
                name = f"{newest + 1:017d}"
        make_folders(self.folder)
        file = IndexFile(os.path.join(self.folder, name), self.slots, self.entries, previous=previous)
        self.folder_changed = True
        self.files = [*self.files, file]
        return 0

    cdef int make_space(self, int status) except -1:
        """Provide what a nogil put needs; the caller then puts again."""
        if self.closed:
            raise errors.StoreClosedError(self.folder)
        if self.readonly:
            raise errors.ReadOnlyStoreError(self.folder)
        if status == STATUS_END_OF_FILE:
            return self.roll()
        raise_errno(self.last_file().cursor.error, self.folder, "allocate space for")

    cdef int32_t entries_of_last_record(self) noexcept:
        """Entries of the last indexed record; an interrupted dispatch may have put only some of its keys."""
        cdef int32_t found = 0
        cdef int32_t number
        cdef int64_t offset = -1
        cdef IndexFile file
        for file in reversed(self.files):
            for number in range(file.cursor.count - 1, 0, -1):
                if offset < 0:
                    offset = file.cursor.end_physical
                if get_i64(file.cursor.entries + <int64_t>number * INDEX_ENTRY_BYTES + 4) != offset:
                    return found
                found += 1
        return found

    def put(self, str topic, str key, int64_t physical_offset, int64_t store_timestamp_ms):
        """Add a key of a message, in a new file when the last one is full."""
        cdef int32_t hash = index_key_hash(topic, key)
        cdef int status
        cdef IndexFile last
        while True:
            status = STATUS_END_OF_FILE
            if self.files and not self.readonly:
                last = self.last_file()
                status = put_key(&last.cursor, hash, physical_offset, store_timestamp_ms,
                                 slot_of(&last.cursor, hash))
            if status >= 0:
                return
            self.make_space(status)

    def query(self, str topic, str key, int64_t begin_ms=0, int64_t end_ms=0x7FFFFFFFFFFFFFFF,
              int limit=QUERY_MAX):
        """Physical offsets of messages that may have a key, ascending; at most 64, the newest."""
        cdef int64_t found[QUERY_MAX]
        cdef int count = 0
        cdef int i
        cdef int64_t begin, end
        cdef int32_t hash = index_key_hash(topic, key)
        cdef IndexFile file
        limit = min(limit, QUERY_MAX)
        for file in reversed(self.files):
            if file.cursor.base == NULL:
                continue
            begin = get_i64(file.cursor.base + AT_BEGIN_TIMESTAMP)
            end = get_i64(file.cursor.base + AT_END_TIMESTAMP)
            if begin_ms <= end and end_ms >= begin:
                count = file.select(hash, begin_ms, end_ms, found, count, limit)
            file.file.check_intact()
            if begin < begin_ms or count >= limit:
                break
        return sorted([found[i] for i in range(count)])

    def truncate_to_physical(self, int64_t physical_offset, LogView view=None):
        """Take back the entries of records at or above `physical_offset`. Durable on return."""
        cdef IndexFile file
        if self.readonly:
            raise errors.ReadOnlyStoreError(self.folder)
        while self.files:
            file = self.last_file()
            if file.cursor.end_physical < physical_offset:
                break
            file.cut(physical_offset, view)
            if file.cursor.count > 1:
                file.flush()
                break
            os.unlink(file.path)
            self.files = self.files[:len(self.files) - 1]
            make_names_durable(self.folder)

    def delete_head(self, int64_t min_physical_offset):
        """Remove files whose last record was deleted, never the last file; returns their paths."""
        cdef IndexFile file
        gone = []
        for file in self.files[:max(len(self.files) - 1, 0)]:
            if file.end_physical_offset >= min_physical_offset:
                break
            gone.append(file.path)
        self.files = self.files[len(gone):]
        for path in gone:
            os.unlink(path)
        if gone:
            make_names_durable(self.folder)
        return gone

    def flush(self):
        """Make all entries durable; returns the end timestamp of what is on disk, for the checkpoint."""
        cdef IndexFile file
        timestamp = 0
        if self.readonly:
            return self.end_timestamp
        if self.folder_changed:
            self.folder_changed = False
            make_names_durable(self.folder)
            make_names_durable(os.path.dirname(self.folder) or ".")
        files = self.files
        for file in files:
            timestamp = file.end_timestamp
            if file.path not in self.clean:
                full = file.full
                file.flush()
                if full:
                    self.clean.add(file.path)
        return timestamp

    def close(self):
        cdef IndexFile file
        self.closed = True
        for file in self.files:
            file.close()
        self.files = []
