"""Types and docstrings of the native module. One section per fragment, in the order of `_core.pyx`."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, final, overload

from typing_extensions import Buffer

from pyledger.errors import StoreError
from pyledger.model.ids import QueueId, QueueOffset
from pyledger.model.message import Message

R = TypeVar("R", bound="ReceivedRecord")
E = TypeVar("E")

# --- status.pyx

def build_kind() -> str:
    """Name of this build: `release`, or `debug` with every run-time check on."""

# --- digest.pyx

def crc32(data: Buffer, /, value: int = 0) -> int:
    """CRC-32 (IEEE) of `data`; equal to `zlib.crc32`.

    Args:
        data: Contiguous bytes of any kind; borrowed for the call.
        value: Result over the bytes before these, to go on from; 0 at the start.

    Returns:
        The digest, 0 to 2**32 - 1.

    Cost: about 40 ns for 256 bytes; holds the GIL below 1 MiB and releases it above.
    """

def crc32c(data: Buffer, /, value: int = 0) -> int:
    """CRC-32C (Castagnoli, RFC 3720) of `data`, going on from `value`.

    Args:
        data: Contiguous bytes of any kind; borrowed for the call.
        value: Result over the bytes before these, to go on from; 0 at the start.

    Returns:
        The digest, 0 to 2**32 - 1.
    """

def body_crc(data: Buffer, /) -> int:
    """RocketMQ's CRC of a message body: CRC-32 without its sign bit, as `bodyCRC` of a record holds it.

    Source: RocketMQ common/.../UtilAll.java (crc32).
    """

def crc32_portable(data: Buffer, /, value: int = 0) -> int:
    """CRC-32 by table lookups, as on a processor without carry-less multiplication."""

def crc32c_portable(data: Buffer, /, value: int = 0) -> int:
    """CRC-32C by table lookups, as on a processor without instructions for it."""

def digest_with(kernel: str, data: Buffer, /, value: int = 0) -> int:
    """Digest with one kernel, named as in `digest_kernels()`; for tests and benchmarks.

    Raises:
        ValueError: this processor has no such kernel.
    """

def digest_kernels() -> tuple[str, ...]:
    """Names of the kernels this processor can run, slowest first, such as `crc32c-sse4.2`."""

def digest_backend() -> str:
    """Name of the kernels in use.

    `pclmulqdq+sse4.2` or `vpclmulqdq` on x86-64, `armv8-crc` or `armv8-crc+pmull` on 64-bit Arm, or
    `portable`.
    """

# --- quorum.pyx

def quorum_index(water_marks: list[int], voters: int) -> int:
    """Highest index that a majority holds.

    Args:
        water_marks: The highest index each voter holds, -1 for none, in any order; left as it is.
        voters: How many voters there are. A list of another length is our own mistake.

    Returns:
        The largest index that at least `voters // 2 + 1` water marks reach.

    Raises:
        InvariantError: `voters` is not the number of water marks, or is 0.

    Cost: 35 to 60 ns for 3 to 7 voters; holds the GIL.
    Source: DLedger DLedgerEntryPusher.java (QuorumAckChecker); etcd raft quorum/majority.go (CommittedIndex).
    """

# --- event_notifier.pyx

@final
class EventNotifier:
    """One thread sleeps until there is work; any thread wakes it.

    Invariant: after `notify` returns, the sleeper checks for work again. So publish the work first, and check
    for work after every `wait`, even one that timed out. While an earlier notice has not been taken, the
    next costs a load.
    """

    def wait(self, timeout_ms: int) -> bool:
        """Sleep until notified; at once when that already happened.

        Args:
            timeout_ms: Longest wait (ms, monotonic clock); negative: no limit.

        Returns:
            Whether there was a notice, which is taken by this.

        Raises:
            StoreClosedError: made before a fork.

        Cost: releases the GIL; no system call when a notice waits. Ctrl-C in the first thread gets through.
        """
    def notify(self) -> None:
        """Wake the sleeper, or let its next `wait` return at once."""

# --- file_mapping.pyx

def mapped_file_count() -> int:
    """Files that are mapped now; the kernel limits the mappings of a process (vm.max_map_count)."""

def keep_freed_memory(kept_bytes: int, mapped_bytes: int) -> bool:
    """Let this process keep memory that it frees instead of returning it to the system.

    Args:
        kept_bytes: Bytes to keep at the end of the heap.
        mapped_bytes: Smaller blocks come from the heap.

    Returns:
        False where the C library knows no such limits.
    """

def sync_file_system(path: str) -> None:
    """Make everything durable that was written to the file system of a path, whoever wrote it.

    Raises:
        StoreFailedError: the disk reported an error.
    """

def start_writing_back(fd: int, position: int, length: int) -> None:
    """Let the kernel begin to write a range of a file to the disk, without waiting for it.

    Args:
        fd: Of the file.
        position: Where the range begins (bytes).
        length: Of the range (bytes).

    Durability: none; a flush of the file waits for it and raises errors.
    """

# --- cold_segment.pyx

COLD_SUFFIX: str
"""Suffix of the name of a cold segment."""

def decompressed_blocks() -> tuple[int, int]:
    """(blocks decompressed since the start of the process, bytes of them that are in memory)."""

def limit_decompressed_bytes(limit_bytes: int) -> int:
    """Set about how many decompressed bytes of cold segments stay in memory; return the old limit."""

def decompress_block(compressed: Buffer, size_bytes: int) -> bytes | None:
    """Decompress one LZ4 block of known size (bytes); None when it is not one."""

def frame_digest(data: Buffer) -> int:
    """xxHash-32 with seed 0, the digest of LZ4 frames."""

# --- mapped_file.pyx

@final
class MappedFile:
    """One fixed-size file mapped to memory; its name is its start offset in 20 digits.

    Invariant: flushed <= committed <= wrote <= size. A buffer of it is read-only, ends at the committed
    position of that moment, and keeps the file mapped: `close` raises while one is alive.
    """

    path: str
    start_offset: int
    """Physical offset of the first byte."""
    size_bytes: int
    """Nominal size; a truncated file maps less."""
    mapped_bytes: int
    readonly: bool

    @property
    def wrote_position(self) -> int:
        """Bytes appended."""
    @property
    def committed_position(self) -> int:
        """Bytes that readers may see; equals `wrote_position` without a pool."""
    @property
    def allocated_position(self) -> int:
        """Bytes that are known to be allocated on disk."""
    @property
    def flushed_position(self) -> int:
        """Bytes that are durable."""
    @property
    def closed(self) -> bool:
        """Whether the mapping is gone."""
    @staticmethod
    def open(path: str, *, size_bytes: int = 0) -> MappedFile:
        """Map an existing file read-only. `size_bytes` is the nominal size when the file may be truncated.

        A cold segment is mapped as the file that it was made from.
        """
    @property
    def is_cold(self) -> bool:
        """Whether this is a cold segment, whose bytes are decompressed when they are read."""
    @staticmethod
    def open_writable(path: str, *, allocate_chunk_bytes: int = 0) -> MappedFile:
        """Map an existing file of full size for reading and writing; all positions at its end."""
    @staticmethod
    def open_unmapped(
        path: str, size_bytes: int, *, allocate_chunk_bytes: int = 0, readonly: bool = False
    ) -> MappedFile:
        """As `open_writable` or `open`, for a file of this size; it is mapped at its first use.

        A `LogView` maps a read-only one for itself. Where that fails its bytes count as missing.
        """
    @staticmethod
    def create(
        path: str, size_bytes: int, *, allocate_chunk_bytes: int = 0, warm: bool = False, pooled: bool = False
    ) -> MappedFile:
        """Create, allocate and map a file. Returns once it is allocated; meant for use off the append path.

        Args:
            path: Where; the folder exists.
            size_bytes: Length of the file.
            allocate_chunk_bytes: Allocate in steps of this size as the file fills; 0: everything now.
            warm: Populate the page tables for writing.
            pooled: Append to memory until `commit`.

        Raises:
            StoreFullError: the disk is full.
            StoreIOError: the operating system reported an error.
        """
    def reserve(self, position: int) -> None:
        """Allocate bytes up to `position` on disk.

        Raises:
            StoreFullError: the disk is full. Nothing was written.
        """
    def populate(self, end: int = -1) -> None:
        """Allocate bytes up to `end` (-1: all) and fault in the pages beyond the wrote position.

        Kernels without MADV_POPULATE_WRITE do the latter on first touch.

        Raises:
            StoreFullError: the disk is full.
        """
    def flush(self) -> int:
        """Make everything committed durable; return the flushed position (bytes).

        Raises:
            StoreFailedError: this or an earlier flush failed. It is never retried: the kernel may have
                dropped the dirty pages.

        Durability: on return bytes below the flushed position survive power loss.
        """
    def view(self, position: int, length: int) -> memoryview:
        """View bytes without copying; the file stays mapped until the view is released."""
    def read(self, position: int, length: int) -> bytes:
        """Copy bytes below the committed position."""
    def close(self) -> None:
        """Unmap and close.

        Raises:
            BufferError: a view is alive.
        """
    def __buffer__(self, flags: int, /) -> memoryview: ...

# --- log_view.pyx

@final
class LogView:
    """A pinned range of the commit log: mapped files in order, readable below `end_offset` (bytes)."""

    files: tuple[MappedFile, ...]
    start_offset: int
    end_offset: int
    file_size_bytes: int

    def __new__(cls, files: Sequence[MappedFile], end_offset: int) -> Self: ...
    def await_growth(self) -> None:
        """Let the kernel read nothing ahead past the end, where another process or thread appends.

        This holds for the files as they are mapped now, and for all readers of these mappings. The kernel
        would read megabytes of zeros at once, and writers past a mapping, such as slaves, would wait for it.
        """
    def read(self, offset: int, length: int) -> bytes:
        """Copy `length` bytes at a physical offset; they must lie in one file.

        Raises:
            OffsetOutOfRangeError: the bytes are not within one file of the view.
        """
    def view(self, offset: int, length: int) -> memoryview:
        """View `length` bytes at a physical offset without copying; the file stays mapped meanwhile.

        Raises:
            OffsetOutOfRangeError: the bytes are not within one file of the view.
        """

# --- file_allocator.pyx

@final
class FileAllocator:
    """The files made ahead for one folder; used through `MappedFileQueue.run_allocator`."""

    def __new__(cls, folder: str, file_size_bytes: int, allocate_chunk_bytes: int, pooled: bool) -> Self: ...
    @property
    def ready(self) -> int:
        """Files that are ready."""

# --- mapped_file_queue.pyx

@final
class MappedFileQueue:
    """The ordered mapped files of one folder, or of several; the last one takes the appends.

    Invariant: flushed_where <= committed_where <= max_offset, and no byte below flushed_where is volatile.
    """

    folder: str
    more_folders: tuple[str, ...]
    file_size_bytes: int
    allocate_chunk_bytes: int
    pooled: bool
    readonly: bool

    def __new__(
        cls,
        folder: str,
        file_size_bytes: int,
        *,
        allocate_chunk_bytes: int = 0,
        pooled: bool = False,
        readonly: bool = False,
        more_folders: Iterable[str] = (),
        choose: Callable[[int], str] | None = None,
    ) -> Self:
        """Name the folder; `load` opens it.

        Args:
            folder: Where the files are.
            file_size_bytes: Size of every file, below 2**31.
            allocate_chunk_bytes: Allocate blocks in steps of this size; 0: a whole file at once.
            pooled: Append to memory; `commit` moves the bytes to the file, and only then readers see them.
            readonly: Change nothing in the folder.
            more_folders: Where others of the files are.
            choose: Called with the start offset of a new file, returns its folder; None: `folder`.
        """
    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The mapped files, in order."""
    @property
    def min_offset(self) -> int:
        """Physical offset of the first file's start; -1 when there is none."""
    @property
    def max_offset(self) -> int:
        """Physical offset of the end of what readers may see; 0 when there is no file."""
    @property
    def wrote_where(self) -> int:
        """Physical offset of the end of what was appended, pooled bytes included."""
    @property
    def committed_where(self) -> int:
        """Physical offset up to which bytes are in their files; equals `max_offset`."""
    @property
    def flushed_where(self) -> int:
        """Physical offset up to which bytes are durable."""
    @property
    def flush_count(self) -> int:
        """Flushes that made something durable."""
    @property
    def flush_total_ns(self) -> int:
        """Time they took together."""
    @property
    def flush_longest_ns(self) -> int:
        """Time that the longest took."""
    @property
    def next_file_offset(self) -> int:
        """Physical offset of the start of the file that follows the last one."""
    @property
    def failed(self) -> OSError | None:
        """The error that makes the queue reject all further writes, or None."""
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def files_ahead(self) -> int:
        """Files that the allocator has ready."""
    def load(self) -> None:
        """Map the files of the folder, all positions at their ends; recovery then sets the true end.

        A writer creates a missing folder and removes a last file of zero bytes, as upstream does; it
        rejects a folder with foreign files. A reader ignores them, and takes a truncated file as it is.

        Raises:
            StoreFormatError: a file has another size than `file_size_bytes`, or does not belong here.
        """
    def find_file(self, offset: int) -> MappedFile | None:
        """The mapped file that holds a physical offset, or None."""
    def last_file(self, start_offset: int = 0) -> MappedFile:
        """The file that takes appends; a new one when the last is full, or to hold `start_offset`.

        Args:
            start_offset: Offset (bytes) that the first file of an empty folder is to hold.
        """
    def view(self, end_offset: int | None = None) -> LogView:
        """A LogView of everything readable, or of what lies below `end_offset` (bytes).

        Cost: O(1) while nothing was appended since the last call, else one step per file.
        """
    def run_allocator(self, depth: int = 0) -> None:
        """Make files ahead of the appends, `depth` at most, until `stop_allocator`; the body of one thread.

        Depth 0 is two files, or up to eight small ones that hold 64 MiB together.
        Holds the interpreter lock neither while it waits nor while it works. Where making a file fails,
        the append that needs it gets the error, and the next one makes it try again.
        """
    def stop_allocator(self) -> None:
        """Let `run_allocator` return; its unused files are removed."""
    def commit(self, least_pages: int = 0) -> bool:
        """Move pooled bytes into the file that holds `committed_where`; True if any moved. See `flush`.

        Raises:
            StoreFailedError: the write failed; the queue takes no more writes.
        """
    def flush(self, least_pages: int = 0) -> bool:
        """Make the file that holds `flushed_where` durable up to its committed position; True if that moved.

        Acts when the file is full, when the committed position is `least_pages` page borders (4,096
        bytes) past the flushed one, or with 0 pages when anything is volatile. One file a call, in order:
        `flushed_where` never passes a volatile byte.

        Raises:
            StoreFailedError: this or an earlier flush failed. The queue takes no more writes.

        Durability: bytes below `flushed_where`, and the names of their files, survive power loss.
        Source: RocketMQ store/.../MappedFileQueue.java, DefaultMappedFile.java (isAbleToFlush).
        """
    def set_end(self, offset: int) -> None:
        """Set the end after recovery, in the last file. No byte is changed; what is there is made durable.

        The bytes beyond must be zero: use `truncate` where they may not be.

        Args:
            offset: Physical offset of the new end.
        """
    def truncate(self, offset: int) -> None:
        """Truncate the log at `offset`: later files are deleted, the rest of its file is zeroed.

        Args:
            offset: Physical offset of the new end.

        Durability: on return no byte beyond `offset` can come back, and all before it survives power loss.
        A crash meanwhile leaves a log that ends at `offset` or later; truncate it again. Views made before
        may see zeroes beyond `offset`. Appends wait meanwhile.
        """
    def delete_head(self, count: int) -> list[str]:
        """Remove the first `count` files, never the last; return their paths. Views keep their bytes."""
    def close(self) -> None:
        """Reject appends and unmap files without views. Files made ahead are removed. Does not flush."""

