"""The tables of docs/design/simulation.md: in which history each known bug is found."""

import re
from collections.abc import Callable

import pytest

from tests.support.source_tree import ROOT

TABLE = ROOT / "docs/design/simulation.md"


def recorded(bug: Callable[..., None]) -> int:
    """In which history the document says that a bug was found."""
    found = re.search(rf"\| `{bug.__name__}` \|[^|]*\| *([\w ]+?) *\|", TABLE.read_text())
    assert found, f"{bug.__name__} is not in the table: python -m tests.simulator.bug_table"
    if not found[1].isdecimal():
        pytest.skip(f"{bug.__name__} takes {found[1]} histories")
    return int(found[1])
