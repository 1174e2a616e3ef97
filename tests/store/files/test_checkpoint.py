"""The checkpoint file: upstream's bytes, and replacement that a crash cannot tear."""

import os
from pathlib import Path

import pytest

from pyledger.errors import StoreIOError
from pyledger.store.files import checkpoint
from pyledger.store.files.checkpoint import StoreCheckpoint
from tests.golden.archive import GoldenCase


def test_checkpoint_of_every_golden_folder_reads_as_upstream_reads_it(
    golden: GoldenCase, golden_store: Path
) -> None:
    found = checkpoint.read(str(golden_store / "checkpoint"))
    wanted = golden.summary.get("checkpointBefore") or None
    if found is None:
        assert not wanted
    elif golden.loads:
        assert [
            found.physic_msg_timestamp,
            found.logics_msg_timestamp,
            found.index_msg_timestamp,
            found.master_flushed_offset,
            found.confirm_phy_offset,
        ] == wanted
        assert found.encode() == (golden_store / "checkpoint").read_bytes()


def test_checkpoint_written_is_read_back_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    for written in (StoreCheckpoint(1, 2, 3, 4, 5), StoreCheckpoint(10_000, 20_000, 30_000)):
        checkpoint.write(path, written)
        assert checkpoint.read(path) == written
    assert os.listdir(tmp_path) == ["checkpoint"]
    assert os.path.getsize(path) == 4096


@pytest.mark.parametrize("data", [b"", bytes(39), (-1).to_bytes(8, "big", signed=True) * 5])
def test_checkpoint_that_is_short_or_negative_knows_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(data)
    assert checkpoint.read(str(path)) is None
    assert checkpoint.read(str(tmp_path / "absent")) is None


def test_min_timestamp_leaves_three_seconds_and_never_is_negative() -> None:
    assert StoreCheckpoint(10_000, 8_000).min_timestamp_ms == 5_000
    assert StoreCheckpoint(10_000, 8_000).log_timestamp_ms == 7_000
    assert StoreCheckpoint(2_000, 8_000).min_timestamp_ms == 0


def test_checkpoint_write_into_missing_folder_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(StoreIOError, match="absent"):
        checkpoint.write(str(tmp_path / "absent" / "checkpoint"), StoreCheckpoint())
