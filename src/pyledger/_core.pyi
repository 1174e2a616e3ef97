"""The typed face of the native module. One section per fragment, in the order of `_core.pyx`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self, final

from typing_extensions import Buffer

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

# --- mapped_file.pyx

@final
class MappedFile:
    """One fixed-size file mapped to memory; its name is its start offset in 20 digits.

    Invariant: flushed <= committed <= wrote <= size. A buffer of it is read-only, ends at the committed
    position of that moment, and keeps the file mapped: `close` refuses while one is alive.
    """

    path: str
    start_offset: int
    """Physical offset of the first byte."""
    size_bytes: int
    """Nominal size; a file that was cut short maps less."""
    mapped_bytes: int
    readonly: bool

    @property
    def wrote_position(self) -> int:
        """Bytes appended."""
    @property
    def committed_position(self) -> int:
        """Bytes that readers may see; equals `wrote_position` without a pool."""
    @property
    def flushed_position(self) -> int:
        """Bytes that are durable."""
    @property
    def closed(self) -> bool:
        """Whether the mapping is gone."""
    @staticmethod
    def open(path: str, *, size_bytes: int = 0) -> MappedFile:
        """Map an existing file read-only. `size_bytes` is the nominal size when the file may be cut short."""
    @staticmethod
    def open_writable(path: str, *, allocate_chunk_bytes: int = 0) -> MappedFile:
        """Map an existing file of full size for reading and writing; all positions at its end."""
    @staticmethod
    def create(
        path: str, size_bytes: int, *, allocate_chunk_bytes: int = 0, warm: bool = False, pooled: bool = False
    ) -> MappedFile:
        """Create, allocate and map a file. Blocks until the blocks are there; safe off the append path.

        Args:
            path: Where; the folder exists.
            size_bytes: Length of the file.
            allocate_chunk_bytes: Allocate in steps of this size as writing goes on; 0: everything now.
            warm: Populate the page tables for writing.
            pooled: Append to memory until `commit`.

        Raises:
            StoreFullError: the disk has no room.
            StoreIOError: the operating system refused.
        """
    def reserve(self, position: int) -> None:
        """Make sure that bytes up to `position` have blocks behind them.

        Raises:
            StoreFullError: the disk has no room. Nothing was written.
        """
    def populate(self) -> None:
        """Fault every page in for writing. Kernels without MADV_POPULATE_WRITE do it on first touch."""
    def flush(self) -> int:
        """Make everything committed durable; return the flushed position (bytes).

        Raises:
            StoreFailedError: this or an earlier flush failed. It is never retried: the kernel may have
                dropped the dirty pages.

        Durability: on return bytes below the flushed position survive a power cut.
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
        """Files that stand ready."""

# --- mapped_file_queue.pyx

