"""Recorded bytes of BookKeeper, described in `bookkeeper/README.md`."""

import io
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "bookkeeper"
STRICTER = {
    "add whose entry bytes name another entry id": "EBADREQ",
    "read entry 6 of that ledger": "ENOENTRY",
}
"""Odd requests that ours answers otherwise, by what they are: a real bookie acknowledges the entry of the
request, 7, and stores the other one, 6."""


def files_in(archive_path: Path) -> dict[str, bytes]:
    with tarfile.open(archive_path) as archive:
        return {
            member.name: file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }


@cache
def recordings() -> dict[str, bytes]:
    """Every file but those of bookies' folders, by its path."""
    return files_in(FOLDER / "recordings.tar.xz")


@cache
def bookie_files() -> dict[str, bytes]:
    """`<storage>-<end>.tar.gz`, the folders of a bookie; `.json`, what it served before."""
    return {name.removeprefix("bookie/"): data for name, data in files_in(FOLDER / "bookie.tar.xz").items()}


def unpack_bookie(case: str, into: Path) -> Path:
    """A copy of a bookie's folders; where it lies."""
    with tarfile.open(fileobj=io.BytesIO(bookie_files()[f"{case}.tar.gz"])) as archive:
        archive.extractall(into, filter="data")
    return into


def lines(name: str) -> list[dict[str, Any]]:
    """A file of JSON lines."""
    return [json.loads(line) for line in recordings()[name].splitlines()]


@cache
def frames() -> tuple[tuple[str, str, bytes, dict[str, Any]], ...]:
    """Frames without their length: where they stand, direction, bytes, meaning."""
    return tuple(
        (f"{name} {one['n']}", one["dir"], bytes.fromhex(one["frame"])[4:], one["decoded"])
        for name in sorted(recordings())
        if name.startswith("frames/v")
        for one in lines(name)
    )
