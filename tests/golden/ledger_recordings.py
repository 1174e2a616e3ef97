"""Recorded bytes of BookKeeper: `bookkeeper/recordings.tar.xz`, described in `bookkeeper/README.md`."""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "bookkeeper" / "recordings.tar.xz"


@cache
def recordings() -> dict[str, bytes]:
    """Every file, by its path."""
    with tarfile.open(ARCHIVE) as archive:
        return {
            member.name: file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }


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
