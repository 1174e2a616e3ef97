"""How files are mapped in this process, by the kernel's own word."""

from pathlib import Path

import pytest

SMAPS = Path("/proc/self/smaps")
needs_smaps = pytest.mark.skipif(not SMAPS.exists(), reason=f"needs {SMAPS}")


def mapped_parts(path: Path) -> list[tuple[int, bool]]:
    """Of each part of a file that is mapped: its size (bytes), and whether the kernel reads ahead there."""
    size_bytes, parts = 0, []
    for line in SMAPS.read_text().splitlines():
        place = line.partition(" ")[0]
        if "-" in place:
            begin, end = (int(word, 16) for word in place.split("-"))
            size_bytes = end - begin if line.endswith(str(path)) else 0
        elif size_bytes and line.startswith("VmFlags:"):
            parts.append((size_bytes, "rr" not in line.split()))
    assert parts, f"{path} is not mapped"
    return parts
