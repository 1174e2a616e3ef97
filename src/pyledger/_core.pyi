"""The typed face of the native module. One section per fragment, in the order of `_core.pyx`."""

from collections.abc import Callable, Iterator, Sequence
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
