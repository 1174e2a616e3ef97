"""The typed face of the native module. One section per fragment, in the order of `_core.pyx`."""

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
    """CRC-32C by table lookups, as on a processor without SSE4.2."""

def digest_with(kernel: str, data: Buffer, /, value: int = 0) -> int:
    """Digest with one kernel, named as in `digest_kernels()`; for tests and benchmarks.

    Raises:
        ValueError: this processor has no such kernel.
    """

def digest_kernels() -> tuple[str, ...]:
    """Names of the kernels this processor can run, slowest first, such as `crc32c-sse4.2`."""

def digest_backend() -> str:
    """Name of the kernels in use: `portable`, `pclmulqdq+sse4.2` or `vpclmulqdq`."""

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

# --- notifier.pyx

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

# --- mapping.pyx

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

def decompress_block(packed: Buffer, size_bytes: int) -> bytes | None:
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
            allocate_chunk_bytes: Allocate in steps of this size as writing goes on; 0: everything now.
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

# --- flush_service.pyx

@final
class FlushPolicy:
    """Decides at each wake whether a flush is worth while. Pure: time and positions are arguments.

    The page rule: in the file that holds the first dirty byte, flush when the file is full, or at least
    `least_pages` borders of 4,096-byte pages lie between flushed and wrote position; and whatever is dirty
    once `thorough_interval_ms` passed since the last such pass, the first pass included.
    `bounded`: flush once `dirty_bytes_max` bytes are dirty, or anything has been for `interval_ms`.
    docs/protocols/flush.md has the table.

    Source: RocketMQ store/.../CommitLog.java (FlushRealTimeService), DefaultMappedFile.java (isAbleToFlush).
    """

    name: str
    interval_ms: int
    least_pages: int
    thorough_interval_ms: int
    dirty_bytes_max: int
    """Of `bounded`; 0 where the page rule holds."""

    def __init__(
        self,
        name: str = "commit log",
        *,
        interval_ms: int = 500,
        least_pages: int = 4,
        thorough_interval_ms: int = 10_000,
        dirty_bytes_max: int = 0,
    ) -> None: ...
    @staticmethod
    def for_commit_log() -> FlushPolicy:
        """Flush of the commit log: every 500 ms from 4 pages on, every 10 s whatever is dirty."""
    @staticmethod
    def for_consume_queue() -> FlushPolicy:
        """Flush of consume queues: every second from 2 pages on, every 60 s whatever is dirty."""
    @staticmethod
    def for_commit() -> FlushPolicy:
        """Commit from the transient pool to the page cache: every 200 ms, whatever is there."""
    @staticmethod
    def bounded(dirty_bytes_max: int = 16384, interval_ms: int = 500) -> FlushPolicy:
        """Flush once this many bytes are dirty, or any for as long as the interval."""
    @staticmethod
    def pages_crossed(wrote_position: int, flushed_position: int) -> int:
        """Borders of 4,096-byte pages between two positions (bytes) in one file."""
    def deadline_ms(self) -> int | None:
        """When the next pass is due (ms, the caller's clock); None before the first, which is due at once."""
    def wait_ms(self, now_ms: int) -> int:
        """How long to sleep until the next pass is due (ms)."""
    def least_pages_at(self, now_ms: int) -> int:
        """Start a pass, for callers that apply the page rule themselves, as `MappedFileQueue.flush` does.

        Args:
            now_ms: Monotonic time (ms); never goes back.

        Returns:
            Least pages of this pass: 0 in a thorough one.
        """
    def decide(
        self, now_ms: int, wrote_where: int, flushed_where: int, file_size_bytes: int
    ) -> Literal["full", "pages", "thorough", "dirty", "bytes", "age"] | None:
        """Start a pass and decide.

        Args:
            now_ms: Monotonic time (ms); never goes back.
            wrote_where: End of what is written (offset in bytes; 0 is the start of a file).
            flushed_where: End of what is durable (offset in bytes).
            file_size_bytes: Size of each file; offsets are counted through the files.

        Returns:
            Why to flush the file that holds `flushed_where` now; None to wait.
        """

# --- journal_writer.pyx

