"""File systems that are soon full: in memory, and on a disk, where a new folder takes room, too."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """A folder that holds so many MiB, in memory, for the length of a block."""
    with mounted(folder, "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs"):
        yield folder


@contextmanager
def small_ext4(folder: Path, size_mib: int) -> Iterator[Path]:
    """The same as ext4 in a file."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    image = folder.with_name(f"{folder.name}.image")
    with image.open("wb") as file:
        file.truncate(size_mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    with mounted(folder, "-o", "loop", str(image)):
        yield folder


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    """Something mounted on a new folder."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    if subprocess.run(["mount", *arguments, str(folder)], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take every free byte of the file system of a folder; the file that does."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return filler
