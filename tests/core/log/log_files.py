"""Commit-log files built field by field, for tests that read them."""

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from pyledger._core import LogView, MappedFile

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194


@dataclass(frozen=True)
class RecordFields:
    """The fields of one record; its place in the log is given when it is encoded."""

    topic: bytes = b"orders"
    body: bytes = b"body"
    properties: Mapping[str, str] = field(default_factory=dict)
    properties_raw: bytes | None = None
    queue_id: int = 0
    queue_offset: int = 0
    layout: int = 1
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: tuple[str, int] = ("192.168.0.1", 50000)
    store_timestamp: int = 1_700_000_000_500
    store_host: tuple[str, int] = ("10.0.0.7", 10911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    crc_property: bool = False

    def encode(self, physical_offset: int) -> bytes:
        """The record's bytes at a place of the log."""
        properties = self.properties_raw
        if properties is None:
            properties = b"".join(f"{k}\x01{v}\x02".encode() for k, v in self.properties.items())
        if self.crc_property:
            properties += b"\0" * 20
        sys_flag = self.sys_flag
        for bit, (ip, _) in ((0x10, self.born_host), (0x20, self.store_host)):
            sys_flag |= bit if ":" in ip else 0
        parts = [
            struct.pack(">iiiqqiq", zlib.crc32(self.body) & 0x7FFFFFFF, self.queue_id, self.flag,
                        self.queue_offset, physical_offset, sys_flag, self.born_timestamp),
            _host(self.born_host),
            struct.pack(">q", self.store_timestamp),
            _host(self.store_host),
            struct.pack(">iqi", self.reconsume_times, self.prepared_transaction_offset, len(self.body)),
            self.body,
            struct.pack(">b" if self.layout == 1 else ">h", len(self.topic)),
            self.topic,
            struct.pack(">h", len(properties)),
            properties,
        ]  # fmt: skip
        tail = b"".join(parts)
        record = struct.pack(">iI", 8 + len(tail), MAGIC_V1 if self.layout == 1 else MAGIC_V2) + tail
        if self.crc_property:
            digits = f"{zlib.crc32(record[:-20]) & 0x7FFFFFFF:010d}"[::-1]
            record = record[:-20] + b"__CRC32#\x01" + digits.encode() + b"\x02"
        return record


def _host(host: tuple[str, int]) -> bytes:
    return ip_address(host[0]).packed + struct.pack(">i", host[1])


@dataclass(frozen=True)
class LogFiles:
    """Commit-log files on disk and where their records stand."""

    folder: Path
    offsets: list[int]
    end: int
    file_size_bytes: int

    def view(self) -> LogView:
        """A view of the files up to the last file's end."""
        files = [
            MappedFile.open(str(path), size_bytes=self.file_size_bytes)
            for path in sorted(self.folder.iterdir())
        ]
        return LogView(files, files[-1].start_offset + self.file_size_bytes)

    def edit(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at a physical offset."""
        start = offset - offset % self.file_size_bytes
        with (self.folder / f"{start:020d}").open("r+b") as file:
            file.seek(offset - start)
            file.write(data)


def write_log(folder: Path, records: Iterable[RecordFields], file_size_bytes: int = 1 << 16) -> LogFiles:
    """Write records one after the other, rolling files as upstream does."""
    folder.mkdir(parents=True, exist_ok=True)
    data, offsets = bytearray(), []
    for record in records:
        room = file_size_bytes - len(data) % file_size_bytes
        if len(record.encode(len(data))) + 8 > room:
            data += struct.pack(">iI", room, MAGIC_BLANK).ljust(room, b"\0")
        offsets.append(len(data))
        data += record.encode(len(data))
    end = len(data)
    data = data.ljust(-(-max(end, 1) // file_size_bytes) * file_size_bytes, b"\0")
    for start in range(0, len(data), file_size_bytes):
        (folder / f"{start:020d}").write_bytes(data[start : start + file_size_bytes])
    return LogFiles(folder, offsets, end, file_size_bytes)