@final
class JournalWriter:
    """The end of a bookie's journal: one thread appends, another writes and syncs by `run`.

    Each batch that was synced at once ends with padding to a block of 512 bytes, and in it a seal; see
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
        """Have what was appended written."""

    @property
    def event_fd(self) -> int:
        """Descriptor that is readable (8 bytes) after a sync, and when the writer failed."""

    @property
    def appended(self) -> int:
        """Bytes of all records that were appended."""

    @property
    def written(self) -> int:
        """Of them, those the operating system has."""

    @property
    def synced(self) -> int:
        """Of them, those on disk."""

    @property
    def mark(self) -> tuple[int, int]:
        """Number of the file and position (bytes) up to which all is on disk."""

    @property
    def failed(self) -> bool:
        """Whether a write or sync failed: what is not on disk never will be."""

    def open_file(self, path: str, fd: int, number: int, position: int) -> None:
        """Go on in another file, whose header (`position` bytes) is there; while `run` does not run."""

    def run(self) -> bool:
        """Write and sync what is appended, without the GIL, until the file is full or the writer was closed.

        Returns: True: the file is full. False: closed, and all is on disk.

        Raises:
            StoreFullError: The disk is full; the writer has failed.
            StoreIOError: The operating system reported an error; the writer has failed.
        """

    def fail(self, cause: BaseException) -> None:
        """Let it fail from outside, as when no new file can be made."""

    def close(self) -> None:
        """Append no more; `run` ends once all is on disk."""

# --- add_intake.pyx

@final
class AddIntake:
    """Takes batches of plain adds from their frames to memory and journal.

    What it does with an add is what `protocol.bookkeeper.bookie.BookieRules` would; what is not the plain
    case it leaves to them: other requests, ledgers that are new or fenced, wrong keys, flags, entries that
    name themselves otherwise than their request.
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
            writers: Its journals. Adds of a ledger go to that at its id modulo their number.
            ledgers: All that it knows, with `master_key`, `fenced` and `last_add_confirmed`.
            last_ids: The highest entry of each.
            entry_id_max: The highest entry that it can keep.
            step_max: An entry farther beyond the last one of its ledger is left to the rules.
        """

    def take(
        self, frames: list[memoryview], at: int, cache: dict[int, dict[int, bytes]], *, version2: bool
    ) -> tuple[int, bytes, int, list[int]]:
        """Take the batch of plain adds that begins at a frame, and let its journal write.

        Args:
            frames: Without their lengths.
            at: Which of them is the first.
            cache: Gets the entries, by ledger and entry.
            version2: Whether the frames are of version 2 of the protocol, else of version 3.

        Returns: How many were taken, all of one journal; their responses, to be sent once it is on disk up to
        its `appended`; bytes of the entries; their ledgers.

        Raises:
            StoreFailedError: The journal has failed.
        """

# --- record_encoder.pyx

def copy_and_digest(target: Buffer, bodies: list[bytes]) -> int:
    """Copy bodies one after the other into a writable buffer and digest each; the last CRC.

    What appending cannot do without: benchmarks measure the append against it.
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
        """The prepared way to one queue; the same object at every call.

        Raises:
            IllegalMessageError: the topic's name or the queue id is not allowed.
        """
    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset (units) that the next message of a queue gets; 0 for an unknown queue."""
    def set_next_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set it (units) after a recovery, before the first append."""
    def note_store_timestamp(self, timestamp_ms: int) -> None:
        """A record of this store time (ms) was written by other means; none of an earlier one follows."""
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
            IllegalMessageError: something that no reader could read back.
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
    """The prepared way to one queue, from `CommitLog.appender`: its header is encoded once."""

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
    """A prepared way to one queue of a store with sync flush: returns once the messages are on disk.

    The face of `QueueAppender`, which a store with async flush hands out itself.
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
    """Where and why a walk ended, and what it met on its way."""

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
    """Where and why a walk over a DLedger log ended, and what it met on its way."""

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
        """Close data and index; nothing can be appended or read any more."""
    def clear(self) -> None:
        """Remove all files: the log is as one where nothing was ever appended.

        Durability: the files are gone on return; a crash meanwhile leaves the first ones.
        """
    def clear_units(self) -> None:
        """Remove all index files; `start_units` and `put_units` make new ones."""
    @property
    def end_offset(self) -> int:
        """Where the next entry starts, or the filler before it (bytes)."""
    def append_many(self, term: int, bodies: Sequence[Buffer]) -> list[int]:
        """Append entries as a leader, one after the other; returns their offsets (bytes).

        Raises:
            RecordTooLargeError: longer than 4 MiB with its head, or than a data file. Nothing was appended.
            StoreFullError: no space; entries before the one that found none are there.

        Durability: none yet; see `MappedFileQueue.flush`.
        """
    def append_bodies(self, term: int, data: Buffer) -> list[int]:
        """As `append_many`, of bodies that each have their length (i32) before them; see `count_bodies`."""
    def append_batch(self, data: Buffer) -> int:
        """Append entries of a leader as `read_batch` gives them, each at its place, their checksums verified.

        Returns:
            How many were taken: those before one that is damaged, not the next, or would stand elsewhere.

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
            pos: Where its leader has it (bytes); it must come to stand there. -1: anywhere.
            magic: 1, or 2 for a no-op.
            channel: As sent.
            chain_crc: As sent.
            body_crc: As sent.
            body: Its bytes.

        Raises:
            OffsetOutOfRangeError: it is not the next one.
            EntryPositionError: it would stand elsewhere; nothing was written.
        """
    def start_at(self, index: int, pos: int, term: int) -> None:
        """Let a log without files begin with entry `index` at `pos` (bytes), after one of `term`.

        What lies before it in its file becomes a head filler, which Java's generation A does not know.
        """
    def start_units(self, index: int) -> None:
        """Let the index, which has no files, begin with the unit of an entry."""
    def put_units(self, start: int) -> None:
        """Write index units for the entries that stand from `start` (bytes) on, where the index ends."""
    def read(self, index: int) -> DLedgerEntryTuple:
        """The entry of an index.

        Raises:
            OffsetOutOfRangeError: there is no such entry.
            CorruptRecordError: its unit or its checksum does not match it.
        """
    def read_batch(self, first: int, count_max: int, bytes_max: int) -> tuple[bytes, int, int]:
        """Entries from index `first` on, in one piece: at least one, then until so many or so many bytes.

        Returns:
            Their bytes as stored, without fillers; `first`; how many they are.

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
    """First index and count of stored entries; None when they do not follow one another to the end."""

def count_bodies(data: Buffer) -> int:
    """How many bodies have their length (i32) before them; -1 when the lengths do not add up."""

