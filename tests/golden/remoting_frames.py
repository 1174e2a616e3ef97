"""Recorded frames of real peers: `remoting/frames.tar.xz`, described in `remoting/README.md`."""

import json
import struct
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "remoting" / "frames.tar.xz"
RECORD = struct.Struct(">BBHII")
MAGIC = b"RMQREC1\n"


@dataclass(frozen=True)
class RecordedFrame:
    """One frame as it was on the wire, and what its recorder found in it."""

    case: str
    data: bytes
    described: dict[str, Any]
    answers: dict[str, Any] | None
    """The request, of a response."""
    answered: int | None
    """Code of the response, of a request that has one."""

    @property
    def name(self) -> str:
        return f"{self.case}, frame {self.described['n']}: {self.described['name']}"


@cache
def recorded_frames() -> tuple[RecordedFrame, ...]:
    """All frames of remoting links; those between master and slave have a protocol of their own."""
    files = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            if (file := archive.extractfile(member)) is not None:
                files[member.name] = file.read()
    found = []
    for name, data in files.items():
        if name.endswith(".bin"):
            case = name.removesuffix(".bin")
            found += list(frames_of(case, data, json.loads(files[f"{case}.json"])["frames"]))
    return tuple(found)


def frames_of(case: str, data: bytes, described: list[dict[str, Any]]) -> Iterator[RecordedFrame]:
    answered = {one["answers"]: one["code"] for one in described if one.get("answers") is not None}
    for one, unit in zip(described, units(data), strict=True):
        if "code" in one:
            request = described[one["answers"]] if one.get("answers") is not None else None
            yield RecordedFrame(case, unit, one, request, answered.get(one["n"]))


def units(data: bytes) -> Iterator[bytes]:
    assert data.startswith(MAGIC)
    at = len(MAGIC)
    while at < len(data):
        *_, size = RECORD.unpack_from(data, at)
        at += RECORD.size
        yield data[at : at + size]
        at += size