# --- group_commit.pyx

@final
class GroupCommit:
    """Callers wait until an offset is durable; one thread flushes for all of them.

    The flush thread: `while not commit.closed: commit.serve(queue, 500)`, or by hand
    `wait_for_request`, flush, `publish`, and `fail` when the flush failed. A caller flushes itself where
    `let_callers_flush` allows it and no other thread does. Invariants: `flushed_where` only
    grows; no caller returns before its bytes are durable; after `fail` or `close` it does not move.
    """

    path: str

    def __init__(self, path: str = "", *, flushed_where: int = 0) -> None: ...
    @property
    def flushed_where(self) -> int:
        """Physical offset below which bytes are durable."""
    @property
    def requested_where(self) -> int:
        """Highest physical offset that a caller waits, or waited, for."""
    @property
    def failed(self) -> bool:
        """Whether a flush failed."""
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    def wait(self, offset: int, timeout_ms: int) -> bool:
        """Wait until bytes below `offset` are durable.

        Args:
            offset: Physical offset (bytes) of the end of the record.
            timeout_ms: Longest wait (ms, monotonic clock); negative: no limit.

        Returns:
            False when the time passed: the record is stored, its durability is not known.

        Raises:
            StoreFailedError: a flush failed; its error is the cause.
            StoreClosedError: closed meanwhile, or made before a fork.

        Cost: releases the GIL. Callers whose flush is done take the GIL one after another.
        Durability: True means that the bytes survive power loss.
        """
    def register(self, offset: int, loop: AbstractEventLoop, timeout_ms: int = -1) -> Future[bool]:
        """Wait in an event loop: a future that is done when bytes below `offset` are durable.

        Args:
            offset: Physical offset (bytes) of the end of the record.
            loop: The running loop of this thread. It must be able to watch a file descriptor.
            timeout_ms: As for `wait`.

        Returns:
            A future of the loop. It gives what `wait` returns, or ends with StoreFailedError or
            StoreClosedError as `wait` would; it may be cancelled.

        Cost: the flush is requested in the loop's next iteration, once for all tasks that ran in this one. A
        flush wakes a loop once, without the GIL, and the loop answers all futures it reached. One timer
        serves all.
        """
    def wait_for_request(self, timeout_ms: int) -> bool:
        """Sleep in the flush thread until a caller waits for more than is flushed.

        Args:
            timeout_ms: Longest wait (ms, monotonic clock); negative: no limit.

        Returns:
            Whether there is such a request. False also when closed or failed while asleep.
        """
    def serve(self, queue: MappedFileQueue, timeout_ms: int, flushed: EventNotifier | None = None) -> int:
        """Be the flush thread of a queue for a while: flush it for every request, without the GIL in between.

        Args:
            queue: Flushed file after file. Its `flush`, `truncate` and `delete_head` wait for one flush at
                most. Pooled bytes must be committed before a caller waits for them.
            timeout_ms: Return after this time (ms, monotonic clock), such as 500.
            flushed: Woken after every flush.

        Returns:
            `flushed_where`.

        Raises:
            StoreFailedError: a flush failed. Queue and group are latched: all waiters get it too.
            StoreClosedError: queue or group is closed.
        """
    def let_callers_flush(self, queue: MappedFileQueue, flushed: EventNotifier | None = None) -> None:
        """Let `wait` flush the queue itself when no flush is running: a single caller needs no other thread.

        A caller that leads finishes its flush, whatever its timeout; if it took longer, `wait` is False.
        Where flushes take 20 ms, or the timeout is 0, no caller leads. A flush thread is needed as before.

        Args:
            queue: The queue that the flush thread serves.
            flushed: Woken after every flush of a caller.
        """
    def publish(self, flushed_where: int) -> None:
        """Notify all waiters that bytes below `flushed_where` (physical offset, bytes) are durable."""
    def fail(self, cause: BaseException | None = None) -> None:
        """Latch a failed flush: present and later waiters get StoreFailedError with this cause."""
    def close(self) -> None:
        """End all waiting: waiters get StoreClosedError. Publish a last flush before."""

# --- commit_futures.pyx

@final
class CommitFutures:
    """What the tasks of one event loop wait for; `GroupCommit.register` makes it."""

    def request_flush(self) -> None:
        """Request the flush of all that is pending; the event loop calls this after its tasks."""
    def drain(self) -> None:
        """Complete the futures that were reached; the event loop calls it after a flush."""
    def expire(self) -> None:
        """Complete with False the futures that timed out; the event loop calls this."""

# --- journal_writer.pyx

@final
class JournalWriter:
    """The end of a bookie's journal: one thread appends, another one writes and syncs in `run`.

    Each synced batch is padded to a multiple of 512 bytes, and the padding contains a seal; see
    `pyledger.wire.bookkeeper.journal`.

    Attributes:
        path: The file that is written.
        syncs: How many batches are durable.
    """

    path: str
    syncs: int

    def __init__(
        self, *, file_bytes_max: int, allocate_bytes: int, group_wait_ms: int = 0, group_bytes: int = 524288
    ) -> None:
        """A writer without a file; `open_file` gives it one.

        Args:
            file_bytes_max: Size at which a file is full.
            allocate_bytes: Bytes to allocate ahead; 0: none.
            group_wait_ms: How long a batch waits for more records.
            group_bytes: A batch of at least this size does not wait.
        """

    def append(self, record: Buffer) -> int:
        """Append one record, its length included; nothing is written before `kick`.

        Returns: `appended` after it: the record is durable once `synced` is not less.

        Raises:
            StoreFailedError: An earlier write failed.
            StoreClosedError: The writer was closed.
        """

    def kick(self) -> None:
        """Request a write of everything appended so far."""

    @property
    def event_fd(self) -> int:
        """Descriptor that is readable after a sync, and when the writer failed, until `clear_event`."""

    def clear_event(self) -> None:
        """Make `event_fd` unreadable until the next sync or failure."""

    @property
    def appended(self) -> int:
        """Bytes of all records that were appended."""

    @property
    def written(self) -> int:
        """Bytes of these that were written to the operating system."""

    @property
    def synced(self) -> int:
        """Bytes of these that are on disk."""

    @property
    def mark(self) -> tuple[int, int]:
        """File number and position (bytes) up to which everything is on disk."""

    @property
    def failed(self) -> bool:
        """Whether a write or sync failed. Records that are not on disk by then are lost."""

    def open_file(self, path: str, fd: int, number: int, position: int) -> None:
        """Continue in another file, which has its header (`position` bytes); `run` must not be active."""

    def run(self) -> bool:
        """Write and sync what is appended, without the GIL, until the file is full or the writer was closed.

        Returns: True: the file is full. False: closed, and all is on disk.

        Raises:
            StoreFullError: The disk is full; the writer has failed.
            StoreIOError: The operating system reported an error; the writer has failed.
        """

    def fail(self, cause: BaseException) -> None:
        """Mark the writer as failed, for example because no new file can be created."""

    def close(self) -> None:
        """Accept no more records; `run` returns once everything is on disk."""

# --- add_decoder.pyx

@final
class AddIntake:
    """Decodes batches of plain adds and passes their entries to the write cache and the journal.

    The result is the same as that of `protocol.bookkeeper.bookie.BookieRules`, which handles everything that
    is not plain: other requests, new or fenced ledgers, wrong keys, flags, and entries whose ids differ from
    those of their request.
    """

    def __init__(
        self,
        writers: tuple[JournalWriter, ...],
        ledgers: dict[int, Any],
        last_ids: dict[int, int],
        *,
        entry_id_max: int,
        step_max: int,
    ) -> None:
        """An intake of one bookie.

        Args:
            writers: Its journals. The ledger id modulo their number selects the journal of a ledger.
            ledgers: All known ledgers, with `master_key`, `fenced` and `last_add_confirmed`.
            last_ids: The highest entry id of each ledger.
            entry_id_max: The highest entry id that can be stored.
            step_max: An entry id that exceeds the last one of its ledger by more than this is not plain.
        """

    def take(
        self, frames: list[memoryview], at: int, cache: dict[int, dict[int, bytes]], *, version2: bool
    ) -> tuple[int, bytes, int, list[int]]:
        """Decode the batch of plain adds that begins at a frame, and append it to its journal.

        Args:
            frames: Frames without their length words.
            at: Index of the first frame to decode.
            cache: Receives the entries, by ledger id and entry id.
            version2: Whether the frames use version 2 of the protocol instead of version 3.

        Returns: The number of adds taken, all of one journal; their responses, to be sent once the journal is
        on disk up to its `appended`; the bytes of the entries; their ledgers.

        Raises:
            StoreFailedError: The journal has failed.
        """

# --- record_encoder.pyx

def copy_and_digest(target: Buffer, bodies: list[bytes]) -> int:
    """Copy bodies one after the other into a writable buffer and digest each; return the last CRC.

    Every append must do at least this work, so benchmarks compare appends with it.
    """

# --- commit_log.pyx