# --- message_reader.pyx

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
    """Which records become rows. Everything left out lets all pass; ranges are half open."""

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
    """Memory that a column was filled into; freed with the last Arrow array on it."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

# --- unit_reader.pyx

@final
class UnitReader:
    """Records that units name, one after another; used from native code."""

# --- columns.pyx

@final
class ColumnBuilder:
    """Fills the buffers of one Arrow batch after another from records of a log view."""

    columns: tuple[str, ...]
    row_count: int
    """Rows of the batch at hand."""
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
            met: see `fault` and `fault_offset`. `next_offset` is where to go on.
        """

    def gather(self, view: LogView, units: Buffer, start: int = 0) -> bool:
        """Append the records that consume queue units name, from unit number `start` on, those wanted.

        Returns:
            True when the batch is full and more may follow; False when all units are done or a fault was
            met: see `fault` and `fault_offset`. `next_index` is the unit to go on with.
        """

    def finish(self) -> list[tuple[int, list[ArrowBuffer | None]]]:
        """Hand over the batch and start the next one.

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
        """Whether the queue had units that `recover` could not keep, or has files that lack units.

        Units that name places beyond the log's end do not count. A queue whose last pages are all zeroes is
        not known to be incomplete: only the log tells.
        """
    parked: bool
    """Files may be unmapped until somebody needs a unit."""
    def park(self, *, at_once: bool = False) -> None:
        """Unmap the files until somebody needs a unit, unless they were needed since the last call.

        Dispatch must not run meanwhile: see `Dispatcher.park`. Files that somebody views stay mapped.

        Args:
            at_once: Also when they were needed.
        """
    def flush_is_due(self, least_pages: int) -> bool:
        """Whether `flush` would do something."""
    def begin_flush(self) -> int:
        """Somebody is about to make everything durable: the end that this will vouch for (bytes)."""
    def end_flush(self, end_where: int) -> None:
        """Everything below `end_where` (bytes) is durable."""
    def flush(self, least_pages: int = 0) -> bool:
        """Make units durable when at least `least_pages` pages are dirty or a file is full; True if it did.

        Names of files that are new, or were found at opening, become durable with the first units, or with
        0 pages.

        Raises:
            StoreFailedError: this or an earlier flush failed.
        """
    def remove_files(self) -> None:
        """Start anew with no file: for a queue whose head is lost, when the log still has all of it.

        Raises:
            StoreIOError: the operating system reported an error.
        """
    def sync(self) -> None:
        """Make files and names durable whole, whoever wrote them: an earlier process may have been killed.

        Raises:
            StoreFailedError: the disk reported an error.
        """
    def close(self) -> None:
        """Let the files go. Units viewed before stay readable until their views are released."""

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
        file_size_bytes: The search goes file by file, and its answers at their edges depend on it.
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
        """(tags code, store time in ms, bit map) of the unit at an address; None when none is there."""
    def tags_code(self, address: int) -> int:
        """The real tags code behind an address; the address itself when its unit is missing or damaged."""

# --- consume_queue.pyx

@final
class ConsumeQueue(UnitQueue):
    """The index of one topic and queue into the commit log.

    Args:
        folder: The store's `consumequeue` folder.
        file_size_bytes: Size of a queue file, rounded up to whole units; None: 6,000,000. Read-only: None
            reads it off the files.
        readonly: Never write; take cut files, files of other sizes and foreign files as they come.
        ext_folder: The store's `consumequeue_ext` folder, when units may point there for their tags codes.

    After opening, a queue holds whatever its files hold; call `recover` before use. One thread writes at a
    time.

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
            physical_offset: Where the record stands, in bytes of the log.
            size_bytes: Its length.
            tags_code: Java's hash of its tags, or a delayed message's delivery time in ms.
            queue_offset: In units.

        Raises:
            StoreFullError: no room for the next file or chunk. Nothing was appended.
            StoreFormatError: more units are missing before it than records could stand in between.
        """
    def get(self, queue_offset: int) -> tuple[int, int, int]:
        """(physical offset, size in bytes, tags code), the real tags code where it is stored apart.

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
        """Find the last good unit in the last `files` files (0: in all), and cut the queue after it.

        A unit is good when it names a place in the log, after its predecessor's. With a view the last unit
        must also be that record's: its queue offset, size and tags code. A read-only queue is cut in memory
        only.

        Returns:
            Units dropped, as far as they did not look empty.
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
        file_size_bytes: The search goes file by file, and its answers depend on where files begin.
    """

@final
class BatchConsumeQueue(UnitQueue):
    """The index of one topic and queue whose records are batches; the face of ConsumeQueue.

    Args:
        folder: The store's `batchconsumequeue` folder.
        file_size_bytes: Size of a queue file, rounded up to whole units; None: 13,800,000. Read-only: None
            reads it off the files.
        readonly: Never write; take cut files, files of other sizes and foreign files as they come.
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
            physical_offset: Where the record stands, in bytes of the log.
            size_bytes: Its length.
            tags_code: Java's hash of its tags.
            store_timestamp_ms: Its store time.
            base_offset: Queue offset of its first message.
            count: Its messages, 1 to 32767.

        Raises:
            StoreFullError: no room for the next file or chunk. Nothing was appended.
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
        """Find the last good unit in the last `files` files (0: in all), and cut the queue after it.

        Returns:
            Units dropped, as far as they did not look empty.
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
        """Where the first entry's record stands, bytes of the log."""
    @property
    def end_physical_offset(self) -> int:
        """Where the last entry's record stands, bytes of the log."""
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
            StoreFullError: no room for the next chunk. Nothing was added.
        """
    def entry(self, number: int) -> tuple[int, int, int, int]:
        """(key hash, physical offset, seconds since the file's begin, the chain's previous entry)."""
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
        """Start of the last record with an entry (bytes of the log): dispatch goes on there; -1 without."""
    @property
    def end_timestamp(self) -> int:
        """Store time of the last entry, ms; 0 without one."""
    def put(self, topic: str, key: str, physical_offset: int, store_timestamp_ms: int) -> None:
        """Add a key of the message at `physical_offset` (bytes), in a new file when the last one is full.

        Raises:
            StoreFullError: no room for the next file or chunk. Nothing was added.
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

        Only hashes are compared, times to the second: look at the messages. Offsets below the log's start are
        of deleted messages.
        """
    def truncate_to_physical(self, physical_offset: int, view: LogView | None = None) -> None:
        """Take back the entries of records at or above `physical_offset` (bytes). Durable on return.

        `view` gives the exact time of the last record left.
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
    """What a walk over the log knows of each queue; no use of its own."""

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
        start_offset: Where to begin (bytes of the log), a record's start. What the queues or the index have
            is passed over.
        delays_ms: Delays of levels 1, 2, …; they make the tags codes of delayed messages.
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
        """Queues that cannot be made or grow. Nothing else waits for them; `dispatched_where` does.

        Returns:
            For each its topic and queue id, the physical offset of the first record that it lacks, the queue
            offset behind the last that was passed over, and why. The index is `("", -1, …, 0, …)`.
        """
    def retry(self, view: LogView) -> None:
        """Try what is stalled; what can go on gets the records that it lacks.

        Cost: one unit each while nothing can go on, else a walk from the first record that was missed.
        """
    def start_at(self, offset: int) -> None:
        """Go on from a record's start (bytes): after the log was cut, or to leave a damaged part out.

        The queues and the index must have been cut before.
        """
    def close(self) -> None:
        """Wait for a walk that is under way and refuse any other: the files may be unmapped afterwards."""
    def park(self, queues: Iterable[UnitQueue]) -> None:
        """Unmap the files of queues that nobody has used for a while; see `UnitQueue.park`."""
    def forget(self, topic: str, queue_id: int) -> None:
        """Let a queue go; its next unit opens it again."""
    def dispatch(self, view: LogView, end_offset: int | None = None) -> int:
        """Dispatch records that end at or before `end_offset` (bytes; None: the view's end).

        Any thread may call; one walks, the others wait for it without the interpreter lock.

        Returns:
            `dispatched_where`.

        Raises:
            CorruptRecordError: no record where one should be. Nothing beyond was dispatched.
        """
    def take_advanced(self) -> list[tuple[str, int, int]]:
        """[(topic, queue id, max offset)] of queues that got units since the last call."""

