"""Fixtures over the golden folders: one test for each case, each on a fresh copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.archive import GoldenCase, fingerprint, golden_cases


@pytest.fixture(scope="module", params=list(golden_cases()), ids=lambda case: case.name)
def golden(request: pytest.FixtureRequest) -> GoldenCase:
    """Every golden case in turn."""
    case: GoldenCase = request.param
    return case


@pytest.fixture
def golden_store(golden: GoldenCase, tmp_path: Path) -> Path:
    """The unpacked folder of the case, free to be changed."""
    return golden.unpack(tmp_path)


@pytest.fixture
def pristine_store(golden_store: Path) -> Iterator[Path]:
    """The unpacked folder of the case; the test fails when anything in it changed."""
    before = fingerprint(golden_store)
    yield golden_store
    assert fingerprint(golden_store) == before, "reading changed the folder"
