"""A second reader of commit-log records, obvious rather than fast."""

import struct
import zlib
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Self

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194


class BadRecordError(Exception):
    """The bytes are not a record; the log ends before them."""


class Cursor:
    """Takes fields from the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise BadRecordError(f"{count} bytes wanted at {self.at} of {len(self.data)}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str) -> int:
        (value,) = struct.unpack(">" + code, self.take(struct.calcsize(code)))
        return int(value)

    def host(self, v6: bool) -> str:
        text = ":".join(f"{part:x}" for part in struct.unpack(">8H", self.take(16))) if v6 else ""
        text = f"[{text}]" if v6 else str(ip_address(self.take(4)))
        return f"{text}:{self.number('i')}"


@dataclass(frozen=True)
class Record:
    """One record, every field as stored."""

    store_size: int
    layout: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_raw: bytes

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read the record at the front of `data`. Raises BadRecordError, also when the body's CRC differs."""
        size, magic = struct.unpack(">iI", data[:8].ljust(8, b"\0"))
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise BadRecordError(f"magic {magic:#x}")
        if size > len(data):
            raise BadRecordError("cut off")
        sys_flag = struct.unpack(">i", data[36:40].ljust(4, b"\0"))[0]
        c = Cursor(data[: max(size, 0)])
        c.take(8)
        layout = 1 if magic == MAGIC_V1 else 2
        record = cls(
            size, layout, c.number("i"), c.number("i"), c.number("i"), c.number("q"), c.number("q"),
            c.number("i"), c.number("q"), c.host(bool(sys_flag & 0x10)), c.number("q"),
            c.host(bool(sys_flag & 0x20)), c.number("i"), c.number("q"), c.take(c.number("i")),
            c.take(c.number("b" if layout == 1 else "h")).decode("utf-8", "replace"), c.take(c.number("h")),
        )  # fmt: skip
        if c.at != size:
            raise BadRecordError("the parts do not add up")
        # Upstream compares the CRC only where there is a body.
        if record.body and zlib.crc32(record.body) & 0x7FFFFFFF != record.body_crc:
            raise BadRecordError("body CRC")
        return record

    @property
    def properties(self) -> dict[str, str]:
        items = (
            item.partition("\x01") for item in self.properties_raw.decode("utf-8", "replace").split("\x02")
        )
        return {name: value for name, _, value in items if name and value}


@dataclass(frozen=True)
class Log:
    """What lies in a commit log up to the first byte that is not a record."""

    records: list[Record]
    start: int
    end: int
    blanks: int


def read_log(folder: Path) -> Log:
    """Read the files of a `commitlog` folder in order, as recovery does."""
    files = [path for path in sorted(folder.iterdir()) if path.stat().st_size]
    start = int(files[0].name) if files else -1
    log = Log([], start, max(start, 0), 0)
    for path in files:
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic == MAGIC_BLANK:
                log = replace(log, blanks=log.blanks + 1, end=int(path.name) + len(data))
                break
            try:
                record = Record.parse(data[at : at + max(size, 8)])
            except BadRecordError:
                return log
            if record.physical_offset != int(path.name) + at:
                return log
            log.records.append(record)
            at += size
            log = replace(log, end=int(path.name) + at)
    return log