# --- replica_log.pyx

class ReplicaLog:
    """The end of a slave's commit log: a master's bytes are written there as they come, cut anywhere.

    They count as whole records when they are; what is no record that belongs there is refused. One thread
    appends.
    """

    queue: MappedFileQueue

    def __init__(self, queue: MappedFileQueue) -> None:
        """Go on at the end of a log's files, which must be that of a record."""
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
            OffsetOutOfRangeError: another place than the end.
            CorruptRecordError: what would stand there is no record that belongs there; nothing was written.
            StoreFormatError: the master's files have another size.
            StoreFullError: no room; nothing was written.

        Durability: none yet; see `MappedFileQueue.flush`.
        """
    def take_frames(self, data: Buffer) -> int:
        """Append the whole frames `i64 offset | i32 size | size bytes` that `data` begins with, in one write.

        They end before the first that is not all there, is empty, does not belong at the log's end, or goes
        into another file than the last; `append` and its caller know what to do with that.

        Returns:
            How many bytes of `data` they are.

        Raises:
            CorruptRecordError, StoreFullError: as `append`; nothing was written.
        """
    def truncate_partial(self) -> int:
        """Take back the bytes behind the last whole record, durably; how many there were.

        Raises:
            StoreFailedError: an earlier flush failed, also where there are none.
        """

# --- replica_receiver.pyx

class ReplicaReceiver:
    """Takes a master's frames from a socket into a log, and reports, without the interpreter lock.

    One thread runs it. It takes frames that are whole, in order, and go into the log's last file; of all else
    the machine of the connection decides.
    """

    closed: bool
    """Whether the master has closed the connection."""

    def __init__(
        self, log: ReplicaLog, fd: int, event_fd: int, dispatcher: EventNotifier, *, reports: bool = True
    ) -> None:
        """Take from a connected socket that does not block.

        Args:
            log: Where the bytes go.
            fd: The socket's descriptor; its owner closes it, after the last run.
            event_fd: Descriptor of an eventfd; it is written to when bytes were stored after `arm`.
            dispatcher: Woken when bytes were stored.
            reports: Whether what is written is reported at once; else `run` returns when something was.
        """
    @property
    def reported_offset(self) -> int:
        """Physical offset (bytes) that was reported last; -1 before the first report."""
    @property
    def since_read_ms(self) -> int:
        """How long ago (ms) bytes came, or this was made."""
    @property
    def since_report_ms(self) -> int:
        """How long ago (ms) something was reported, or this was made."""
    def arm(self) -> None:
        """Write to the eventfd once, when the next bytes are stored."""
    def report(self, offset: int) -> bool:
        """Report a physical offset (bytes); False: the kernel had no room, the connection is of no use."""
    def run(self, timeout_ms: int, *, between_frames: bool = True) -> bytes:
        """Take frames for so long (ms), or until there is something else to do.

        Args:
            timeout_ms: Longest stay.
            between_frames: Whether what comes next begins with a frame's header; else nothing is stored.

        Returns:
            Bytes for the connection's machine, as they came; empty where the time is over, bytes were stored
            that are not to be reported at once, or the connection is `closed`.

        Raises:
            OSError: the connection broke, or a report was cut.
            CorruptRecordError, StoreFormatError, StoreFullError, StoreFailedError: as `ReplicaLog.append`.
        """

# --- log_sender.pyx

class LogSender:
    """Sends ranges of the log as frames `i64 offset | i32 size | size bytes`, into a socket without blocking.

    A frame ends where it is full and where a file ends. One thread sends at a time.
    """

    blocked: bool
    """Whether the kernel took no more the last time."""

    def __init__(self, fd: int, frame_bytes_max: int) -> None:
        """Send into a connected socket, which its owner closes; frames have at most so many log bytes."""
    @property
    def next_offset(self) -> int:
        """Physical offset (bytes) where the next frame begins."""
    @property
    def unfinished(self) -> bool:
        """Whether the last frame has gone in part only: the next call sends its rest."""
    def send(self, view: LogView, start: int, stop: int) -> int:
        """Send frames from `start` up to `stop`, physical offsets (bytes): at most half a MiB, at once.

        Returns:
            Where the next frame begins: with `start` from there on it goes on.

        Raises:
            OSError: the connection broke.
            OffsetOutOfRangeError: the view has no such bytes.
            InvariantError: another `start`, and the last frame has gone in part only.
        """
    def stream(self, view: LogView, start: int, stop: int, last: MappedFile, *, rests: bool = True) -> int:
        """As `send`, as much as the slave takes, without the interpreter lock: for a thread of its own.

        Args:
            view: Where the bytes are.
            start: Physical offset (bytes) where the range begins.
            stop: Where it ends.
            last: The log's last file. While it grows, and `rests`, a pause of 2 ms follows each half MiB, as
                long as twice as much is sent as is put.
            rests: Whether to leave time for those who put.

        Returns:
            As `send`: short of `stop` where the slave took nothing for 5 ms, and after `stop()`.
        """
    def beat(self, offset: int) -> None:
        """Send an empty frame: the next one begins at a physical offset (bytes). None may be unfinished."""
    def stop(self) -> None:
        """Let `stream` end soon, now and ever after. Any thread may call."""

# --- index_check.pyx

def index_chain_faults(
    raw: Buffer, slots: int, entry_count: int, limit: int = 10
) -> list[tuple[str, int, int, int]]:
    """The first places where the hash chains of an index file are broken, in the order of the file.

    Args:
        raw: The file.
        slots: Its hash slots.
        entry_count: Number of its next entry; the first is 1.
        limit: Most faults wanted, at most 64.

    Returns:
        (kind, place, stated, wanted): "hash", entry number, negative hash, 0; "previous", entry number, the
        entry before it in its slot; "slot", slot number, its newest entry.

    Cost: one pass without the interpreter lock; 4 bytes of memory a slot.
    """

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
    """Records left out because their queue offsets cannot be true: given before, or far too high."""
    miscounted: int
    """Inner batches that state another number of messages than they hold; the units have the true one."""
    odd_where: int
    """Physical offset (bytes) of the first of both; means nothing without such a record."""

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

        That is below the range's end when a record crosses the end, or when no record stands there (damage).

        Cost: no interpreter lock is held; about 20 bytes of memory a message.
        """
    def take(self) -> dict[tuple[str, int], UnitRange]:
        """Hand over what was gathered; later units go on where these end."""

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

    def __init__(self, *, with_tags: bool = False) -> None:
        """With or without the entry that RocketMQ 5.4 and later make for the tags of a record."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def collect(self, view: LogView, start_offset: int, end_offset: int | None = None) -> int:
        """Gather the keys of records in a range of the log (bytes); returns where it ended.

        That is below the range's end when a record crosses the end, or when no record stands there (damage).

        Raises:
            BufferError: a view of the entries is alive.

        Cost: no interpreter lock is held; 24 bytes of memory a key.
        """
    def query(self, topic: str, key: str, begin_ms: int = 0, end_ms: int = ..., limit: int = 64) -> list[int]:
        """Physical offsets (bytes) of records that may have a key, newest first. Only hashes are compared."""

# --- pull.pyx

@final
class PullLimits:
    """What one pull may give at most: counts and bytes, for records in memory and for older ones on disk."""

    memory_count: int
    memory_bytes: int
    disk_count: int
    disk_bytes: int
    resident_bytes: int
    """So many bytes before the log's end count as in memory."""

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
    """Places of whole records in the log, in queue order; neighbours in the log are one range.

    A sequence of read-only memoryviews, made when asked for; each keeps its file mapped.
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
        log: Where its records stand.
        queue_offset: First message wanted (units).
        max_count: Most messages. The first record is given whatever its size and count.
        max_bytes: Most bytes of records.
        limits: The store's own limits.
        codes: Tag codes that pass; none: all pass.
        tags: The tags of these codes in UTF-8; messages whose tag only has the same code are left out. Ranges
            are filtered by code alone, as upstream's pull is.
        as_ranges: Give ranges instead of messages.

    Returns:
        (status in the order of upstream's GetMessageStatus, next offset to ask for, the queue's least and end
        offset, messages or ranges, number of messages).

    Cost: O(messages given + units passed); holds the interpreter lock.
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
        units_max: Units to look at, at most.
        matches_max: Stop after so many.

    Returns:
        (units looked at, units that match).
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
        MalformedJsonError: names the place.
    """

