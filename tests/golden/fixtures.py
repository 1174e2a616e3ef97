"""Fixtures over the golden folders: one test for each case, each on a fresh copy."""

import shutil
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


@pytest.fixture(scope="module")
def pristine_store(golden: GoldenCase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The unpacked folder of the case, for all tests of a module that only read; fails when it changed."""
    store = golden.unpack(tmp_path_factory.mktemp(golden.name))
    before = fingerprint(store)
    yield store
    assert fingerprint(store) == before, "reading changed the folder"
    shutil.rmtree(store)
