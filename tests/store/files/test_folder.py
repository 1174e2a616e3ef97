"""What a store folder is: kinds of files, their sizes, and what does not belong there."""

from pathlib import Path

import pytest

from pyledger.errors import StoreFormatError, StoreNotFoundError
from pyledger.store.files.folder import BATCH_QUEUE_FOLDER, read_folder
from tests.golden.archive import GoldenCase, golden_case


def touch(path: Path, size_bytes: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


def log_file(root: Path, start: int, size_bytes: int) -> Path:
    return touch(root / "commitlog" / f"{start:020d}", size_bytes)


def test_folder_of_every_golden_case_shows_its_settings(golden: GoldenCase, golden_store: Path) -> None:
    folder = read_folder(golden_store)
    settings = golden.facts["settings"]
    if golden.name != "short-file-5":
        assert folder.log_file_size_bytes == settings["mappedFileSizeCommitLog"]
    assert folder.clean is not golden.summary["abortFile"]
    if list(folder.queue_folders()) and golden.summary.get("queueFileSize", True):
        sizes = {
            path.stat().st_size for path in (golden_store / "consumequeue").rglob("0*") if path.is_file()
        }
        assert {folder.queue_file_size_bytes()} == sizes
    if folder.index_files:
        assert folder.index_geometry() == (settings["maxHashSlotNum"], settings["maxIndexNum"])
    assert not folder.short_files
    assert not folder.unusual


def test_folder_lists_batch_queues_apart(tmp_path: Path) -> None:
    folder = read_folder(golden_case("inner-batch-5").unpack(tmp_path))
    names = {topic for topic, _, _ in folder.queue_folders(BATCH_QUEUE_FOLDER)}
    assert names == {"interop_inner_batch"}
    assert names.isdisjoint(topic for topic, _, _ in folder.queue_folders())


@pytest.mark.parametrize(
    ("files", "size_bytes"),
    [
        ([(0, 4096), (4096, 4096), (8192, 100)], 4096),
        ([(0, 1 << 20), (1 << 20, 5000)], 1 << 20),
        ([(0, 5000), (1 << 20, 7000)], 1 << 20),
        ([(0, 4096), (1 << 20, 100)], 1 << 20),
        ([(0, 4096), (8192, 4096)], 4096),
        ([(0, 4096), (12288, 4096), (16384, 4096)], 4096),
        ([(0, 4096), (4096, 0), (8192, 4096)], 4096),
        ([(8192, 4096)], 4096),
        ([], 1 << 30),
    ],
)
def test_log_file_size_survives_truncated_and_missing_files(
    tmp_path: Path, files: list[tuple[int, int]], size_bytes: int
) -> None:
    (tmp_path / "commitlog").mkdir()
    for start, length in files:
        log_file(tmp_path, start, length)
    folder = read_folder(tmp_path)
    assert folder.log_file_size_bytes == size_bytes
    assert [f.size_bytes for f in folder.short_files] == [n for _, n in files if n < size_bytes]


def test_empty_last_file_is_left_out_as_upstream_does(tmp_path: Path) -> None:
    log_file(tmp_path, 0, 4096)
    empty = log_file(tmp_path, 4096, 0)
    folder = read_folder(tmp_path)
    assert [f.start_offset for f in folder.log_files] == [0]
    assert [u.path for u in folder.unusual] == [str(empty)]


def test_foreign_files_are_listed_and_ignored(tmp_path: Path) -> None:
    log_file(tmp_path, 0, 4096)
    strangers = {
        touch(tmp_path / "commitlog" / "notes.txt"),
        touch(tmp_path / "commitlog" / "123"),
        touch(tmp_path / "README"),
        touch(tmp_path / "rocks" / "CURRENT").parent,
    }
    folder = read_folder(tmp_path)
    assert {u.path for u in folder.unusual} == {str(p) for p in strangers}
    assert folder.rocksdb_folders == (str(tmp_path / "rocks"),)
    assert [f.start_offset for f in folder.log_files] == [0]


def test_paths_that_hold_no_store_are_rejected_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no such folder"):
        read_folder(tmp_path / "absent")
    with pytest.raises(StoreNotFoundError, match="not a folder"):
        read_folder(__file__)
    with pytest.raises(StoreNotFoundError, match="no `commitlog` folder"):
        read_folder(tmp_path)
    log_file(tmp_path / "store", 0, 4096)
    with pytest.raises(StoreNotFoundError, match=r"did you mean .*store"):
        read_folder(tmp_path)
    with pytest.raises(StoreNotFoundError, match="log or queue files"):
        read_folder(tmp_path / "store" / "commitlog")
    (tmp_path / "other" / "dledger-n0").mkdir(parents=True)
    with pytest.raises(StoreFormatError, match="DLedger"):
        read_folder(tmp_path / "other")