# --- remoting.pyx

class DecodedRequest:
    """What the requests that come often share. Everything else of a command is in `frame`."""

    @property
    def code(self) -> int:
        """What is asked, a `RequestCode`."""

    @property
    def flag(self) -> int:
        """Flag of the command; bit 1 marks a request that wants no response."""

    @property
    def opaque(self) -> int:
        """Ties the response to this request."""

    @property
    def language(self) -> int:
        """A `LanguageCode`."""

    @property
    def version(self) -> int:
        """The sender's version."""

    @property
    def serialize(self) -> int:
        """How the header was written, a `SerializeType`."""

    @property
    def has_other_fields(self) -> bool:
        """Whether the header has fields beside those read here, such as a signature; they are in `frame`."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def bname(self) -> str | None:
        """Name of the broker that is meant."""

    @property
    def queue_id(self) -> int:
        """Number of the queue."""

    @property
    def sys_flag(self) -> int:
        """Bits of a send as in a record, of a pull as upstream's PullSysFlag."""

    @property
    def is_oneway(self) -> bool:
        """Whether no response is wanted."""

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
        """Encoded, as they stand in a record."""

    @property
    def reconsume_times(self) -> int | None:
        """How often the message was tried."""

    @property
    def max_reconsume_times(self) -> int | None:
        """How often it may be tried."""

    @property
    def unit_mode(self) -> bool:
        """Of unit deployments; a missing one is false."""

    @property
    def batch(self) -> bool:
        """Whether the body is a batch; a missing one is false."""

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
        """How far the group is (units), if `sys_flag` says that it holds."""

    @property
    def suspend_timeout_millis(self) -> int:
        """How long to wait for a message."""

    @property
    def sub_version(self) -> int:
        """Time of the subscription in milliseconds."""

    @property
    def subscription(self) -> str | None:
        """The expression, if `sys_flag` says that it comes with the request."""

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
    """Decode what a frame has before its body.

    Args:
        frame: One frame without its length word; borrowed for the call.

    Returns:
        (code, flag, opaque, language, version, remark, fields, form of the header, position of the body in
        bytes), or None when the header is unusual or wrong in the least, for Python to read.
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
    """Cut received bytes into frames, and decode those that are sends or pulls, or answers to our own.

    Args:
        data: What was received, from the start of a frame on. Nobody may write to it any more: bodies and
            frames are views of it.
        max_frame_bytes: Most bytes of a frame, its length word included.
        calls: Requests in flight by opaque. With it requests are not decoded; a response that is decoded
            comes as its `ResponseFuture`, removed from the table.
        appends: Decode appends to a replicated log instead; those that follow one another come as one.

    Returns:
        (for each whole frame a request, or a view of the frame without its length word, which
        `pyledger.wire.remoting.command.decode` reads; how many bytes they took). A frame is left as a view
        when its code is another one, or when its header is unusual or wrong in the least.

    Raises:
        FrameError: a length is too large or too small.

    Cost: O(bytes of headers); holds the interpreter lock.
    """

# --- remoting_encoder.pyx

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
        serialize: Form of the header, as in the request.
        opaque: As in the request.
        code: A `ResponseCode`.
        remark: Text for people.
        msg_id: Offset message id; several with commas for a batch.
        queue_id: Number of the queue.
        queue_offset: Place of the (first) message, in units.
        transaction_id: The message's `UNIQ_KEY`.
        region: The broker's region.
        trace_on: Whether the client shall trace.

    Raises:
        FrameError: it fits in no frame.
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
    """Encode all of a response to a pull that stands before its body.

    Args:
        serialize: Form of the header, as in the request.
        opaque: As in the request.
        code: A `ResponseCode`.
        remark: Text for people.
        suggest_which_broker_id: Where to ask next.
        next_begin_offset: Offset to ask for next, in units.
        min_offset: The queue's least offset.
        max_offset: The queue's end offset.
        topic_sys_flag: Of the topic.
        group_sys_flag: Of the group.
        body_size_bytes: Bytes that will follow.

    Raises:
        FrameError: it fits in no frame.
    """

# --- send_run.pyx

@final
class SendBatch:
    """Sends that were appended, one after another, to one queue."""

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
        """Physical offset behind the last record."""

    @property
    def queue_end(self) -> int:
        """Queue offset behind the last message."""

    @property
    def properties(self) -> bytes | None:
        """Properties of the message as they came, if there is but one."""

    def answers(self, code: int, remark: str | None) -> bytes:
        """The responses to all requests that want one, whole frames in one piece."""

@final
class SendBatchAppender:
    """Appends ordinary sends by the run. Belongs to one thread.

    Invariant: what it stores and answers is what the usual way would.
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
            added_properties: Stored behind the properties of each single message, encoded.
            special: Names of properties that make a request not ordinary.
            region: `MSG_REGION` of the answers.
            trace_on: `TRACE_ON` of the answers.
        """
    def append(
        self,
        frames: Sequence[memoryview | DecodedRequest],
        begin: int,
        born_host: tuple[str, int] | None,
        requests_max: int,
    ) -> SendBatch | None:
        """Append frames from `begin` on as far as they are ordinary sends, or batches, to one queue.

        Ordinary is a send with a body, of no transaction, whose properties are well formed, with no name
        twice and none that is special, and that waits for its flush. What the log refuses ends the run, too.

        Args:
            frames: A list, as `decode_frames` gives it.
            begin: Index of the first.
            born_host: (address literal, port) of the sender; None: the store host.
            requests_max: Requests to append at most.

        Returns:
            What was appended; None: not even the first.

        Durability: none yet, as `CommitLog.append`.
        """

# --- pull_run.pyx

@final
class PullBatch:
    """Answers to pulls that found messages, in order."""

    @property
    def request_count(self) -> int:
        """Pulls that were answered."""

    @property
    def message_count(self) -> int:
        """Messages in all answers."""

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
    """Answer pulls from `begin` on as far as they find messages and ask as the first one does.

    Whoever calls has checked the first one: its group may read its topic, and no reset waits for it.

    Args:
        frames: What one connection has received. That at `begin` is a `PullRequest`.
        begin: The first to be looked at.
        queues: Consume queues by topic and queue id.
        log: Where their records stand.
        limits: The store's own limits of one pull.
        codes: Tag codes that pass; none: all pass.
        next_offsets: By queue id; gets where the next pull of each goes on (units).
        queue_count: Queues of the topic that may be read.
        topic_flags: `topicSysFlag` of the answers.
        group_flags: `groupSysFlag` of the answers.
        record_bytes_max: Most bytes of records in one answer.
        copied: Make one piece of bytes of all; otherwise records are views of the log.
        bytes_max: The run ends when it has so many bytes.

    Returns:
        The answers; None when the first pull is not ordinary.

    Cost: O(messages given + units passed); holds the interpreter lock.
    """

# --- outgoing.pyx

@final
class UniqueIds:
    """Makes the ids that producers of one process give their messages: unique without asking anybody.

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
        """Ids that start with what names this process.

        Args:
            address: Of this host, 4 or 16 bytes.
            process_id: Of the operating system.
            process_number: Tells processes with one id apart, such as a random number.
            month_of: First millisecond of the month of a time in ms, and of the month after it.
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
    """What a request to send needs to know of its message or batch, and the state of its sending."""

    topic: str
    body: bytes | bytearray | memoryview
    properties: bytes
    """Encoded; empty for a batch."""
    unique_key: str
    """Of a batch those of its messages, separated by commas."""
    flag: int
    sys_flag: int
    reconsume_times: int
    reconsume_times_max: int | None
    is_batch: bool
    is_reply: bool
    deadline: float
    """Of all attempts, by the clock of the event loop."""
    mode: Any
    """What is tried again."""
    queue: Any
    """The queue that was chosen; None: any."""
    select: Any
    """Chooses the queue."""
    timeout_ms: int
    sender: Any
    """Its method `finished` gets the outcome of an attempt."""
    tried: list[str]
    """Names of the brokers of all attempts."""
    target: Any
    """The queue of this attempt."""
    result: Any
    """What an answer said."""

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        properties: bytes,
        unique_key: str,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> None:
        """Made with what does not change; the rest starts empty."""

    def finish(self, outcome: Any) -> None:
        """Hand the outcome of an attempt to `sender`."""

def prepare_message(message: Message, ids: UniqueIds, now_ms: int, body_bytes_max: int) -> PendingSend | None:
    """Make an ordinary message ready to be sent: its properties encoded, with a unique key.

    Args:
        message: Its body is kept, not copied.
        ids: Makes the unique key.
        now_ms: Since 1970.
        body_bytes_max: Bodies are shorter.

    Returns:
        None: something about it is unusual or wrong, and for Python to handle.
    """

def prepare_messages(
    messages: Sequence[Message], ids: UniqueIds, now_ms: int, size_bytes_max: int
) -> PendingSend | None:
    """Make ordinary messages of one topic ready to be sent as a batch.

    Args:
        messages: Their bodies are copied.
        ids: Makes the unique keys.
        now_ms: Since 1970.
        size_bytes_max: Of the whole batch.

    Returns:
        None: something about one of them is unusual or wrong, and for Python to handle.
    """

@final
class SendHead:
    """What the requests to send to one queue have in common, encoded once."""

    def __init__(
        self, queue: Any, code: int, binary: bool, before: dict[str, str], behind: dict[str, str]
    ) -> None:
        """Encode the fields.

        Args:
            queue: Kept, not looked at.
            code: 310 or 320.
            binary: Write RocketMQ's own form of a header rather than JSON.
            before: Fields `a` to `e`.
            behind: Fields from `j` on.
        """

    @property
    def queue(self) -> Any:
        """As given."""

    def encode(self, out: PendingSend, opaque: int, born_ms: int, with_body: bool) -> bytes:
        """A request: all of it, or what stands before its body.

        Raises:
            FrameError: the body fits in no frame.

        Cost: copies the body if it is wanted.
        """

# --- pulls of ours

@final
class PullFuture(ResponseFuture):
    """A pull in flight; its future gets this once decoded. Fields as in `PullMessageResponseHeader`."""

    @property
    def code(self) -> int:
        """A `ResponseCode`."""

    @property
    def suggest_which_broker_id(self) -> int:
        """Whom to ask the next time."""

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
    """What the pulls of one queue have in common, encoded once."""

    def __init__(
        self, code: int, binary: bool, before: dict[str, str], middle: dict[str, str], behind: dict[str, str]
    ) -> None:
        """Encode the fields.

        Args:
            code: 11 or 361.
            binary: Write RocketMQ's own form of a header rather than JSON.
            before: Fields before `queueOffset`.
            middle: Fields between that and `sysFlag`.
            behind: Fields behind `commitOffset`, which follows that.
        """

    def encode(self, opaque: int, queue_offset: int, sys_flag: int, commit_offset: int) -> bytes:
        """A whole request.

        Args:
            opaque: Ties the answer to it.
            queue_offset: First message wanted (units).
            sys_flag: Bits of upstream's PullSysFlag.
            commit_offset: Where the group stands (units), if `sys_flag` says that it holds.
        """

# --- dledger_append.pyx

def set_append_response(response_class: type[Any]) -> None:
    """Name the class of an append's answer."""

