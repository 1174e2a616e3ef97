"""Golden folders of DLedger nodes: `dledger/folders.tar.xz`, described in `dledger/README.md`.

`PYLEDGER_GOLDEN_DLEDGER` names an unpacked folder of the same shape.
"""

import json
import os
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "dledger" / "folders.tar.xz"
JAVA_ERRS = {"hole-third-last", "stray-file", "short-file", "head-filler"}
"""Damage before which Java gives up, and a filler that it does not see."""


@dataclass(frozen=True)
class GoldenNode:
    """One node's folder, and the entries that Java's store found in it."""

    path: Path
    expected: tuple[dict[str, Any], ...]
    summary: dict[str, Any]

    @property
    def case(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return f"{self.case}-{self.path.name}"


@cache
def golden_root() -> Path:
    """The unpacked cases; nobody may write there."""
    given = os.environ.get("PYLEDGER_GOLDEN_DLEDGER")
    if given:
        return Path(given)
    root = Path(tempfile.mkdtemp(prefix="golden-dledger-"))
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    return root


@cache
def golden_nodes() -> tuple[GoldenNode, ...]:
    """All node folders that have an `expected.jsonl` beside them."""
    found = []
    for lines in sorted(golden_root().rglob("expected.jsonl")):
        case = lines.with_name("case.json")
        facts = json.loads((case if case.exists() else lines.parent.with_name("case.json")).read_text())
        for node in sorted(lines.parent.glob("dledger-*")):
            entries = tuple(map(json.loads, lines.read_text().splitlines()))
            key = node.name if case.exists() else f"{lines.parent.name}/{node.name}"
            found.append(GoldenNode(node, entries, facts["folders"][key]["summary"]))
    return tuple(found)


def golden_node(case: str) -> GoldenNode:
    """The node of a case that has only one."""
    return next(node for node in golden_nodes() if node.case == case)