@final
class CommitLog:
    """The one physical log of a broker.

    Invariant: the queue offsets of one (topic, queue) are dense, and store timestamps never fall along the
    log unless the caller sets them.
    """

    queue: MappedFileQueue
    store_host: tuple[str, int]
    max_message_size_bytes: int
    last_store_timestamp_ms: int
    crc_property: bool
    strict_topics: bool

    def __new__(
        cls,
        queue: MappedFileQueue,
        *,
        store_host: tuple[str, int] = ("127.0.0.1", 10911),
        max_message_size_bytes: int = 4 << 20,
        crc_property: bool = False,
        strict_topics: bool = True,
        last_store_timestamp_ms: int = 0,
        notifier: EventNotifier | None = None,
        entries: DLedgerLog | None = None,
    ) -> Self:
        """Append to a loaded and recovered queue of files.

        Args:
            queue: Where the records are written.
            store_host: Address literal (IPv4 or IPv6) and port, as stored in every record.
            max_message_size_bytes: Limit of a body, and of the body of a batch.
            crc_property: End every record with 5.x's CRC property over the whole of it.
            strict_topics: Allow the topic names that upstream allows; else any that can name a folder.
            last_store_timestamp_ms: Store time of the last record that is there.
            notifier: Woken after every append.
            entries: The DLedger log that `queue` is the data of: each record becomes the body of an entry of
                its `term`. One thread appends then. None: the log holds records alone.
        """
    def appender(self, topic: str, queue_id: int) -> QueueAppender:
        """Return the appender of one queue, always the same object.

        Raises:
            IllegalMessageError: the topic's name or the queue id is not allowed.
        """
    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset (units) that the next message of a queue gets; 0 for an unknown queue."""
    def set_next_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set it (units) after a recovery, before the first append."""
    def note_store_timestamp(self, timestamp_ms: int) -> None:
        """Note that a record of this store time (ms) was written otherwise; later ones are not older."""
    def reject_appends(self, make_error: Callable[[], Exception] | None) -> None:
        """Let every append fail with the error that `make_error` returns; None: accept appends again."""
    def append(
        self,
        topic: str,
        queue_id: int,
        body: Buffer,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | bytes | None = None,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        store_timestamp_ms: int = 0,
        queue_offset: int = -1,
    ) -> tuple[int, int, int, int]:
        """Append one fully described message.

        Args:
            topic: Its topic.
            queue_id: Its queue.
            body: Any bytes-like object.
            tags: TAGS property; an empty one counts as none.
            keys: KEYS property, separated by single spaces.
            properties: A mapping, or bytes in the stored form (name 0x01 value 0x02 …), kept as they are.
            flag: The application's number.
            sys_flag: See docs/formats/commit_log.md; the host bits are set by the log.
            born_timestamp_ms: 0: the store timestamp.
            born_host: (address literal, port); None: the store host.
            reconsume_times: Deliveries that failed.
            prepared_transaction_offset: Physical offset of the half message of a committed one.
            store_timestamp_ms: 0: now, or the last record's where the clock stepped back.
            queue_offset: -1: the next one of the queue. Else it is stored, and the queue continues after it.

        Returns:
            (physical_offset, size_bytes, queue_offset, store_timestamp_ms).

        Raises:
            IllegalMessageError: the message could not be read back.
            RecordTooLargeError: body, properties or record exceed a limit.
            StoreFullError: no space for a new file; nothing was written.
            StoreFailedError: an earlier flush failed.
            StoreClosedError: closed, or opened before a fork.

        Durability: none yet; see `MappedFileQueue.flush`.
        Source: RocketMQ store/.../CommitLog.java, MessageExtEncoder.java.
        """
    def append_messages(self, messages: Sequence[Message]) -> list[tuple[int, int, int, int]]:
        """Append messages, to any queues: all of them, or none.

        Their records follow each other in one file. `delay_level` is left to the caller.

        Returns:
            What `append` returns, for each message.

        Raises:
            IllegalMessageError: as `append`, for any of them.
            RecordTooLargeError: as `append`, or the messages together do not fit into one file.
            StoreFullError: no space for all; nothing was written.

        Cost: one encode and one CRC for each message, under the interpreter lock.
        """
    def append_encoded_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        *,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
        store_timestamp_ms: int = 0,
    ) -> list[tuple[int, int, int, int]]:
        """Append the messages of a client's batch body as records of their own, all in one file.

        Args:
            topic: Topic of all.
            queue_id: Queue of all.
            batch: i32 size, i32 0, i32 0, i32 flag, i32 bodyLength, body, i16 propertiesLength, properties;
                for each message.
            sys_flag: As in `append`; a transaction type other than none is rejected.
            born_timestamp_ms: As in `append`.
            born_host: As in `append`.
            reconsume_times: As in `append`.
            store_timestamp_ms: As in `append`.

        Returns:
            What `append` returns, for each message.

        Raises:
            IllegalMessageError: the batch does not add up; nothing was written.
            RecordTooLargeError: the batch exceeds the body limit, or does not fit into one file.
        """
    def append_inner_batch(
        self,
        topic: str,
        queue_id: int,
        batch: Buffer,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | bytes | None = None,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
        store_timestamp_ms: int = 0,
    ) -> tuple[int, int, int, int, int]:
        """Append a client's batch body as one record, for a queue of batches (`queue.type=BatchCQ`).

        The batch flags are set, INNER_NUM and INNER_BASE follow the properties given (which must not hold
        them), and the queue advances by the number of messages.

        Args:
            topic: As in `append`.
            queue_id: As in `append`.
            batch: As in `append_encoded_batch`.
            tags: As in `append`.
            keys: As in `append`.
            properties: As in `append`.
            flag: As in `append`.
            sys_flag: As in `append_encoded_batch`.
            born_timestamp_ms: As in `append`.
            born_host: As in `append`.
            reconsume_times: As in `append`.
            store_timestamp_ms: As in `append`.

        Returns:
            (physical_offset, size_bytes, queue_offset, store_timestamp_ms, count).

        Raises:
            IllegalMessageError: the batch does not add up; nothing was written.
            RecordTooLargeError: a limit is exceeded.
        """
    def append_rows(
        self,
        topic: str,
        queue_ids: Buffer,
        body_offsets: Buffer,
        bodies: Buffer,
        property_offsets: Buffer,
        properties: Buffer,
        born_ms: Buffer,
        *,
        store_timestamp_ms: int = 0,
    ) -> None:
        """Append one message for each row, in their order. Other threads' records may follow any of them.

        Args:
            topic: Topic of all rows.
            queue_ids: The queue of each row (int32).
            body_offsets: Where the body of each row begins, and where the last one ends (int32).
            bodies: All bodies.
            property_offsets: The same of properties.
            properties: In the stored form, name 0x01 value 0x02 …, tags and keys included.
            born_ms: Born timestamp of each row (int64, ms); 0: the store timestamp.
            store_timestamp_ms: Store time of all (ms); 0: now.

        Raises:
            IllegalMessageError: the columns do not fit together; nothing was written.
            RecordTooLargeError: a row exceeds a limit; those before it were written.
            StoreFullError: no space for a new file; the rows before were written.

        Durability: none yet; see `MappedFileQueue.flush`.
        """

# --- queue_appender.pyx

@final
class QueueAppender:
    """Appends to one queue, with a header that is encoded once; see `CommitLog.appender`."""

    log: CommitLog
    topic: str
    queue_id: int

    @property
    def next_queue_offset(self) -> int:
        """Queue offset (units) that the next message gets."""
    def put(
        self,
        body: Buffer,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | bytes | None = None,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        store_timestamp_ms: int = 0,
    ) -> int:
        """Append one message; return its physical offset (bytes). Arguments as `CommitLog.append`.

        Cost: one encode and one CRC under the interpreter lock; no system call while the file has free space.
        """
    def put_many(
        self,
        bodies: Sequence[Buffer],
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | bytes | None = None,
        *,
        born_timestamp_ms: int = 0,
        store_timestamp_ms: int = 0,
    ) -> int:
        """Append many messages that share all but their bodies; return the physical offset of the first.

        Nothing is written when any body is rejected. Other threads' messages may be appended in between.

        Args:
            bodies: Bytes-like objects, at least one.
            tags: As in `CommitLog.append`, for all.
            keys: As in `CommitLog.append`, for all.
            properties: As in `CommitLog.append`, for all.
            born_timestamp_ms: As in `CommitLog.append`, for all.
            store_timestamp_ms: As in `CommitLog.append`, for all.
        """

# --- row_append.pyx

def choose_queues(
    wanted: Buffer, key_offsets: Buffer, keys: Buffer, queue_count: int, spread: int
) -> tuple[bytearray, int]:
    """Choose the queue of each row: the wanted one, else by the hash of its keys as RocketMQ's producers do.

    Rows with neither are spread over all queues, round robin.

    Args:
        wanted: Queue ids (int32); negative: any.
        key_offsets: Where the keys of each row begin, and where those of the last end (int32).
        keys: UTF-8; empty for a row without keys.
        queue_count: Number of queues to choose from.
        spread: Rows that were spread round robin before.

    Returns:
        (queue ids as int32 in native order, rows that have been spread by now).
    """

# --- durable_appender.pyx

@final
class DurableAppender:
    """Appends to one queue of a store with sync flush; returns once the messages are on disk.

    It has the methods of `QueueAppender`, which a store with async flush returns instead.
    """

    appender: QueueAppender

    def __init__(self, appender: QueueAppender, group: GroupCommit, timeout_ms: int) -> None: ...
    @property
    def topic(self) -> str:
        """Topic of the queue."""
    @property
    def queue_id(self) -> int:
        """Number of the queue."""
    @property
    def next_queue_offset(self) -> int:
        """Queue offset (units) that the next message gets."""
    def put(
        self,
        body: Buffer,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | bytes | None = None,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        born_host: tuple[str, int] | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        store_timestamp_ms: int = 0,
    ) -> int:
        """Append one message and wait until it is on disk; its physical offset (bytes).

        Raises:
            FlushTimeoutError: it is stored, but the flush was late.
            StoreFailedError: the flush failed.

        Cost: one native call; waits without the GIL.
        """
    def put_many(
        self,
        bodies: Sequence[Buffer],
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | bytes | None = None,
        *,
        born_timestamp_ms: int = 0,
        store_timestamp_ms: int = 0,
    ) -> int:
        """Append many messages and wait until all are on disk; the physical offset (bytes) of the first.

        Raises:
            FlushTimeoutError: they are stored, but the flush was late.
            StoreFailedError: the flush failed.
        """

# --- scan.pyx

@final
class ScanStop:
    """Where and why a walk ended, and what it found."""

    next_offset: int
    """Physical offset (bytes) where the next record was expected."""
    status: str
    """end, zeroes (both ordinary), short, bad magic, bad size, bad crc, bad position or torn."""
    record_count: int
    blank_count: int
    last_record_offset: int
    """Physical offset of the last valid record; -1 without one."""
    last_store_timestamp: int
    ordinary: bool
    """Whether the walk ended as an undamaged log ends: at the range's end or at zeroes."""
    problem: str
    """The fault in words; empty after an ordinary end."""

def scan(
    view: LogView,
    start: int,
    end: int | None = None,
    *,
    check: bool = True,
    check_tail: bool = False,
    progress: Callable[[int], object] | None = None,
) -> ScanStop:
    """Walk the records that start in [start, end) and check each one.

    Args:
        view: Where to read.
        start: Physical offset (bytes) of a record or a blank record.
        end: Physical offset (bytes); None is the view's end.
        check: Check the body CRC and, where a record ends in it, the CRC property. Lengths and the stored
            physical offset are always checked.
        check_tail: Check that no page after the body was lost, which only a crash does: a record with a page
            of zeroes where its topic or properties should be is "torn".
        progress: Called with the physical offset reached, about every 32 MiB.

    Returns:
        Where the walk stopped and why.

    Cost: one pass over the bytes, without the interpreter lock.
    """

def split_log(
    view: LogView, start: int, end: int, *, step_bytes: int, step_records: int | None = None
) -> list[int]:
    """Split [start, end) into ranges that begin at records.

    Args:
        view: Where to read.
        start: Physical offset (bytes) of a record.
        end: Physical offset (bytes).
        step_bytes: Bytes of a range, rounded up to whole records.
        step_records: Records of a range at most; None sets no limit.

    Returns:
        Physical offsets at which ranges begin, `start` first. Damage belongs to the range before it.

    Cost: touches the head of every record, without the interpreter lock; digests nothing.
    """

def find_next_record(view: LogView, offset: int, end: int | None = None) -> int | None:
    """The first physical offset in [offset, end) of a whole valid record, or None.

    Readers use it to continue after damage: magic code, lengths, stored position and CRCs must all hold.
    """

# --- cold_index.pyx