@final
class AppendBatch(DecodedRequest):
    """Appends of one entry each that came one after the other for one group and member.

    They are requests 50912, or 50001 as DLedger's clients write them, that want an answer. `opaque`, `flag`
    and the like are those of the first.
    """

    @property
    def group(self) -> str:
        """Name of the group."""

    @property
    def remote_id(self) -> str:
        """Whom they ask."""

    @property
    def bodies(self) -> list[bytes]:
        """What to append."""

    @property
    def opaques(self) -> list[int]:
        """Of each request."""

    @property
    def frames(self) -> list[memoryview]:
        """Each request as a frame of its own, without its length word."""

@final
class AppendAnswers:
    """Writes a leader's answers to appends that went well, byte for byte as a plain frame has them."""

    def __init__(self, group: bytes, leader_id: bytes) -> None:
        """Both names as JSON, with their quotes."""

    def encode(self, opaques: list[int], first_index: int, places: Sequence[int], term: int) -> bytes:
        """The answers to requests of one entry each, in one piece.

        Args:
            opaques: Of the requests.
            first_index: Of the first one's entry; the others follow.
            places: Where each entry stands (bytes).
            term: Of all.
        """

@final
class AppendHead:
    """What the requests 50912 for one group and member have in common."""

    def __init__(self, head: bytes) -> None:
        """The JSON before the bodies."""

    def encode(self, opaque: int, bodies: Iterable[bytes]) -> bytes:
        """A whole frame.

        Raises:
            FrameError: it would be larger than its length field can say.
        """

