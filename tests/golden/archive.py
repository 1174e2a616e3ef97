"""Golden store folders: what upstream's own store wrote, and what it found in a copy.

`PYLEDGER_GOLDEN` names another folder of the same shape, such as one made with
`tests/interop/rocketmq-store/golden.py` from another seed.
"""

import gzip
import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

ROOT = Path(os.environ.get("PYLEDGER_GOLDEN", Path(__file__).parent / "rocketmq-store"))
CHUNK_BYTES = 64 * 1024

Line = dict[str, Any]


@dataclass(frozen=True)
class GoldenCase:
    """One archive, how it was made, and the lines that `StoreRead` printed for it."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def facts(self) -> Line:
        """`case.json`: version, settings, the writer's command, what was changed by hand."""
        facts: Line = json.loads((self.folder / "case.json").read_text(encoding="utf-8"))
        return facts

    @property
    def version(self) -> str:
        return str(self.facts["version"])

    @cached_property
    def lines(self) -> list[Line]:
        packed = self.folder / "expected.jsonl.gz"
        with gzip.open(packed) if packed.exists() else (self.folder / "expected.jsonl").open("rb") as file:
            return [json.loads(line) for line in file]

    def of_kind(self, kind: str) -> list[Line]:
        """Lines of one kind: `message`, `unindexed`, `key` or `time`."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def summary(self) -> Line:
        return self.lines[-1]

    @property
    def loads(self) -> bool:
        """Whether upstream's store opens the folder at all."""
        return bool(self.summary["loaded"])

    def unpack(self, into: Path) -> Path:
        """Unpack the folder, file times kept, zeroes left as holes; return its path."""
        with tarfile.open(self.folder / "store.tar.gz") as archive:
            members = archive.getmembers()
            for member in members:
                target = into / tarfile.data_filter(member, str(into)).name
                if member.isdir():
                    target.mkdir(parents=True)
                elif source := archive.extractfile(member):
                    with target.open("wb") as file:
                        _copy_sparsely(source, file, member.size)
            for member in reversed(members):
                os.utime(into / member.name, (member.mtime, member.mtime))
        return into / "store"


def _copy_sparsely(source: IO[bytes], target: IO[bytes], size_bytes: int) -> None:
    while chunk := source.read(CHUNK_BYTES):
        if chunk.count(0) == len(chunk):
            target.seek(len(chunk), os.SEEK_CUR)
        else:
            target.write(chunk)
    target.truncate(size_bytes)


def golden_cases(*names: str) -> Iterator[GoldenCase]:
    """Cases by name, in the order of their names; all of them when none is named."""
    for facts in sorted(ROOT.glob("*/case.json")):
        if not names or facts.parent.name in names:
            yield GoldenCase(facts.parent)


def golden_case(name: str) -> GoldenCase:
    """One case by its name."""
    return GoldenCase(ROOT / name)


def fingerprint(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Size, modification time and digest of every file: equal before and after a mere reading."""
    found: dict[str, tuple[int, int, str]] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.stat()
        if path.is_dir():
            found[str(path.relative_to(folder))] = (0, facts.st_mtime_ns, "folder")
        else:
            digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            found[str(path.relative_to(folder))] = (facts.st_size, facts.st_mtime_ns, digest)
    return found