@final
class MappedFileQueue:
    """The ordered run of mapped files of one folder; its last file takes the appends.

    Invariant: flushed_where <= committed_where <= max_offset, and no byte below flushed_where is volatile.
    """

    folder: str
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
    ) -> Self:
        """Name the folder; `load` opens it.

        Args:
            folder: Where the files are.
            file_size_bytes: Size of every file, below 2**31.
            allocate_chunk_bytes: Allocate blocks in steps of this size; 0: a whole file at once.
            pooled: Append to memory; `commit` moves the bytes to the file, and only then readers see them.
            readonly: Change nothing in the folder.
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
    def next_file_offset(self) -> int:
        """Physical offset of the start of the file that follows the last one."""
    @property
    def failed(self) -> OSError | None:
        """What made the queue refuse all further writes, or None."""
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def files_ahead(self) -> int:
        """Files that the allocator has ready."""
    def load(self) -> None:
        """Map the files of the folder, all positions at their ends; recovery then sets the true end.

        A writer creates a missing folder and removes a last file of zero bytes, as upstream does; it
        refuses a folder with foreign files. A reader ignores them, and takes a file that was cut as it is.

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
    def run_allocator(self, depth: int = 2) -> None:
        """Make files ahead of the appends, `depth` at most, until `stop_allocator`; the body of one thread.

        Holds the interpreter lock neither while it waits nor while it works. Where making a file fails,
        the append that needs it gets the error, and the next one makes it try again.
        """
    def stop_allocator(self) -> None:
        """Let `run_allocator` return; the files it made and nobody used are removed."""
    def commit(self, least_pages: int = 0) -> bool:
        """Move pooled bytes into the file that holds `committed_where`; True if any moved. See `flush`.

        Raises:
            StoreFailedError: the write failed; the queue takes no more writes.
        """
    def flush(self, least_pages: int = 0) -> bool:
        """Make the file that holds `flushed_where` durable up to its committed position; True if that moved.

        Acts when the file is full, when the committed position is `least_pages` page borders (4096 bytes)
        past the flushed one, or with 0 pages when anything is volatile. One file a call, in order:
        `flushed_where` never passes a volatile byte.

        Raises:
            StoreFailedError: this or an earlier flush failed. The queue takes no more writes.

        Durability: bytes below `flushed_where`, and the names of their files, survive a power cut.
        Source: RocketMQ store/.../MappedFileQueue.java, DefaultMappedFile.java (isAbleToFlush).
        """
    def set_end(self, offset: int) -> None:
        """Set the end after recovery, in the last file. No byte is changed; what is there is made durable.

        The bytes beyond must be zero: use `truncate` where they may not be.

        Args:
            offset: Physical offset of the new end.
        """
    def truncate(self, offset: int) -> None:
        """Cut the log at `offset`: later files go, and what follows in the file that holds it becomes zero.

        Args:
            offset: Physical offset of the new end.

        Durability: on return no byte beyond `offset` can come back, and all before it survive a power cut.
        A crash meanwhile leaves a log that ends at `offset` or later and is cut again. Views made before
        may see zeroes beyond `offset`.
        """
    def delete_head(self, count: int) -> list[str]:
        """Remove the first `count` files, never the last; return their paths. Views keep their bytes."""
    def close(self) -> None:
        """Take no more appends and unmap what nobody views. Files made ahead are removed. Does not flush."""

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
        waker: object | None = None,
    ) -> Self:
        """Append to a loaded and recovered queue of files.

        Args:
            queue: Where the records go.
            store_host: Address literal (IPv4 or IPv6) and port, as stored in every record.
            max_message_size_bytes: Limit of a body, and of the body of a batch.
            crc_property: End every record with 5.x's CRC property over the whole of it.
            strict_topics: Allow the topic names that upstream allows; else any that can name a folder.
            last_store_timestamp_ms: Store time of the last record that is there.
            waker: Woken after every append.
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
            queue_offset: -1: the next one of the queue. Else it is stored, and the queue goes on after it.

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
    ) -> tuple[int, int, int, int, int]:
        """Append the messages of a client's batch body as records of their own, all in one file.

        Args:
            topic: Topic of all.
            queue_id: Queue of all.
            batch: i32 size, i32 0, i32 0, i32 flag, i32 bodyLength, body, i16 propertiesLength, properties;
                for each message.
            sys_flag: As in `append`; a transaction type other than none is refused.
            born_timestamp_ms: As in `append`.
            born_host: As in `append`.
            reconsume_times: As in `append`.
            store_timestamp_ms: As in `append`.

        Returns:
            (physical_offset, size_bytes, queue_offset, store_timestamp_ms, count): of the first record, of
            all records together, of the first, of all, and the number of messages.

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
        them), and the queue goes on by the number of messages.

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

        Cost: one encode and one CRC under the interpreter lock; no system call while the file has room.
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

        Nothing is written when any body is refused. Other threads' messages may come to stand in between.

        Args:
            bodies: Bytes-like objects, at least one.
            tags: As in `CommitLog.append`, for all.
            keys: As in `CommitLog.append`, for all.
            properties: As in `CommitLog.append`, for all.
            born_timestamp_ms: As in `CommitLog.append`, for all.
            store_timestamp_ms: As in `CommitLog.append`, for all.
        """

# --- scan.pyx

@final
class ScanStop:
    """Where and why a walk ended, and what it met on its way."""

    next_offset: int
    """Physical offset (bytes) where the next record was expected."""
    status: str
    """end, zeroes (both ordinary), short, bad magic, bad size, bad crc or bad position."""
    record_count: int
    blank_count: int
    last_record_offset: int
    """Physical offset of the last sound record; -1 when there was none."""
    last_store_timestamp: int
    ordinary: bool
    """Whether the walk ended as a sound log ends: at the range's end or at zeroes."""
    problem: str
    """The fault in words; empty after an ordinary end."""

def scan(
    view: LogView,
    start: int,
    end: int | None = None,
    *,
    check: bool = True,
    progress: Callable[[int], object] | None = None,
) -> ScanStop:
    """Walk the records that start in [start, end) and check each one.

    Args:
        view: Where to read.
        start: Physical offset (bytes) of a record or a blank record.
        end: Physical offset (bytes); None is the view's end.
        check: Check the body CRC and, where a record ends in it, the CRC property. Lengths and the stored
            physical offset are always checked.
        progress: Called with the physical offset reached, about every 32 MiB.

    Cost: one pass over the bytes, without the interpreter lock.
    """

def find_next_record(view: LogView, offset: int, end: int | None = None) -> int | None:
    """The first physical offset in [offset, end) where a whole sound record stands, or None.

    What a reader needs to go on behind damage: magic code, lengths, stored position and CRCs must all hold.
    """

# --- message_reader.pyx

def set_body_unpacker(function: Callable[..., bytes]) -> None:
    """Name the function that unpacks bodies: `function(body, sys_flag, *, limit_bytes, place) -> bytes`.

    Codecs are Python packages above this module in the order of imports; `pyledger.store` hands them in.
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
    """The stored bytes, packed ones as they are."""
    body_view: memoryview
    """The stored bytes without a copy; the file cannot be closed while the view lives."""
    plain_body: bytes
    """The body, unpacked where sysFlag says that it is compressed; at most 64 MiB."""
    def unpack_body(self, limit_bytes: int = 67108864) -> bytes:
        """The body, unpacked where sysFlag says that it is compressed.

        Raises:
            CorruptBodyError: the packed bytes are damaged, or would unpack to more than `limit_bytes`.
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
        CorruptRecordError: no sound record stands there.
    """

def read_messages(view: LogView, units: Buffer, *, check: bool = True) -> list[StoredMessage]:
    """The messages that consume queue units (20 raw bytes each) name, in their order.

    Raises:
        OffsetOutOfRangeError: a unit points outside the view.
        CorruptRecordError: no sound record stands where a unit points.
    """

@final
class MessageScan:
    """Iterator over the sound records of [start, end) in log order; `stop` tells where and why it ended."""

    def __init__(self, view: LogView, start: int, end: int | None = None, *, check: bool = True) -> None: ...
    def __iter__(self) -> Iterator[StoredMessage]: ...
    def __next__(self) -> StoredMessage: ...
    stop: ScanStop | None
    """The `ScanStop` once the iteration is over; None before."""