@final
class AppendFuture(ResponseFuture):
    """An append in flight; its future gets a decoded response of the class of `set_append_response`."""

# --- answers.pyx

def set_send_result(result_class: type[Any], status_ok: Any) -> None:
    """Name the class of a send's result, and the status of one that went well."""

# --- received_record.pyx

class ReceivedRecord:
    """A record of a pull's answer, decoded attribute by attribute; keeps the bytes of the whole answer.

    Made by `read_records`, or empty. Attributes as in a record; whoever consumes may set them.
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
    """The body as it is stored, perhaps packed."""
    properties: dict[str, str]
    """Names and values, the system's own included; decoded when first asked for."""
    packed_born_host: bytes
    """Address and port of the sender as in a record."""
    packed_store_host: bytes
    """Address and port of the broker as in a record."""

    @property
    def body_length(self) -> int:
        """Bytes of the stored body."""

    @property
    def body(self) -> bytes:
        """The body as it was sent: the stored one, or what `unpacked` makes of it, once."""

    def decompressed(self) -> bytes:
        """Unpack the stored body; whoever derives from this says how."""

    def property(self, name: str) -> str | None:
        """The value of a property; None without it. Decodes no others."""

    def copied(self) -> Self:
        """Another one of the same record."""

def read_records(
    data: bytes, kind: type[R], broker_name: str, queue_id: int | None = None, delta: int = 0
) -> tuple[list[R], bool]:
    """All records of an answer, and whether there are inner batches among them.

    Args:
        data: Whole records, one after the other; kept by each of them.
        kind: What is made of each.
        broker_name: Set on each.
        queue_id: Set on each, unless it is None.
        delta: Added to each queue offset.

    Raises:
        MalformedRecordError: the bytes are no whole records of messages.

    Cost: about 0.2 µs a record.
    """

