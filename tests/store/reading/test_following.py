"""`StoreReader` beside a writer that comes and goes: what was written comes into sight, all of it."""

import shutil
from pathlib import Path

import pytest

from pyledger.errors import CorruptRecordError
from pyledger.model.message import Message
from pyledger.store.files import folder
from pyledger.store.files.folder import read_folder
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader

FILE_BYTES = 16384


def write(path: Path, count: int) -> None:
    with MessageStore.open(path, mapped_file_size_bytes=FILE_BYTES, index_enabled=False) as store:
        for _ in range(count):
            store.put(Message("orders", bytes(900)))


def offsets(reader: StoreReader) -> list[int]:
    return reader.units("orders", 0).physical_offsets


def test_files_that_recovery_recreates_are_mapped_again(tmp_path: Path) -> None:
    """They were made ahead, a reader has them mapped, and their writer died: recovery removes them."""
    write(tmp_path, 10)
    ahead = [tmp_path / "commitlog" / f"{number * FILE_BYTES:020d}" for number in (1, 2)]
    for file in ahead:
        file.write_bytes(bytes(FILE_BYTES))
    (tmp_path / "abort").touch()
    with StoreReader.open(tmp_path) as reader:
        assert len(offsets(reader)) == 10
        for file in ahead:
            file.unlink()
        write(tmp_path, 50)
        assert reader.refresh()
        assert len(offsets(reader)) == 60
        assert sum(1 for _ in reader.messages()) == 60


@pytest.mark.parametrize(
    ("hidden", "looks"),
    [([], 1), ([{2, 3}], 2), ([{2}, {2, 4}], 3), ([{2}, {4}, {5}], 4)],
    ids=["none", "two", "one, then another too", "others each time"],
)
def test_a_folder_is_not_listed_in_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: list[set[int]], looks: int
) -> None:
    write(tmp_path, 100)
    found = read_folder(tmp_path).log_files
    assert len(found) == 7
    names_in, left, seen = folder.names_in, iter(hidden), []

    def look(path: str) -> list[str]:
        """Leaves out files of the log, each time others."""
        if not path.endswith(folder.LOG_FOLDER):
            return names_in(path)
        seen.append(path)
        left_out = {f"{number * FILE_BYTES:020d}" for number in next(left, ())}
        return [name for name in names_in(path) if name not in left_out]

    monkeypatch.setattr(folder, "names_in", look)
    assert read_folder(tmp_path).log_files == found
    assert len(seen) == looks


def test_a_file_that_is_missing_twice_is_missing(tmp_path: Path) -> None:
    write(tmp_path, 100)
    (tmp_path / "commitlog" / f"{3 * FILE_BYTES:020d}").unlink()
    assert len(read_folder(tmp_path).log_files) == 6


def test_units_that_damage_took_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, 100)
    (tmp_path / "commitlog" / f"{3 * FILE_BYTES:020d}").unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    with StoreReader.open(tmp_path) as reader, pytest.raises(CorruptRecordError):
        reader.units("orders", 0)
    with StoreReader.open(tmp_path, on_corrupt="skip") as reader:
        assert 50 < len(offsets(reader)) < 100
        assert [damage.size_bytes for damage in reader.skipped] == [FILE_BYTES]