class ColdIndex:
    """The index of a cold segment: what each block holds.

    Args:
        file: A mapped cold segment.

    Raises:
        StoreFormatError: the digest of the index does not match.
    """

    def __init__(self, file: MappedFile) -> None: ...
    def __len__(self) -> int: ...
    @property
    def topic_names(self) -> list[str]:
        """All topics of the segment, sorted."""
    @property
    def record_count(self) -> int:
        """Records of the segment."""
    def block(self, number: int) -> tuple[int, int, int, int, int, int, list[str]]:
        """(physical offset, bytes, bytes in the file, records, least and greatest store time, topics)."""
    def ranges(
        self,
        topics: Iterable[str] | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[tuple[int, int]]:
        """Physical offsets [start, end) of the blocks that may hold wanted records, neighbours joined.

        Args:
            topics: Names of wanted topics; None wants all.
            since_ms: Least store time (ms).
            until_ms: End of the store times (ms), excluded.
        """
    def damaged_blocks(self) -> list[int]:
        """Numbers of the blocks whose bytes do not match their digest. Decompresses every block."""

def survey_blocks(
    view: LogView, start: int, end: int, block_bytes: int
) -> tuple[list[tuple[int, int, int, int, set[bytes]]], ScanStop]:
    """Split a sealed file of the log into blocks of whole records, and describe each.

    Args:
        view: Where to read: files that are not compressed.
        start: Physical offset (bytes) of the file.
        end: Physical offset (bytes) of its end.
        block_bytes: Most bytes of a block. What is longer than that, a record or what follows the last one,
            takes several.

    Returns:
        [(physical offset, records that start in it, least and greatest store time (ms), set of topics in
        UTF-8)], and the `ScanStop` of the walk. Every digest is checked.
    """

# --- dledger_scan.pyx

DLedgerEntryTuple = tuple[int, int, int, int, bytes, int, int, int, int]
"""index, term, pos, size, body, magic, channel, chain_crc, body_crc of an entry of a DLedger log."""

@final
class EntryStop:
    """Where and why a walk over a DLedger log ended, and what it found."""

    status: str
    @property
    def next_offset(self) -> int:
        """Where the next entry was expected (bytes)."""
    @property
    def entry_count(self) -> int:
        """Entries met."""
    @property
    def first_index(self) -> int:
        """Index of the first entry met; -1 for none."""
    @property
    def first_offset(self) -> int:
        """Offset of the first entry (bytes); -1 for none."""
    @property
    def last_index(self) -> int:
        """Index of the last entry met; -1, or what the walk was given, for none."""
    @property
    def last_term(self) -> int:
        """Its term."""
    @property
    def last_offset(self) -> int:
        """Its offset (bytes); -1 for none."""
    @property
    def unit_fault(self) -> int:
        """The first index whose unit is missing or differs; -1 for none."""
    @property
    def sealed_count(self) -> int:
        """Entries whose checksums we wrote, and which match."""
    @property
    def problem(self) -> str:
        """The fault in words; empty after an ordinary end."""

def scan_entries(
    view: LogView,
    start: int,
    *,
    units: LogView | None = None,
    last_index: int = -1,
    last_term: int = -1,
    any_position: bool = False,
    progress: Callable[[int], None] | None = None,
) -> EntryStop:
    """Walk the entries of a DLedger log by the rules of Java's recovery.

    Args:
        view: The data files.
        start: Offset (bytes) of an entry or a filler.
        units: The index files; each unit is compared with its entry until the first that differs.
        last_index: Index of the entry before `start`; -1: any may come.
        last_term: Its term.
        any_position: The rules of generation B: entries may name another position, no-ops are entries.
        progress: Called with the offset reached (bytes), about every 32 MiB.

    Returns:
        Where the walk stopped and why. `status` is "end" or "zeroes" (both ordinary), "short", "bad magic",
        "bad size", "bad position", "bad index", "bad term", or "bad crc" for a sealed entry.

    Cost: one pass over the bytes, without the interpreter lock.
    """

@final
class EntryScan:
    """Iterates over the entries of a DLedger log from an offset on; checks each as `scan_entries` does."""

    stop: EntryStop | None
    def __new__(
        cls,
        view: LogView,
        start: int,
        *,
        last_index: int = -1,
        last_term: int = -1,
        any_position: bool = False,
    ) -> Self:
        """Begin at an offset (bytes)."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> DLedgerEntryTuple: ...

def read_entry(view: LogView, offset: int) -> DLedgerEntryTuple:
    """The entry at an offset (bytes) of the data files, its checksum checked.

    Raises:
        CorruptRecordError: no valid entry starts there.
    """

def seal_entry(head: bytes, body: bytes) -> tuple[int, int]:
    """The checksums `(chain_crc, body_crc)` that seal an entry.

    Args:
        head: Its first 48 bytes; the two fields may hold anything.
        body: Its body.
    """

# --- dledger_log.pyx

@final
class DLedgerLog:
    """The data and index files of a DLedger log, appended to and read together.

    Invariant: entries begin_index..end_index are contiguous and each has its unit at index * 32.
    """

    data: MappedFileQueue
    units: MappedFileQueue
    begin_index: int
    end_index: int
    end_term: int
    term: int
    """Of the entries that a `CommitLog` makes of its records."""
    seal: bool
    patch_at: int
    def __new__(
        cls, data: MappedFileQueue, units: MappedFileQueue, *, seal: bool = True, patch_at: int = -1
    ) -> Self:
        """Join the two queues.

        Args:
            data: The data files.
            units: The index files.
            seal: Fill the two checksum fields of entries that have none.
            patch_at: Position (bytes) in a body where a leader writes the physical offset of that body, as
                RocketMQ's messages name theirs; -1: nowhere.
        """
    def set_range(self, begin_index: int, end_index: int, end_term: int) -> None:
        """Set what the files hold, after recovery, truncation or removal of files."""
    def close(self) -> None:
        """Close data and index files."""
    def clear(self) -> None:
        """Remove all files; the log is empty afterwards.

        Durability: the files are gone on return; a crash meanwhile leaves the first ones.
        """
    def clear_units(self) -> None:
        """Remove all index files; `start_units` and `put_units` make new ones."""
    @property
    def end_offset(self) -> int:
        """Where the next entry starts, or the filler before it (bytes)."""
    def append_many(self, term: int, bodies: Sequence[Buffer]) -> list[int]:
        """Append entries as a leader; return their offsets (bytes).

        Raises:
            RecordTooLargeError: longer than 4 MiB with its head, or than a data file. Nothing was appended.
            StoreFullError: the disk is full; the entries before the one that failed were appended.

        Durability: none yet; see `MappedFileQueue.flush`.
        """
    def append_bodies(self, term: int, data: Buffer) -> list[int]:
        """As `append_many`, for bodies that each follow their length (i32); see `count_bodies`."""
    def append_batch(self, data: Buffer) -> int:
        """Append entries of a leader as `read_batch` returns them, each at its own offset; verify checksums.

        Returns:
            Number of entries appended. The first one that is damaged, out of sequence, or would get another
            offset than the leader's ends the batch.

        Raises:
            StoreFullError: there is no space for the first of them.
        """
    def append_entry(
        self,
        index: int,
        term: int,
        pos: int,
        magic: int,
        channel: int,
        chain_crc: int,
        body_crc: int,
        body: Buffer,
    ) -> None:
        """Append an entry of a leader as it is.

        Args:
            index: Must be the next one.
            term: Of the entry.
            pos: The leader's offset of the entry (bytes), which must match ours. -1: any offset.
            magic: 1, or 2 for a no-op.
            channel: As sent.
            chain_crc: As sent.
            body_crc: As sent.
            body: Its bytes.

        Raises:
            OffsetOutOfRangeError: `index` is not the next one.
            EntryPositionError: it would get another offset; nothing was written.
        """
    def start_at(self, index: int, pos: int, term: int) -> None:
        """Let a log without files begin with entry `index` at `pos` (bytes), after one of `term`.

        The part of its file before `pos` becomes a head filler, which Java's generation A does not know.
        """
    def start_units(self, index: int) -> None:
        """Let an index without files begin with the unit of entry `index`."""
    def put_units(self, start: int) -> None:
        """Append index units for the entries at offset `start` (bytes) and after it."""
    def read(self, index: int) -> DLedgerEntryTuple:
        """The entry of an index.

        Raises:
            OffsetOutOfRangeError: there is no such entry.
            CorruptRecordError: its unit or its checksum does not match it.
        """
    def read_batch(self, first: int, count_max: int, bytes_max: int) -> tuple[bytes, int, int]:
        """Read entries from index `first` on: at least one, at most `count_max` and about `bytes_max` bytes.

        Returns:
            Their bytes as stored, without fillers; `first`; the number of entries.

        Raises:
            OffsetOutOfRangeError: there is no such entry.
            CorruptRecordError: the unit or the checksum of one does not match it.
        """
    def term_of(self, index: int) -> int:
        """The term of an entry, from its index unit."""
    def position_of(self, index: int) -> int:
        """Where an entry starts (bytes), from its index unit."""

# --- dledger_entries.pyx

def measure_entries(data: Buffer) -> tuple[int, int] | None:
    """First index and count of stored entries; None if they are not consecutive up to the end of `data`."""

def count_bodies(data: Buffer) -> int:
    """Number of bodies, each after its length (i32); -1 if the lengths do not add up."""

# --- stored_message.pyx

def set_body_decompressor(function: Callable[..., bytes]) -> None:
    """Set the function that decompresses bodies: `function(body, sys_flag, *, limit_bytes, place) -> bytes`.

    The codecs are Python packages that import this module; `pyledger.store` passes them in.
    """

@final
class StoredMessage:
    """One record of the log. Attributes are decoded when read; the record's file stays mapped meanwhile.

    Text is UTF-8 as Java decodes it: what is ill-formed becomes U+FFFD. Timestamps are ms since the epoch.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    """Bytes of the whole record."""
    layout: int
    """1, or 2 for records with a two-byte topic length."""
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    """ip:port, IPv6 in brackets."""
    store_timestamp: int
    store_host: str
    """ip:port, IPv6 in brackets."""
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body_length: int
    """Bytes of the body as stored."""
    tags_code: int
    """What a consume queue unit holds: the hash of TAGS, or in the delay topic the delivery time."""
    transaction_type: int
    """0 none, 4 prepared, 8 commit, 12 rollback: the bits of `sys_flag`."""
    is_indexed: bool
    """Whether a consume queue names the record: prepared and rollback records are in none."""
    body: bytes
    """The stored bytes, perhaps compressed."""
    body_view: memoryview
    """The stored bytes without a copy; the file cannot be closed while the view lives."""
    plain_body: bytes
    """The body, decompressed if `sys_flag` marks it as compressed; at most 64 MiB."""
    def decompress_body(self, limit_bytes: int = 67108864) -> bytes:
        """The body, decompressed if `sys_flag` marks it as compressed.

        Raises:
            CorruptBodyError: the bytes are damaged, or would decompress to more than `limit_bytes`.
        """

    properties: dict[str, str]
    """All properties as Java keeps them: empty names and values dropped, the last of several wins."""
    tags: str | None
    keys: str | None
    unique_key: str | None
    msg_id: str
    """RocketMQ's offset message id: store host and physical offset in upper-case hex."""
    record_view: memoryview
    """The whole record as stored, without a copy: what a pull sends."""

def read_message(view: LogView, offset: int, *, check: bool = True) -> StoredMessage:
    """The message at a physical offset.

    Args:
        view: Where to read.
        offset: Physical offset (bytes) of a record.
        check: Check the body CRC and the CRC property; lengths and stored position are always checked.

    Raises:
        OffsetOutOfRangeError: `offset` is outside the view.
        CorruptRecordError: there is no valid record.
    """

def read_messages(view: LogView, units: Buffer, *, check: bool = True) -> list[StoredMessage]:
    """The messages that consume queue units (20 raw bytes each) name, in their order.

    Args:
        view: Where to read.
        units: Raw units.
        check: As in `read_message`.

    Raises:
        OffsetOutOfRangeError: a unit points outside the view.
        CorruptRecordError: a unit points to no valid record.
    """

@final
class MessageScan:
    """Iterator over the valid records of [start, end) in log order; `stop` has where and why it ended."""

    def __init__(self, view: LogView, start: int, end: int | None = None, *, check: bool = True) -> None: ...
    def __iter__(self) -> Iterator[StoredMessage]: ...
    def __next__(self) -> StoredMessage: ...
    stop: ScanStop | None
    """The `ScanStop` once the iteration is over; None before."""

# --- property_table.pyx

@final
class PropertyTable:
    """The properties of one record in native form; used by native code only."""

# --- row_filter.pyx

@final
class RowFilter:
    """Selects the records that become rows. An omitted condition accepts all; ranges are half open."""

    def __init__(
        self,
        *,
        queues: Iterable[tuple[str, int | None, int, int]] | None = None,
        store_range: tuple[int, int] = ...,
        born_range: tuple[int, int] = ...,
        tags: Iterable[str] | None = None,
        key: str | None = None,
        include_unindexed: bool = False,
    ) -> None:
        """Make a filter.

        Args:
            queues: Wanted queues: `(topic, queue_id or None for all of the topic, start, end)` with queue
                offsets in units; None wants everything. A batch kept as one record counts with all it holds.
            store_range: Store timestamps in ms, `(start, end)`.
            born_range: Born timestamps in ms, `(start, end)`.
            tags: Wanted tags, compared as text; None wants all, also records without tags.
            key: A key that must be among KEYS or be the unique key.
            include_unindexed: Take prepared and rollback records too, which no consumer reaches.
        """

# --- arrow_buffer.pyx

@final
class ArrowBuffer:
    """Memory of one column; freed with the last Arrow array that uses it."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

# --- unit_reader.pyx

@final
class UnitReader:
    """Reads the records that units name, in order; used by native code only."""

# --- columns.pyx

@final
class ColumnBuilder:
    """Fills the buffers of one Arrow batch after another from records of a log view."""

    columns: tuple[str, ...]
    row_count: int
    """Rows of the current batch."""
    next_offset: int
    """Physical offset (bytes) where `scan` continues."""
    next_index: int
    """Unit at which `gather` continues."""
    fault: str | None
    """What is wrong at `fault_offset`; None without a fault."""
    fault_offset: int
    """Physical offset (bytes)."""

    def __init__(
        self,
        columns: Iterable[str],
        row_filter: RowFilter | None = None,
        *,
        batch_rows: int = 8192,
        batch_bytes: int = 8388608,
        check_crcs: bool = True,
        decompress: bool = False,
        decompress_limit_bytes: int = 67108864,
    ) -> None:
        """Make a builder.

        Args:
            columns: Names of the wanted columns, in order.
            row_filter: Which records become rows; None takes all that consumers can reach.
            batch_rows: Rows of a batch at most.
            batch_bytes: Bytes of text and bodies of a batch at most, unless one row has more.
            check_crcs: Check body CRCs and CRC properties of the rows, whatever columns are wanted. Lengths
                and stored positions are always checked.
            decompress: Decompress bodies; one that cannot be decompressed is damage, whatever columns are
                wanted.
            decompress_limit_bytes: Most bytes that one body may decompress to.
        """

    def scan(self, view: LogView, start: int, end: int | None = None) -> bool:
        """Walk the records that start in [start, end) and append those wanted.

        Returns:
            True when the batch is full and more may follow; False when the range is walked or a fault was
            met: see `fault` and `fault_offset`. `next_offset` is where to continue.
        """

    def gather(self, view: LogView, units: Buffer, start: int = 0) -> bool:
        """Append the records that consume queue units name, from unit number `start` on, those wanted.

        Returns:
            True when the batch is full and more may follow; False when all units are done or a fault was
            met: see `fault` and `fault_offset`. `next_index` is the unit to continue with.
        """

    def finish(self) -> list[tuple[int, list[ArrowBuffer | None]]]:
        """Return the batch and start the next one.

        Returns:
            For each column `(null_count, buffers)`: validity or None, then values; for text and bytes
            validity or None, offsets, data; for properties offsets, name offsets, names, value offsets,
            values.
        """

# --- unit_queue.pyx

class UnitQueue:
    """Files of fixed-size units of one topic and queue: what both kinds of consume queue share."""

    folder: str
    """The queue's own folder."""
    topic: str
    queue_id: int
    file_size_bytes: int
    readonly: bool
    files: list[MappedFile]
    min_where: int
    """Byte offset of the first unit that names a record of the log."""

    @property
    def max_physical_offset(self) -> int:
        """End (batch queues: start) of the last record with a unit, in bytes of the log; -1 without one."""
    @property
    def end_where(self) -> int:
        """Byte offset of the end of the last unit."""
    @property
    def filled_units(self) -> int:
        """Queue offsets passed over since the queue was opened, filled or left out before its first file."""
    @property
    def flushed_where(self) -> int:
        """Byte offset up to which units are durable."""
    @property
    def incomplete(self) -> bool:
        """Whether `recover` dropped units of the queue, or units are missing from its files.

        Units that point beyond the log's end do not count. Missing units are not detected if the last pages
        of the queue are all zeroes; compare with the log to find them.
        """
    parked: bool
    """Whether files may be unmapped until a unit is needed."""
    def park(self, *, at_once: bool = False) -> None:
        """Unmap the files until a unit is needed, unless one was needed since the last call.

        Dispatch must not run meanwhile: see `Dispatcher.park`. Files with open views stay mapped.

        Args:
            at_once: Unmap the files even if a unit was needed.
        """
    def flush_is_due(self, least_pages: int) -> bool:
        """Whether `flush` would write anything."""
    def begin_flush(self) -> int:
        """Start an external flush; return the byte offset up to which it will make units durable."""
    def end_flush(self, end_where: int) -> None:
        """Note that an external flush has made everything below `end_where` (bytes) durable."""
    def flush(self, least_pages: int = 0) -> bool:
        """Make units durable when at least `least_pages` pages are dirty or a file is full; True if it did.

        Names of files that are new, or were found at opening, become durable with the first units, or with
        0 pages.

        Raises:
            StoreFailedError: this or an earlier flush failed.
        """
    def remove_files(self) -> None:
        """Delete all files, so that a queue whose first files are lost can be rebuilt from the log.

        Raises:
            StoreIOError: the operating system reported an error.
        """
    def sync(self) -> None:
        """Make all files and their names durable, including writes of an earlier process that was killed.

        Raises:
            StoreFailedError: the disk reported an error.
        """
    def close(self) -> None:
        """Close the files. Existing views of units stay readable until they are released."""

# --- queue_search.pyx

def search_units_by_time(
    units: Buffer,
    view: LogView,
    timestamp_ms: int,
    *,
    upper: bool = False,
    first_queue_offset: int = 0,
    min_queue_offset: int = 0,
    file_size_bytes: int = 6_000_000,
) -> int:
    """Queue offset for a store time over raw 20-byte units in memory, as `ConsumeQueue.offset_by_time`.

    Args:
        units: Raw units; the first has `first_queue_offset`.
        view: The log that they point into.
        timestamp_ms: Store time.
        upper: As of `offset_by_time`.
        first_queue_offset: In units.
        min_queue_offset: In units; the first that names a record of the log.
        file_size_bytes: Size of the queue's files. The search works file by file; results at file edges
            depend on it.
    """

# --- consume_queue_ext.pyx

@final
class ConsumeQueueExt:
    """Extended units of one queue, read-only. A tags code at or below -2147483649 is the address of one.

    An extended unit holds its size i16, tags code i64, store time i64, bit map size i16 and the bit map. Its
    address, which is the tags code of its 20-byte unit, is its byte offset less 2**63.
    """

    files: list[MappedFile]
    file_size_bytes: int

    def __init__(self, folder: str, topic: str, queue_id: int) -> None: ...
    def read(self, address: int) -> tuple[int, int, bytes] | None:
        """(tags code, store time in ms, bit map) of the unit at an address; None without one."""
    def tags_code(self, address: int) -> int:
        """The tags code stored at an address; the address itself when its unit is missing or damaged."""

# --- consume_queue.pyx

@final
class ConsumeQueue(UnitQueue):
    """The index of one topic and queue into the commit log.

    Args:
        folder: The store's `consumequeue` folder.
        file_size_bytes: Size of a queue file, rounded up to whole units; None: 6,000,000. Read-only: None
            reads it off the files.
        readonly: Never write; accept truncated files, files of other sizes and foreign files.
        ext_folder: The store's `consumequeue_ext` folder, if tags codes of units may refer to it.

    An opened queue has all units of its files, valid or not; call `recover` before use. Only one thread may
    write at a time.

    Raises:
        StoreFormatError: a file has another size than configured (not when read-only).
        IllegalMessageError: the topic cannot name a folder.
    """

    ext: ConsumeQueueExt | None

    def __init__(
        self,
        folder: str,
        topic: str,
        queue_id: int,
        file_size_bytes: int | None = None,
        *,
        readonly: bool = False,
        ext_folder: str | None = None,
    ) -> None: ...
    @property
    def min_offset(self) -> int:
        """First queue offset whose record the log has, in units; `max_offset` when it has none."""
    @property
    def max_offset(self) -> int:
        """Queue offset of the next message, in units."""
    def put(self, physical_offset: int, size_bytes: int, tags_code: int, queue_offset: int) -> bool:
        """Append a unit. False when the queue has it already; missing units before it become fill units.

        Args:
            physical_offset: Physical offset of the record (bytes).
            size_bytes: Its length.
            tags_code: Java's hash of its tags, or a delayed message's delivery time in ms.
            queue_offset: In units.

        Raises:
            StoreFullError: no space for the next file or chunk. Nothing was appended.
            StoreFormatError: more units are missing before it than the log in between can have records.
        """
    def get(self, queue_offset: int) -> tuple[int, int, int]:
        """(physical offset, size in bytes, tags code); an extended unit's tags code is looked up.

        Args:
            queue_offset: In units.

        Raises:
            OffsetOutOfRangeError: the queue does not hold this offset.
        """
    def units(self, start: int, count: int) -> memoryview:
        """View raw 20-byte units from queue offset `start` without copying; ends at the file's end.

        Returns:
            At most `count` units; empty when `start` is outside the queue.
        """
    def recover(self, view: LogView | None = None, *, files: int = 3) -> int:
        """Find the last valid unit in the last `files` files (0: in all), and truncate the queue after it.

        A unit is valid if it points into the log, beyond its predecessor. With a view, the last unit must
        also match its record in queue offset, size and tags code. A read-only queue is truncated in memory
        only.

        Returns:
            Number of dropped units that were not empty.
        """
    def truncate_to_physical(self, physical_offset: int) -> None:
        """Drop units whose records end after `physical_offset` (bytes of the log). Durable on return."""
    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_offset` to the first unit whose record is at or above the log's start (bytes).

        When every record was deleted it becomes `max_offset`: queue offsets are never used twice.
        """
    def offset_by_time(self, view: LogView, timestamp_ms: int, *, upper: bool = False) -> int:
        """Queue offset for a store time in ms.

        Lower: the first message stored at or after it; upper: the last stored at or before it. Without such a
        message the answer is an end of the queue or of a file, as upstream gives it.
        """
    def delete_head(self, min_physical_offset: int) -> list[str]:
        """Remove files that name only records below the log's start (bytes), never the last; their paths."""

# --- batch_consume_queue.pyx

def search_batch_units_by_time(
    units: Buffer,
    timestamp_ms: int,
    *,
    upper: bool = False,
    first_where: int = 0,
    min_queue_offset: int = 0,
    file_size_bytes: int = 13_800_000,
) -> int:
    """Queue offset for a store time over raw 46-byte units, as `BatchConsumeQueue.offset_by_time`.

    Args:
        units: Raw units.
        timestamp_ms: Store time.
        upper: As of `offset_by_time`.
        first_where: Byte offset of the first unit in its queue.
        min_queue_offset: The first that names a record of the log.
        file_size_bytes: Size of the queue's files. The search works file by file; results depend on where
            files begin.
    """

@final
class BatchConsumeQueue(UnitQueue):
    """The index of one topic and queue whose records are batches, with the methods of ConsumeQueue.

    Args:
        folder: The store's `batchconsumequeue` folder.
        file_size_bytes: Size of a queue file, rounded up to whole units; None: 13,800,000. Read-only: None
            reads it off the files.
        readonly: Never write; accept truncated files, files of other sizes and foreign files.
    """

    def __init__(
        self,
        folder: str,
        topic: str,
        queue_id: int,
        file_size_bytes: int | None = None,
        *,
        readonly: bool = False,
    ) -> None: ...
    @property
    def min_offset(self) -> int:
        """First queue offset whose record the log has; `max_offset` when it has none."""
    @property
    def max_offset(self) -> int:
        """Queue offset of the next message."""
    @property
    def unit_count(self) -> int:
        """Units from the first whose record the log has."""
    def put(
        self,
        physical_offset: int,
        size_bytes: int,
        tags_code: int,
        store_timestamp_ms: int,
        base_offset: int,
        count: int = 1,
    ) -> bool:
        """Append a unit for a record of `count` messages from `base_offset` on; False if it is there.

        Args:
            physical_offset: Physical offset of the record (bytes).
            size_bytes: Its length.
            tags_code: Java's hash of its tags.
            store_timestamp_ms: Its store time.
            base_offset: Queue offset of its first message.
            count: Its messages, 1 to 32767.

        Raises:
            StoreFullError: no space for the next file or chunk. Nothing was appended.
        """
    def get(self, queue_offset: int) -> tuple[int, int, int, int, int, int]:
        """The unit of the record that holds a queue offset (in messages).

        Returns:
            (physical offset, size in bytes, tags code, store time in ms, base offset, count)

        Raises:
            OffsetOutOfRangeError: no record of the queue holds this offset.
        """
    def units(self, start: int, count: int) -> memoryview:
        """View raw 46-byte units from the one that holds queue offset `start`; ends at the file's end.

        Returns:
            At most `count` units; empty when `start` is at or above the queue's end. Below its start it
            begins with the first unit.
        """
    def recover(self, view: LogView | None = None, *, files: int = 3) -> int:
        """Find the last valid unit in the last `files` files (0: in all), and truncate the queue after it.

        Returns:
            Number of dropped units that were not empty.
        """
    def truncate_to_physical(self, physical_offset: int) -> None:
        """Drop units whose records end after `physical_offset` (bytes of the log). Durable on return."""
    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Move `min_offset` to the first unit whose record is at or above the log's start (bytes)."""
    def offset_by_time(self, view: LogView | None, timestamp_ms: int, *, upper: bool = False) -> int:
        """Queue offset for a store time in ms, from the times in the units; `view` is not needed.

        Lower: base of the first record stored at or after it. From the time of the last record on, the base
        of that one. Upper is only of use for a time that some record has; for others upstream's search may
        answer the lowest offset, and so does this one.
        """
    def delete_head(self, min_physical_offset: int) -> list[str]:
        """Remove files that name only records below the log's start (bytes), never the last; their paths."""

# --- index_file.pyx

def index_key_hash(topic: str, key: str) -> int:
    """Hash under which the index keeps a key of a topic: 0 to 2**31 - 1."""

@final
class IndexFile:
    """One index file.

    Args:
        path: The file; created with `slots` and `entries` when missing and not read-only.
        slots: Hash slots. 0 for an existing file: found from its size and contents.
        entries: Entry capacity, the unused entry 0 included. 0 for an existing file: from its size.
        readonly: Never write.
        previous: (end timestamp in ms, end physical offset) of the file before; a new header starts from it.

    Raises:
        StoreFormatError: the bytes cannot be an index file.
    """

    path: str
    readonly: bool
    slot_count: int
    entry_capacity: int

    def __init__(
        self,
        path: str,
        slots: int = 0,
        entries: int = 0,
        *,
        readonly: bool = False,
        previous: tuple[int, int] = (0, 0),
    ) -> None: ...
    @property
    def begin_timestamp(self) -> int:
        """Store time of the first entry, ms."""
    @property
    def end_timestamp(self) -> int:
        """Store time of the last entry, ms."""
    @property
    def begin_physical_offset(self) -> int:
        """Physical offset of the first entry's record (bytes)."""
    @property
    def end_physical_offset(self) -> int:
        """Physical offset of the last entry's record (bytes)."""
    @property
    def slots_used(self) -> int:
        """Slots with a chain."""
    @property
    def entry_count(self) -> int:
        """Number of the next entry; the first is 1."""
    @property
    def full(self) -> bool:
        """Whether no entry fits any more."""
    def put(self, topic: str, key: str, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add a key of the message at `physical_offset` (bytes of the log). False when the file is full.

        Raises:
            StoreFullError: no space for the next chunk. Nothing was added.
        """
    def entry(self, number: int) -> tuple[int, int, int, int]:
        """(key hash, physical offset, seconds since `begin_timestamp`, previous entry of the chain)."""
    def flush(self) -> None:
        """Make everything put so far durable.

        Raises:
            StoreFailedError: this or an earlier flush failed.
        """
    def close(self) -> None:
        """Unmap the file."""

# --- index_file_set.pyx

def index_file_name() -> str:
    """A name for an index file made now: local time as yyyyMMddHHmmssSSS."""

@final
class IndexFileSet:
    """All index files of a store; the last one takes new keys.

    Args:
        folder: The store's `index` folder.
        slots: Hash slots of a new file.
        entries: Entry capacity of a new file.
        readonly: Never write; leave out files that are too damaged to read.
        name_file: Makes the name of a new file; later than all names there, or one more than the last is
            taken.
        safe_timestamp_ms: After an unclean exit, the time up to which index files are known to be on disk:
            files that end later are removed (read-only: left out) and must be dispatched again. None after a
            clean one.
    """

    folder: str
    readonly: bool
    files: list[IndexFile]
    removed: list[str]
    """Paths of files that were unsafe or unreadable when the set was opened."""

    def __init__(
        self,
        folder: str,
        slots: int = 5_000_000,
        entries: int = 20_000_000,
        *,
        readonly: bool = False,
        name_file: Callable[[], str] = ...,
        safe_timestamp_ms: int | None = None,
    ) -> None: ...
    @property
    def end_physical_offset(self) -> int:
        """Physical offset (bytes) of the last record with an entry, where dispatch continues; -1 without."""
    @property
    def end_timestamp(self) -> int:
        """Store time of the last entry, ms; 0 without one."""
    def put(self, topic: str, key: str, physical_offset: int, store_timestamp_ms: int) -> None:
        """Add a key of the message at `physical_offset` (bytes), in a new file when the last one is full.

        Raises:
            StoreFullError: no space for the next file or chunk. Nothing was added.
        """
    def query(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = 0x7FFFFFFFFFFFFFFF,
        limit: int = 64,
    ) -> list[int]:
        """Physical offsets (bytes) of messages that may have a key, ascending; at most 64, the newest.

        Only hashes and whole seconds are compared, so the caller must check the messages. Offsets below the
        log's start belong to deleted messages.
        """
    def truncate_to_physical(self, physical_offset: int, view: LogView | None = None) -> None:
        """Remove the entries of records at or above `physical_offset` (bytes). Durable on return.

        `view` provides the exact time of the last remaining record.
        """
    def delete_head(self, min_physical_offset: int) -> list[str]:
        """Remove files whose last record is below the log's start (bytes), never the last; their paths."""
    def flush(self) -> int:
        """Make all entries durable; returns the end timestamp in ms of what is on disk, for the checkpoint.

        Raises:
            StoreFailedError: this or an earlier flush failed.
        """
    def close(self) -> None:
        """Unmap the files."""

# --- queue_table.pyx

@final
class QueueTable:
    """What a walk over the log knows of each queue; used by native code only."""

# --- dispatch.pyx

DELAYS_MS: tuple[int, ...]
"""Upstream's delays of levels 1 to 18."""

@final
class Dispatcher:
    """Builds consume queues and index files from the commit log.

    Args:
        open_queue: Called as `open_queue(topic, queue_id, inner_batch)` for the first unit of a queue;
            returns its recovered ConsumeQueue or BatchConsumeQueue. May raise: the record is then tried
            again.
        index: Takes the keys; None builds no index.
        start_offset: Physical offset (bytes) of the record to begin with. Units and keys that exist already
            are skipped.
        delays_ms: Delays of levels 1, 2, …, from which the tags codes of delayed messages are computed.
    """

    queues: dict[tuple[str, int], ConsumeQueue | BatchConsumeQueue]
    failure: BaseException | None
    """What the last call of `dispatch` raised, until one succeeds."""
    closed: bool
    message_count: int
    unit_count: int
    entry_count: int

    def __init__(
        self,
        open_queue: Callable[[str, int, bool], ConsumeQueue | BatchConsumeQueue],
        index: IndexFileSet | None = None,
        *,
        start_offset: int = 0,
        delays_ms: Sequence[int] = ...,
    ) -> None: ...
    @property
    def dispatched_where(self) -> int:
        """Physical offset (bytes) up to which queues and index have everything."""
    @property
    def stalled(self) -> list[tuple[str, int, int, int, StoreError]]:
        """Queues that cannot be created or extended. They hold back `dispatched_where` but nothing else.

        Returns:
            For each queue: topic, queue id, physical offset of its first missing record, queue offset after
            its last missing record, and the error. The index is `("", -1, …, 0, …)`.
        """
    def retry(self, view: LogView) -> None:
        """Retry the stalled queues and index; those that can continue get their missing records.

        Cost: one unit each while they stay stalled, else a walk from the first missing record.
        """
    def start_at(self, offset: int) -> None:
        """Continue at a record (physical offset, bytes): after a truncation, or to skip damage.

        The queues and the index must have been truncated before.
        """
    def close(self) -> None:
        """Wait for a walk in progress and reject further ones; the files may be unmapped afterwards."""
    def park(self, queues: Iterable[UnitQueue]) -> None:
        """Unmap the files of queues that were not used for a while; see `UnitQueue.park`."""
    def forget(self, topic: str, queue_id: int) -> None:
        """Forget an open queue; its next unit opens it again."""
    def dispatch(self, view: LogView, end_offset: int | None = None) -> int:
        """Dispatch records that end at or before `end_offset` (bytes; None: the view's end).

        Any thread may call; one walks, the others wait for it without the interpreter lock.

        Returns:
            `dispatched_where`.

        Raises:
            CorruptRecordError: no record where one should be. Nothing beyond was dispatched.
        """

# --- replica_log.pyx

class ReplicaLog:
    """The end of a slave's commit log, where a master's bytes are written in pieces of any length.

    Bytes become readable once they form whole records; anything else than the next record is rejected. Only
    one thread may append.
    """

    queue: MappedFileQueue

    def __init__(self, queue: MappedFileQueue) -> None:
        """Continue at the end of the log, which must be the end of a record."""
    @property
    def whole_where(self) -> int:
        """Physical offset (bytes) where the last whole record ends."""
    @property
    def last_store_timestamp_ms(self) -> int:
        """Store time (ms) of the newest whole record that was appended; 0 before the first."""
    def append(self, offset: int, data: Buffer) -> int:
        """Write a master's bytes at a physical offset, which must be the log's end.

        An empty log begins anywhere that a file may.

        Returns:
            The new end (bytes).

        Raises:
            OffsetOutOfRangeError: the offset is not the log's end.
            CorruptRecordError: the bytes are not the next record of the log; nothing was written.
            StoreFormatError: the master's files have another size.
            StoreFullError: the disk is full; nothing was written.

        Durability: none yet; see `MappedFileQueue.flush`.
        """
    def take_frames(self, data: Buffer) -> int:
        """Append the whole frames `i64 offset | i32 size | size bytes` that `data` begins with, in one write.

        Stops before the first frame that is incomplete or empty, does not start at the log's end, or needs
        another file than the last; the caller handles these, with `append`.

        Returns:
            Bytes of `data` that were taken.

        Raises:
            CorruptRecordError, StoreFullError: as `append`; nothing was written.
        """
    def truncate_partial(self) -> int:
        """Truncate the bytes after the last whole record, durably; return their number.

        Raises:
            StoreFailedError: an earlier flush failed; raised even if there are no such bytes.
        """

# --- replica_receiver.pyx

class ReplicaReceiver:
    """Receives a master's frames into a log and sends reports, without the interpreter lock.

    One thread runs it. It handles whole frames that are in order and fit into the log's last file; everything
    else is left to the state machine of the connection.
    """

    closed: bool
    """Whether the master has closed the connection."""

    def __init__(self, log: ReplicaLog, fd: int, dispatcher: EventNotifier, *, reports: bool = True) -> None:
        """Receive from a connected non-blocking socket.

        Args:
            log: The log to append to.
            fd: The socket's descriptor; its owner closes it after the last `run`.
            dispatcher: Notified when bytes are stored.
            reports: Whether to report stored bytes at once; otherwise `run` returns after storing some.
        """
    @property
    def reported_offset(self) -> int:
        """Physical offset (bytes) that was reported last; -1 before the first report."""
    @property
    def since_read_ms(self) -> int:
        """Time (ms) since bytes were received, or since this object was created."""
    @property
    def since_report_ms(self) -> int:
        """Time (ms) since the last report, or since this object was created."""
    @property
    def event_fd(self) -> int:
        """Descriptor that is readable after bytes were stored, if `arm` was called before them."""
    def arm(self) -> None:
        """Let `event_fd` become readable once, when the next bytes are stored."""
    def clear_event(self) -> None:
        """Make `event_fd` unreadable."""
    def report(self, offset: int) -> bool:
        """Report a physical offset (bytes). False if the send buffer was full: drop the connection."""
    def run(self, timeout_ms: int, *, between_frames: bool = True) -> bytes:
        """Receive frames until the timeout, or until the caller has something to do.

        Args:
            timeout_ms: Longest time to receive (ms).
            between_frames: Whether the next bytes begin with a frame header; otherwise nothing is stored.

        Returns:
            Received bytes that the connection's state machine must handle. Empty after the timeout, after
            bytes were stored that are not reported at once, and when the connection is `closed`.

        Raises:
            OSError: the connection broke, or a report was sent only in part.
            CorruptRecordError, StoreFormatError, StoreFullError, StoreFailedError: as `ReplicaLog.append`.
        """

# --- log_sender.pyx

class LogSender:
    """Sends ranges of the log as frames `i64 offset | i32 size | size bytes` to a socket, without blocking.

    A frame ends when it is full or at the end of a file. Only one thread may send at a time.
    """

    blocked: bool
    """Whether the socket's send buffer was full at the last attempt."""

    def __init__(self, fd: int, frame_bytes_max: int) -> None:
        """Send frames of up to `frame_bytes_max` log bytes to a connected socket, which its owner closes."""
    @property
    def next_offset(self) -> int:
        """Physical offset (bytes) where the next frame begins."""
    @property
    def unfinished(self) -> bool:
        """Whether the last frame was sent only in part; the next call sends the rest."""
    def send(self, view: LogView, start: int, stop: int) -> int:
        """Send frames from `start` up to `stop`, physical offsets (bytes): at most half a MiB, at once.

        Returns:
            Physical offset where the next frame begins; pass it as `start` to continue.

        Raises:
            OSError: the connection broke.
            OffsetOutOfRangeError: the view has no such bytes.
            InvariantError: `start` differs although the last frame was sent only in part.
        """
    def stream(self, view: LogView, start: int, stop: int, last: MappedFile, *, rests: bool = True) -> int:
        """Like `send`, but send as much as the slave accepts, without the interpreter lock; run by a thread.

        Args:
            view: The log.
            start: Physical offset (bytes) where the range begins.
            stop: Physical offset (bytes) where it ends.
            last: The log's last file. While it grows and `rests` is true, a pause of 2 ms follows each 512
                KiB, as long as at least twice as many bytes are sent as are appended.
            rests: Whether to pause in favour of threads that append.

        Returns:
            As `send`; less than `stop` if the slave accepted nothing for 5 ms, or after `stop()`.
        """
    def beat(self, offset: int) -> None:
        """Send an empty frame with the physical offset (bytes) of the next one; none may be unfinished."""
    def stop(self) -> None:
        """Make `stream` return soon, in this and all later calls. Any thread may call this."""

# --- unit_collector.pyx

@final
class UnitRange:
    """Units of one queue in memory of its own: a read-only buffer of raw 20-byte (batch: 46-byte) units."""

    topic: str
    queue_id: int
    batch: bool
    first_queue_offset: int
    next_queue_offset: int
    repeated: int
    """Records left out because their queue offsets are wrong: used before, or far too high."""
    miscounted: int
    """Inner batches that state another number of messages than they hold; the units have the true one."""
    odd_where: int
    """Physical offset (bytes) of the first record of either kind; meaningless without one."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class UnitCollector:
    """Gathers in memory the units that dispatch would write.

    Args:
        batch_topics: Topics whose queues are batch queues; a record that holds an inner batch makes its queue
            one too.
        delays_ms: As of the Dispatcher.
    """

    message_count: int

    def __init__(self, batch_topics: Iterable[str] = (), *, delays_ms: Sequence[int] = ...) -> None: ...
    def collect(self, view: LogView, start_offset: int | None = None, end_offset: int | None = None) -> int:
        """Gather the units of records in a range of the log (bytes); returns where it ended.

        That is below the range's end if a record crosses the end, or at damage.

        Cost: no interpreter lock is held; about 20 bytes of memory a message.
        """
    def take(self) -> dict[tuple[str, int], UnitRange]:
        """Return the units gathered so far and remove them; later units follow these."""

def collect_units(
    view: LogView,
    start_offset: int | None = None,
    end_offset: int | None = None,
    *,
    batch_topics: Iterable[str] = (),
) -> dict[tuple[str, int], UnitRange]:
    """Units that dispatch of a range of the log (bytes) would write, by (topic, queue id).

    Raises:
        CorruptRecordError: no record where one should be.
    """

# --- key_collector.pyx

@final
class KeyCollector:
    """Gathers the key hashes of records, oldest first; a read-only buffer of 24-byte entries.

    An entry is physical offset i64, store time in ms i64, key hash i32, and an i32 that is not 0 for the
    entry of tags; in native byte order.
    """

    of_tags_count: int
    """How many entries are those of tags."""

    def __init__(self, *, with_tags: bool = False) -> None:
        """With or without the entry that RocketMQ 5.4 and later make for the tags of a record."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def collect(self, view: LogView, start_offset: int, end_offset: int | None = None) -> int:
        """Gather the keys of records in a range of the log (bytes); returns where it ended.

        That is below the range's end if a record crosses the end, or at damage.

        Raises:
            BufferError: a view of the entries is alive.

        Cost: no interpreter lock is held; 24 bytes of memory a key.
        """
    def query(self, topic: str, key: str, begin_ms: int = 0, end_ms: int = ..., limit: int = 64) -> list[int]:
        """Physical offsets (bytes) of records that may have a key, newest first. Only hashes are compared."""

# --- index_check.pyx

def index_chain_faults(
    raw: Buffer, slots: int, entry_count: int, limit: int = 10
) -> list[tuple[str, int, int, int]]:
    """Find the first breaks in the hash chains of an index file, in file order.

    Args:
        raw: The file.
        slots: Its hash slots.
        entry_count: Number of its next entry; the first is 1.
        limit: Most faults wanted, at most 64.

    Returns:
        (kind, number, found, expected): "hash", entry number, negative hash, 0; "previous", entry number, the
        entry before it in its slot; "slot", slot number, its newest entry.

    Cost: one pass without the interpreter lock; 4 bytes of memory a slot.
    """

def check_index_entries(
    raw: Buffer,
    slots: int,
    entry_count: int,
    first: int,
    keys: KeyCollector,
    *,
    min_offset: int,
    end_offset: int,
    limit: int = 10,
) -> tuple[int, int, list[tuple[int, int, bool]]]:
    """Compare entries of an index file, from one on up to the end of a range, with the keys of records.

    Args:
        raw: The file.
        slots: Its hash slots.
        entry_count: Number of its next entry; the first is 1.
        first: Number of the entry to begin with.
        keys: Keys of a range of the log that ends at `end_offset`; those of tags included.
        min_offset: Start of the log (bytes). Entries below it are of deleted records and pass.
        end_offset: Physical offset (bytes) at which the first entry ends the comparison.
        limit: Most faults wanted, at most 64.

    Returns:
        Number of the first entry that was not compared; how many of those compared are not of tags; and the
        first that name no record with such a key: number, physical offset (bytes), and whether the record
        there has other keys.

    Cost: one pass without the interpreter lock; a binary search for each entry that is out of order.
    """

# --- pull.pyx

@final
class PullLimits:
    """Limits of one pull: counts and bytes, for records in memory and for older ones on disk."""

    memory_count: int
    memory_bytes: int
    disk_count: int
    disk_bytes: int
    resident_bytes: int
    """Bytes before the log's end that count as in memory."""

    def __init__(
        self,
        *,
        memory_count: int = 32,
        memory_bytes: int = 262_144,
        disk_count: int = 8,
        disk_bytes: int = 65_536,
        resident_bytes: int = ...,
    ) -> None: ...

@final
class RecordRanges:
    """Ranges of the log that contain whole records, in queue order; adjacent records form one range.

    A sequence of read-only memoryviews, created on access; each keeps its file mapped.
    """

    size_bytes: int
    """Bytes of all ranges."""

    def __new__(cls, log: LogView, records_max: int) -> Self: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> memoryview: ...
    @property
    def places(self) -> list[tuple[int, int]]:
        """(physical offset, length) of each range, in bytes."""

@overload
def pull(
    queue: UnitQueue,
    log: LogView,
    queue_offset: int,
    max_count: int,
    max_bytes: int,
    limits: PullLimits,
    codes: tuple[int, ...] = (),
    tags: tuple[bytes, ...] = (),
    *,
    as_ranges: Literal[False] = False,
) -> tuple[int, int, int, int, list[StoredMessage], int]:
    """Read a queue from an offset on, within upstream's limits.

    Args:
        queue: A ConsumeQueue or BatchConsumeQueue.
        log: The log that its units point into.
        queue_offset: First message wanted (units).
        max_count: Most messages. The first record is given whatever its size and count.
        max_bytes: Most bytes of records.
        limits: The store's own limits.
        codes: Tag codes that pass; none: all pass.
        tags: The tags of these codes in UTF-8; messages whose tag only has the same code are left out. Ranges
            are filtered by code alone, as upstream's pull is.
        as_ranges: Give ranges instead of messages.

    Returns:
        (status in the order of upstream's GetMessageStatus, offset of the next pull, the queue's minimum and
        end offset, messages or ranges, number of messages).

    Cost: O(messages returned + units skipped); holds the interpreter lock.
    Source: RocketMQ store/.../DefaultMessageStore.java (getMessage, isTheBatchFull).
    """

@overload
def pull(
    queue: UnitQueue,
    log: LogView,
    queue_offset: int,
    max_count: int,
    max_bytes: int,
    limits: PullLimits,
    codes: tuple[int, ...] = (),
    tags: tuple[bytes, ...] = (),
    *,
    as_ranges: Literal[True],
) -> tuple[int, int, int, int, RecordRanges, int]: ...
def count_tagged_units(
    queue: UnitQueue, start: int, end: int, codes: tuple[int, ...], units_max: int, matches_max: int
) -> tuple[int, int]:
    """Count the units of a plain queue in [start, end) whose tags code is wanted.

    Args:
        queue: A ConsumeQueue.
        start: First queue offset (units).
        end: End queue offset (units).
        codes: Wanted tag codes.
        units_max: Most units to check.
        matches_max: Stop after this many matches.

    Returns:
        (units checked, units that match).
    """

# --- unit_selection.pyx

def unit_offsets(raw: Buffer) -> memoryview[int]:
    """Physical offset (bytes) of each raw 20-byte unit, as native 64-bit numbers; half a unit is left out."""

def unit_sizes(raw: Buffer) -> memoryview[int]:
    """Size (bytes) of each raw 20-byte unit's record, as native 64-bit numbers; half a unit is left out."""

def select_units(raw: Buffer, codes: Buffer | None = None) -> bytes:
    """Raw 20-byte units that name a record, and may match tags, as consumers filter.

    Args:
        raw: Raw units. Fill units name no record.
        codes: Hashes of the wanted tags, ascending, as native 32-bit numbers; None for any tags. Units whose
            code is not a hash (delivery times, addresses of extended units) are kept: the caller must check
            their messages.

    Cost: two passes over the units; holds the interpreter lock.
    """

# --- lenient_json.pyx

def parse_lenient_json(
    text: str, compact: Callable[[object], str], with_references: bool, containers_max: int
) -> tuple[Any, list[tuple[Any, Any, str | int]]]:
    """Parse one document in fastjson's dialect, at a cost in proportion to the text.

    A thread that waits for the interpreter lock gets it now and then.

    Args:
        text: The document.
        compact: Writes an object that is a key as text.
        with_references: Whether to collect `{"$ref": text}`; without, these are objects like others.
        containers_max: How many objects and lists there may be.

    Returns:
        The value, and for each reference its parent, its container and its key there.

    Raises:
        MalformedJsonError: with the position in the text.
    """

# --- request_decoder.pyx

class DecodedRequest:
    """The common fields of frequent requests. The rest of the command is in `frame`."""

    @property
    def code(self) -> int:
        """The `RequestCode`."""

    @property
    def flag(self) -> int:
        """Flags of the command; bit 1 marks a one-way request."""

    @property
    def opaque(self) -> int:
        """Identifies the response to this request."""

    @property
    def language(self) -> int:
        """A `LanguageCode`."""

    @property
    def version(self) -> int:
        """The sender's version."""

    @property
    def serialize(self) -> int:
        """Encoding of the header, a `SerializeType`."""

    @property
    def has_other_fields(self) -> bool:
        """Whether the header has further fields, such as a signature; they are in `frame`."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def bname(self) -> str | None:
        """Name of the broker that the request is meant for."""

    @property
    def queue_id(self) -> int:
        """Number of the queue."""

    @property
    def sys_flag(self) -> int:
        """System flags: of a send as in a record, of a pull as in upstream's PullSysFlag."""

    @property
    def is_oneway(self) -> bool:
        """Whether this is a one-way request."""

    @property
    def frame(self) -> memoryview:
        """The whole frame without its length word, for `pyledger.wire.remoting.command.decode`."""

    @property
    def frame_bytes(self) -> int:
        """Size of that."""

    @property
    def body(self) -> memoryview:
        """The body, a view of the receive buffer, which it keeps alive."""

@final
class SendRequest(DecodedRequest):
    """10, 310 or 320: store a message, or a batch. Fields as in `SendMessageRequestHeader`."""

    @property
    def producer_group(self) -> str:
        """Name of the group."""

    @property
    def default_topic(self) -> str:
        """The topic whose settings a new topic takes."""

    @property
    def default_topic_queue_nums(self) -> int:
        """Queues that a new topic gets."""

    @property
    def born_timestamp(self) -> int:
        """Milliseconds, by the client's clock."""

    @property
    def message_flag(self) -> int:
        """The application's number; the header's field `flag`."""

    @property
    def properties(self) -> bytes | None:
        """The properties, encoded as in a record."""

    @property
    def reconsume_times(self) -> int | None:
        """Deliveries that failed."""

    @property
    def max_reconsume_times(self) -> int | None:
        """Limit of failed deliveries."""

    @property
    def unit_mode(self) -> bool:
        """Flag of unit deployments; False if missing."""

    @property
    def batch(self) -> bool:
        """Whether the body is a batch; False if missing."""

@final
class PullRequest(DecodedRequest):
    """11 or 361: read messages of a queue. Fields as in `PullMessageRequestHeader`."""

    @property
    def consumer_group(self) -> str:
        """Name of the group."""

    @property
    def queue_offset(self) -> int:
        """First message wanted (units)."""

    @property
    def max_msg_nums(self) -> int:
        """Most messages."""

    @property
    def commit_offset(self) -> int:
        """Consumer offset of the group (units), if `sys_flag` marks it as valid."""

    @property
    def suspend_timeout_millis(self) -> int:
        """How long to hold the pull if no message is there (ms)."""

    @property
    def sub_version(self) -> int:
        """Time of the subscription in milliseconds."""

    @property
    def subscription(self) -> str | None:
        """The filter expression, if `sys_flag` marks it as present."""

    @property
    def expression_type(self) -> str | None:
        """`TAG` or `SQL92`."""

    @property
    def max_msg_bytes(self) -> int | None:
        """Most bytes."""

    @property
    def request_source(self) -> int | None:
        """Kind of the sender: a client or a kind of proxy."""

def decode_head(
    frame: Buffer, /
) -> tuple[int, int, int, int, int, str | None, dict[str, str], int, int] | None:
    """Decode the header of a frame.

    Args:
        frame: One frame without its length word; borrowed for the call.

    Returns:
        (code, flag, opaque, language, version, remark, fields, encoding of the header, position of the body
        in bytes). None if the header is unusual or malformed in any way: Python then decodes it.
    """

@overload
def decode_frames(
    data: bytes | bytearray, max_frame_bytes: int, calls: None = None
) -> tuple[list[memoryview | SendRequest | PullRequest], int]: ...
@overload
def decode_frames(
    data: bytes | bytearray, max_frame_bytes: int, calls: dict[int, Any]
) -> tuple[list[memoryview | ResponseFuture], int]: ...
@overload
def decode_frames(
    data: bytes | bytearray, max_frame_bytes: int, calls: None = None, *, appends: Literal[True]
) -> tuple[list[memoryview | AppendBatch], int]:
    """Split received bytes into frames, and decode sends and pulls, or the responses to them.

    Args:
        data: Received bytes, from the start of a frame on. They must not change any more, because bodies and
            frames are views of them.
        max_frame_bytes: Most bytes of a frame, its length word included.
        calls: Requests in flight by opaque. If given, responses are decoded instead of requests; a decoded
            response is returned as its `ResponseFuture`, which is removed from the table.
        appends: Decode appends to a replicated log instead; consecutive appends are returned as one batch.

    Returns:
        (for each whole frame a request, or a view of the frame without its length word for
        `pyledger.wire.remoting.command.decode`; the number of bytes taken). A frame stays a view if its code
        is another one, or if its header is unusual or malformed in any way.

    Raises:
        FrameError: a length is too large or too small.

    Cost: O(bytes of headers); holds the interpreter lock.
    """

# --- response_encoder.pyx

def encode_send_response(
    serialize: int,
    opaque: int,
    code: int,
    remark: str | None,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str | None,
    region: str,
    trace_on: bool,
) -> bytes:
    """Encode the whole response to a send that was stored.

    Args:
        serialize: Encoding of the header, as in the request.
        opaque: As in the request.
        code: A `ResponseCode`.
        remark: Text for people.
        msg_id: Offset message id; several with commas for a batch.
        queue_id: Number of the queue.
        queue_offset: Queue offset of the (first) message.
        transaction_id: The message's `UNIQ_KEY`.
        region: The broker's region.
        trace_on: Whether the client should trace.

    Raises:
        FrameError: it is too long for a frame.
    """

def encode_pull_response(
    serialize: int,
    opaque: int,
    code: int,
    remark: str | None,
    suggest_which_broker_id: int,
    next_begin_offset: int,
    min_offset: int,
    max_offset: int,
    topic_sys_flag: int,
    group_sys_flag: int,
    body_size_bytes: int,
) -> bytes:
    """Encode the response to a pull up to its body.

    Args:
        serialize: Encoding of the header, as in the request.
        opaque: As in the request.
        code: A `ResponseCode`.
        remark: Text for people.
        suggest_which_broker_id: Broker id for the next pull.
        next_begin_offset: Queue offset for the next pull.
        min_offset: The queue's minimum offset.
        max_offset: The queue's end offset.
        topic_sys_flag: Of the topic.
        group_sys_flag: Of the group.
        body_size_bytes: Bytes that will follow.

    Raises:
        FrameError: it is too long for a frame.
    """

# --- send_batch.pyx

@final
class SendBatch:
    """Sends that were appended to one queue in one call."""

    @property
    def requests(self) -> list[SendRequest]:
        """The requests, in order."""

    @property
    def topic(self) -> str:
        """Topic of all."""

    @property
    def queue_id(self) -> int:
        """Queue of all."""

    @property
    def message_count(self) -> int:
        """Messages in all requests."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all records."""

    @property
    def end_offset(self) -> int:
        """Physical offset of the end of the last record."""

    @property
    def queue_end(self) -> int:
        """Queue offset after the last message."""

    @property
    def properties(self) -> bytes | None:
        """Properties of the message as received, if there is only one message."""

    def answers(self, code: int, remark: str | None) -> bytes:
        """The responses to all requests that are not one-way, as one piece of whole frames."""

@final
class SendBatchAppender:
    """Appends plain sends in batches. Belongs to one thread.

    Invariant: it stores and answers the same bytes as the general path.
    """

    def __init__(
        self,
        log: CommitLog,
        added_properties: bytes,
        special: tuple[bytes, ...],
        region: str,
        trace_on: bool,
    ) -> None:
        """Append to a log.

        Args:
            log: The log.
            added_properties: Encoded properties that are added to those of each single message.
            special: Names of properties that make a request not plain.
            region: `MSG_REGION` of the responses.
            trace_on: `TRACE_ON` of the responses.
        """
    def append(
        self,
        frames: Sequence[memoryview | DecodedRequest],
        begin: int,
        born_host: tuple[str, int] | None,
        requests_max: int,
    ) -> SendBatch | None:
        """Append frames from `begin` on while they are plain sends, of messages or batches, to one queue.

        A send is plain if it has a body, waits for its flush, belongs to no transaction, and its properties
        are well formed, without duplicate or special names. A send that the log rejects ends the batch, too.

        Args:
            frames: A list, as `decode_frames` returns it.
            begin: Index of the first frame.
            born_host: (address literal, port) of the sender; None: the store host.
            requests_max: Most requests to append.

        Returns:
            The appended batch; None if the first frame is not plain or is rejected.

        Durability: none yet, as `CommitLog.append`.
        """

# --- pull_batch.pyx

@final
class PullBatch:
    """Responses to pulls that found messages, in order."""

    @property
    def request_count(self) -> int:
        """Pulls that were answered."""

    @property
    def message_count(self) -> int:
        """Messages in all responses."""

    @property
    def record_bytes(self) -> int:
        """Bytes of all records."""

    @property
    def parts(self) -> list[bytes | memoryview]:
        """Whole frames, one after the other."""

def answer_pulls(
    frames: Sequence[memoryview | DecodedRequest],
    begin: int,
    queues: Mapping[tuple[str, int], UnitQueue],
    log: LogView,
    limits: PullLimits,
    codes: tuple[int, ...],
    next_offsets: dict[QueueId, QueueOffset],
    *,
    queue_count: int,
    topic_flags: int,
    group_flags: int,
    record_bytes_max: int,
    copied: bool,
    bytes_max: int,
) -> PullBatch | None:
    """Answer pulls from `begin` on while they find messages and resemble the first one.

    Only the queue and the offsets may differ.
    The caller has checked the first pull: its group may read its topic, and no offset reset is pending.

    Args:
        frames: Frames that one connection has received. The one at `begin` is a `PullRequest`.
        begin: Index of the first frame.
        queues: Consume queues by topic and queue id.
        log: The log that their units point into.
        limits: The store's own limits of one pull.
        codes: Tag codes that pass; none: all pass.
        next_offsets: Updated with the queue offset of the next pull, by queue id.
        queue_count: Number of readable queues of the topic.
        topic_flags: `topicSysFlag` of the responses.
        group_flags: `groupSysFlag` of the responses.
        record_bytes_max: Most bytes of records in one response.
        copied: Copy everything into one piece of bytes; otherwise records are views of the log.
        bytes_max: The batch ends once it has this many bytes.

    Returns:
        The responses; None if the first pull is not plain.

    Cost: O(messages returned + units skipped); holds the interpreter lock.
    """

# --- message_encoder.pyx

@final
class UniqueIds:
    """Makes the ids that producers of one process give their messages, unique without coordination.

    Host address, process id (16 bits) and a number of the process (32 bits), then milliseconds since the
    first of the month (32 bits) and a counter (16 bits), in upper-case hex: 32 digits with an IPv4 address,
    56 with IPv6.

    Source: RocketMQ common/.../message/MessageClientIDSetter.java.
    """

    def __init__(
        self,
        address: bytes,
        process_id: int,
        process_number: int,
        month_of: Callable[[int], tuple[int, int]],
    ) -> None:
        """Make ids with a prefix that identifies this process.

        Args:
            address: Address of this host, 4 or 16 bytes.
            process_id: The process id of the operating system.
            process_number: Distinguishes processes with the same id, such as a random number.
            month_of: Returns the first millisecond of the month of a time in ms, and of the month after it.
        """

    def next(self, now_ms: int) -> str:
        """The next id."""

class ResponseFuture:
    """A request in flight. Responses to its subclasses are decoded natively."""

    future: Any
    """Completed by `finish` unless it is done: an asyncio future or a `Deferred`."""

    def __init__(self, future: Any) -> None:
        """`future` gets the response as a command, or the error."""

    def finish(self, outcome: Any) -> None:
        """Complete the future with a command or an error; None: with what was decoded natively."""

@final
class PendingSend(ResponseFuture):
    """A message or batch in an encodable form, and the state of its sending."""

    topic: str
    body: bytes | bytearray | memoryview
    properties: bytes
    """Encoded; empty for a batch."""
    unique_key: str
    """Of a batch, the keys of its messages, separated by commas."""
    flag: int
    sys_flag: int
    reconsume_times: int
    reconsume_times_max: int | None
    is_batch: bool
    is_reply: bool
    deadline: float
    """End of all attempts (s), by the clock of the event loop."""
    mode: Any
    """What is tried again."""
    queue: Any
    """The queue that was chosen; None: any."""
    select: Any
    """Chooses the queue."""
    timeout_ms: int
    sender: Any
    """Its method `finished` receives the outcome of each attempt."""
    tried: list[str]
    """Names of the brokers of all attempts so far."""
    target: Any
    """The queue of this attempt."""
    result: Any
    """The decoded response of a successful attempt."""

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        properties: bytes,
        unique_key: str,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> None:
        """Set the attributes that do not change; the others start empty."""

    def finish(self, outcome: Any) -> None:
        """Hand the outcome of an attempt to `sender`."""

def prepare_message(message: Message, ids: UniqueIds, now_ms: int, body_bytes_max: int) -> PendingSend | None:
    """Prepare a plain message for sending: add a unique key and encode its properties.

    Args:
        message: Its body is kept, not copied.
        ids: Makes the unique key.
        now_ms: Current time (ms since the epoch).
        body_bytes_max: Bodies must be shorter (bytes).

    Returns:
        None if anything about it is unusual or wrong: Python then handles it.
    """

def prepare_messages(
    messages: Sequence[Message], ids: UniqueIds, now_ms: int, size_bytes_max: int
) -> PendingSend | None:
    """Prepare plain messages of one topic for sending as a batch.

    Args:
        messages: Their bodies are copied.
        ids: Makes the unique keys.
        now_ms: Current time (ms since the epoch).
        size_bytes_max: Most bytes of the whole batch.

    Returns:
        None if anything about one of them is unusual or wrong: Python then handles them.
    """

@final
class SendHead:
    """The fields that all sends to one queue share, encoded once."""

    def __init__(
        self, queue: Any, code: int, binary: bool, before: dict[str, str], after: dict[str, str]
    ) -> None:
        """Encode the fields.

        Args:
            queue: Any object; returned by `queue`.
            code: 310 or 320.
            binary: Use RocketMQ's binary header instead of JSON.
            before: Fields `a` to `e`.
            after: Fields from `j` on.
        """

    @property
    def queue(self) -> Any:
        """As given."""

    def encode(self, out: PendingSend, opaque: int, born_ms: int, with_body: bool) -> bytes:
        """Encode a request, with or without its body.

        Raises:
            FrameError: the body is too long for a frame.

        Cost: copies the body if `with_body` is true.
        """

# --- pulls of clients

@final
class PullFuture(ResponseFuture):
    """A pull in flight; its future gets this once decoded. Fields as in `PullMessageResponseHeader`."""

    @property
    def code(self) -> int:
        """A `ResponseCode`."""

    @property
    def suggest_which_broker_id(self) -> int:
        """Broker id for the next pull."""

    @property
    def next_begin_offset(self) -> int:
        """Queue offset of the next pull."""

    @property
    def min_offset(self) -> int:
        """First queue offset."""

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message to come."""

    @property
    def offset_delta(self) -> int:
        """Added to queue offsets; 0 without."""

    @property
    def body(self) -> bytes:
        """The records."""

@final
class PullHead:
    """The fields that all pulls of one queue share, encoded once."""

    def __init__(
        self, code: int, binary: bool, before: dict[str, str], middle: dict[str, str], after: dict[str, str]
    ) -> None:
        """Encode the fields.

        Args:
            code: 11 or 361.
            binary: Use RocketMQ's binary header instead of JSON.
            before: Fields before `queueOffset`.
            middle: Fields between `queueOffset` and `sysFlag`.
            after: Fields after `commitOffset`, which follows `sysFlag`.
        """

    def encode(self, opaque: int, queue_offset: int, sys_flag: int, commit_offset: int) -> bytes:
        """A whole request.

        Args:
            opaque: Identifies the response.
            queue_offset: First message wanted (units).
            sys_flag: Bits of upstream's PullSysFlag.
            commit_offset: Consumer offset of the group (units), if `sys_flag` marks it as valid.
        """

# --- dledger_append.pyx

def set_append_response(response_class: type[Any]) -> None:
    """Set the class of decoded append responses."""

@final
class AppendBatch(DecodedRequest):
    """Consecutive appends of one entry each to one group and member.

    They are requests 50912, or 50001 as DLedger's clients encode them, and none is one-way. `opaque`, `flag`
    and the other common fields are those of the first.
    """

    @property
    def group(self) -> str:
        """Name of the group."""

    @property
    def remote_id(self) -> str:
        """Name of the member that the requests are for."""

    @property
    def bodies(self) -> list[bytes]:
        """The entry bodies to append."""

    @property
    def opaques(self) -> list[int]:
        """The opaque of each request."""

    @property
    def frames(self) -> list[memoryview]:
        """Each request as a frame of its own, without its length word."""

@final
class AppendAnswers:
    """Encodes a leader's responses to successful appends, with the same bytes as the general encoder."""

    def __init__(self, group: bytes, leader_id: bytes) -> None:
        """Take both names as JSON strings, with their quotes."""

    def encode(self, opaques: list[int], first_index: int, offsets: Sequence[int], term: int) -> bytes:
        """Encode the responses to requests of one entry each, in one piece.

        Args:
            opaques: Opaques of the requests.
            first_index: Index of the first entry; the others follow.
            offsets: Offset of each entry (bytes).
            term: Term of all entries.
        """

@final
class AppendHead:
    """The fields that all requests 50912 to one group and member share."""

    def __init__(self, head: bytes) -> None:
        """The JSON before the bodies."""

    def encode(self, opaque: int, bodies: Iterable[bytes]) -> bytes:
        """A whole frame.

        Raises:
            FrameError: its size exceeds what the length field can hold.
        """

@final
class AppendFuture(ResponseFuture):
    """An append in flight; its future gets a decoded response of the class of `set_append_response`."""

# --- response_decoder.pyx

def set_send_result(result_class: type[Any], status_ok: Any) -> None:
    """Set the class of send results, and the status of a successful send."""

# --- received_record.pyx

class ReceivedRecord:
    """A record of a pull response, decoded attribute by attribute; keeps the bytes of the whole response.

    Created by `read_records`, or empty. Attributes are those of a record; consumers may set them.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    stored_body: bytes
    """The body as stored, possibly compressed."""
    properties: dict[str, str]
    """Names and values, including system properties; decoded on first access."""
    packed_born_host: bytes
    """Address and port of the sender as in a record."""
    packed_store_host: bytes
    """Address and port of the broker as in a record."""

    @property
    def body_length(self) -> int:
        """Bytes of the stored body."""

    @property
    def body(self) -> bytes:
        """The body as it was sent: the stored body, or the cached result of `decompressed`."""

    def decompressed(self) -> bytes:
        """Decompress the stored body; subclasses implement this."""

    def property(self, name: str) -> str | None:
        """The value of one property, or None; does not decode the others."""

    def copied(self) -> Self:
        """Return a copy that shares the bytes."""

def read_records(
    data: bytes, kind: type[R], broker_name: str, queue_id: int | None = None, delta: int = 0
) -> tuple[list[R], bool]:
    """Return all records of a pull response, and whether any is an inner batch.

    Args:
        data: Whole records, one after the other; kept by each of them.
        kind: Class of the returned records.
        broker_name: Set on each record.
        queue_id: Set on each record, unless None.
        delta: Added to each queue offset.

    Raises:
        MalformedRecordError: the bytes are not whole records of messages.

    Cost: about 0.2 µs a record.
    """

# --- entry_decoder.pyx

def count_whole_entries(kind: int, ledger_id: int, first_entry_id: int, entries: Iterable[bytes]) -> int:
    """Count the entries whose ids and digest match, up to the first that does not.

    Args:
        kind: Number of a `DigestType` other than HMAC.
        ledger_id: Expected ledger id.
        first_entry_id: Expected entry id of the first entry; the others follow.
        entries: Whole entries.

    Raises:
        ValueError: the digest type is not supported.
    """

def take_entries(
    made: type[E], kind: int, ledger_id: int, first_entry_id: int, entries: Iterable[bytes]
) -> list[E]:
    """Decode entries, up to the first whose ids or digest do not match.

    Args:
        made: Class of the returned entries, with the slots of `protocol.bookkeeper.entry.LedgerEntry`.
        kind: Number of a `DigestType` other than HMAC.
        ledger_id: Expected ledger id.
        first_entry_id: Expected entry id of the first entry; the others follow.
        entries: Whole entries.

    Raises:
        ValueError: the digest type is not supported.

    Cost: about 0.3 µs an entry, and the digest.
    """

def split_entries(body: Buffer) -> tuple[bytes, ...] | None:
    """Split a body into entries, each after its length (i32); None if the lengths do not add up."""

def read_indexed_entries(
    data: bytes, location: int, slots: bytes, ledger_id: int, entry_id: int
) -> list[bytes]:
    """Read entries of a part of an entry log, up to the first that is incomplete or differs from the index.

    Args:
        data: Part of the log: entries, each after its size (i32).
        location: Where `data` begins: number of the log in the upper 32 bits, position in the lower.
        slots: Locations from the index, of the first entry and those that follow (i64 each).
        ledger_id: Expected ledger id.
        entry_id: Expected id of the first entry; the others follow.
    """

# --- add_encoder.pyx

def encode_adds(
    number: int, ledger_id: int, key: bytes, entries: list[bytes], *, deferred_sync: bool = False
) -> bytes:
    """Encode plain adds of whole entries in version 3 of the protocol.

    Args:
        number: Number of the first request; the others follow.
        ledger_id: The ledger.
        key: Its master key.
        entries: Entries with their headers, which contain their ids.
        deferred_sync: The adds may be answered before they are on disk.

    Raises:
        LedgerFrameError: an entry is too long for a frame, or shorter than its header.
    """

@final
class AddEncoder:
    """Encodes plain adds to one ledger in version 3 of the protocol."""

    def __init__(self, ledger_id: int, key: bytes, kind: int, *, deferred_sync: bool = False) -> None:
        """Encode for one writer.

        Args:
            ledger_id: The ledger.
            key: Its master key.
            kind: Number of its `DigestType`, other than HMAC.
            deferred_sync: The adds may be answered before they are on disk.

        Raises:
            ValueError: the digest type is not supported.
        """

    def encode_batch(
        self, number: int, entry_id: int, last_add_confirmed: int, length: int, payloads: list[bytes]
    ) -> bytes:
        """Encode adds of consecutive entries in one piece; each entry is as `pack_entry` makes it.

        Args:
            number: Number of the first request; the others follow.
            entry_id: Id of the first entry; the others follow.
            last_add_confirmed: The writer's last add confirmed.
            length: Bytes of all payloads of the ledger before the first of these.
            payloads: One for each entry.

        Raises:
            LedgerFrameError: an entry is too long for a frame.
        """

def split_responses(
    data: bytes | bytearray, frame_bytes_max: int
) -> tuple[list[memoryview | tuple[int, int]], int]:
    """Split the whole frames at the front of received bytes; return them and their size in bytes.

    Consecutive successful add responses of version 3 are returned as (first number, count); every other frame
    is a view without its length word. The bytes must not change any more.

    Raises:
        FrameError: a length is too large or too small.
    """

def added_number(frame: Buffer) -> int:
    """Number of a successful add of version 3; -1 if the frame is another response."""