# --- ledger_entry.pyx

def count_whole_entries(kind: int, ledger_id: int, first_entry_id: int, entries: Iterable[bytes]) -> int:
    """How many entries are what their writer made, up to the first that is not.

    Args:
        kind: Number of a `DigestType` other than HMAC.
        ledger_id: Where they belong.
        first_entry_id: Which the first one has to be; the others follow.
        entries: Whole.

    Raises:
        ValueError: Another digest.
    """

def take_entries(
    made: type[E], kind: int, ledger_id: int, first_entry_id: int, entries: Iterable[bytes]
) -> list[E]:
    """Take entries apart, up to the first that is not what its writer made.

    Args:
        made: What is made of each: a class with the slots of `protocol.bookkeeper.entry.LedgerEntry`.
        kind: Number of a `DigestType` other than HMAC.
        ledger_id: Where they belong.
        first_entry_id: Which the first one has to be; the others follow.
        entries: Whole.

    Raises:
        ValueError: Another digest.

    Cost: about 0.3 µs an entry, and the digest.
    """

def split_entries(body: Buffer) -> tuple[bytes, ...] | None:
    """Entries that each follow their length (i32); None: they do not add up."""

def read_indexed_entries(
    data: bytes, location: int, slots: bytes, ledger_id: int, entry_id: int
) -> list[bytes]:
    """Entries of a piece of an entry log, up to the first that is not whole or not where an index says.

    Args:
        data: Of the log: entries that each follow their size (i32).
        location: Where it begins: number of the log in the upper 32 bits, position in the lower.
        slots: What the index says of the first entry and those behind it (i64 each).
        ledger_id: Which ledger.
        entry_id: Which the first one is; the others follow.
    """

# --- add_encoder.pyx

def encode_adds(
    number: int, ledger_id: int, key: bytes, entries: list[bytes], *, deferred_sync: bool = False
) -> bytes:
    """Frames of plain adds, in version 3 of the protocol, of whole entries.

    Args:
        number: Of the first request; the others follow.
        ledger_id: Which ledger.
        key: Its master key.
        entries: With their headers, which contain their ids.
        deferred_sync: The adds may be answered before they are on disk.

    Raises:
        LedgerFrameError: One is too long for a frame, or too short for an entry.
    """

@final
class AddEncoder:
    """Frames of plain adds to one ledger, in version 3 of the protocol."""

    def __init__(self, ledger_id: int, key: bytes, kind: int, *, deferred_sync: bool = False) -> None:
        """For one writer.

        Args:
            ledger_id: Which ledger.
            key: Its master key.
            kind: Number of its `DigestType`, other than HMAC.
            deferred_sync: The adds may be answered before they are on disk.

        Raises:
            ValueError: Another digest.
        """

    def encode_batch(
        self, number: int, entry_id: int, last_add_confirmed: int, length: int, payloads: list[bytes]
    ) -> bytes:
        """Frames of adds of consecutive entries, in one piece; each entry is as `pack_entry` makes it.

        Args:
            number: Of the first request; the others follow.
            entry_id: Of the first entry; the others follow.
            last_add_confirmed: What their writer knows as confirmed.
            length: Bytes of all payloads before the first one.
            payloads: Of all.

        Raises:
            LedgerFrameError: One is too long for a frame.
        """

def split_responses(
    data: bytes | bytearray, frame_bytes_max: int
) -> tuple[list[memoryview | tuple[int, int]], int]:
    """Cut whole frames off the front of bytes that nobody writes to; also return their size in bytes.

    Answers of version 3 to adds that went well, whose numbers follow one another, are told by the first
    number and their count; every other frame is a view without its length.

    Raises:
        FrameError: A length is too large or too small.
    """

def added_number(frame: Buffer) -> int:
    """Number of an add of version 3 that was stored; -1: the frame is another answer."""
