"""The tables of docs/design/simulation.md: in which run each known bug is found."""

import re
from collections.abc import Callable

import pytest

from tests.support.source_tree import ROOT

TABLE = ROOT / "docs/design/simulation.md"


def recorded(bug: Callable[..., None]) -> int:
    """Return the number of the run in which a bug is found, according to the document."""
    found = re.search(rf"\| `{bug.__name__}` \|[^|]*\| *([\w ]+?) *\|", TABLE.read_text())
    assert found, f"{bug.__name__} is not in the table: python -m tests.simulator.bug_table"
    if not found[1].isdecimal():
        pytest.skip(f"{bug.__name__} takes {found[1]} runs")
    return int(found[1])
