"""Scans of a store with archived files: the same rows by either plan; blocks without any are not touched."""

import shutil
from pathlib import Path

import pytest

from pyledger import arrow
from pyledger._core import decompressed_blocks
from tests.store.cold.archived import archive_all, write_store


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and the same archived."""
    plain = write_store(tmp_path_factory.mktemp("plain") / "store")
    packed = Path(shutil.copytree(plain, tmp_path_factory.mktemp("packed") / "store"))
    archive_all(packed)
    return plain, packed


@pytest.mark.parametrize("plan", ["log", "queue"])
@pytest.mark.parametrize("topics", [None, "rare", "orders"])
def test_rows_are_the_same(stores: tuple[Path, Path], plan: arrow.Plan, topics: str | None) -> None:
    plain, packed = (
        arrow.scan(store, topics=topics, plan=plan, columns=arrow.COLUMNS).read_all() for store in stores
    )
    assert packed.equals(plain)
    assert packed.num_rows > 0


def test_rows_of_a_stretch_of_time_are_the_same(stores: tuple[Path, Path]) -> None:
    times = arrow.scan(stores[0], columns=["storeTimestamp"], plan="log").read_all()[0].to_pylist()
    since, until = times[len(times) // 3], times[len(times) // 2]
    plain, packed = (arrow.scan(s, since=since, until=until, plan="log").read_all() for s in stores)
    assert packed.equals(plain)


def test_blocks_without_wanted_rows_are_not_touched(stores: tuple[Path, Path]) -> None:
    parts = arrow.plan(stores[1], topics="rare", plan="log")
    before = decompressed_blocks()[0]
    rows = sum(batch.num_rows for part in parts for batch in arrow.read_partition(part))
    assert rows == 10
    assert decompressed_blocks()[0] - before <= 1
