"""Folders by RocketMQ 5.5.1: read as any other; not written to where we cannot keep all parts in step."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.errors import StoreFormatError
from pyledger.model.message import Message
from pyledger.store.cold.archive import archive, unarchive
from pyledger.store.maintenance.rebuild import rebuild
from pyledger.store.maintenance.repair import repair
from pyledger.store.maintenance.truncate_log import truncate_log
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import GoldenCase, fingerprint
from tests.golden.lines import as_line

ROOT = Path(__file__).parent / "rocketmq-store-5.5.1"
CASES = sorted(folder.name for folder in ROOT.iterdir())
FOREIGN = {
    "lmq-5": "light queues",
    "rocksdb-5": "consume queues are kept in RocksDB",
    "combined-5": "consume queues are kept in RocksDB",
    "broker-rocksdb-5": "RocksDB",
}
WRITERS: dict[str, Callable[[Path], object]] = {
    "store": MessageStore.open,
    "retention": lambda path: MessageStore.open(path, create=False, retention_hours=1),
    "repair": repair,
    "rebuild": rebuild,
    "truncate": lambda path: truncate_log(path, 0),
    "archive": lambda path: list(archive(path, older_than_ms=1 << 60)),
    "unarchive": lambda path: list(unarchive(path)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_message_is_read(tmp_path: Path, name: str) -> None:
    case = GoldenCase(ROOT / name)
    folder = case.unpack(tmp_path)
    before = fingerprint(folder)
    wanted = {line["physicalOffset"]: line for line in (*case.of_kind("message"), *case.of_kind("unindexed"))}
    with StoreReader.open(folder) as reader:
        found = {line["physicalOffset"]: line for line in map(as_line, reader.messages())}
    assert {place: line["bodySha256"] for place, line in found.items()} == {
        place: line["bodySha256"] for place, line in wanted.items()
    }
    assert fingerprint(folder) == before


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_a_sound_folder_is_called_damage(tmp_path: Path, name: str) -> None:
    """The index names the tags of each record, which that of 5.3 does not."""
    folder = GoldenCase(ROOT / name).unpack(tmp_path)
    assert [problem for problem in verify(folder) if problem.severity == "error"] == []


def test_an_entry_of_tags_that_no_record_has_is_damage(tmp_path: Path) -> None:
    folder = GoldenCase(ROOT / "clean-5").unpack(tmp_path)
    (path,) = (folder / "index").iterdir()
    data = bytearray(path.read_bytes())
    # The fifth entry is that of the first record's tags: a hash in the same slot keeps the chains whole.
    at = 40 + 500 * 4 + 5 * 20
    hashed = int.from_bytes(data[at : at + 4], "big")
    data[at : at + 4] = (hashed + 500 if hashed < 1 << 30 else hashed - 500).to_bytes(4, "big")
    path.write_bytes(data)
    (problem,) = (one for one in verify(folder) if one.severity == "error")
    assert (problem.kind, problem.offset) == ("index-entry", 5)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", FOREIGN)
def test_what_cannot_be_kept_in_step_is_refused_and_left_alone(
    tmp_path: Path, name: str, writer: str
) -> None:
    folder = GoldenCase(ROOT / name).unpack(tmp_path)
    before = fingerprint(folder)
    with pytest.raises(StoreFormatError, match=FOREIGN[name]):
        WRITERS[writer](folder)
    assert fingerprint(folder) == before


@pytest.mark.parametrize("name", sorted(set(CASES) - set(FOREIGN)))
def test_others_are_written_on(tmp_path: Path, name: str) -> None:
    case = GoldenCase(ROOT / name)
    folder = case.unpack(tmp_path)
    with MessageStore.open(folder) as store:
        place = store.put(Message("alpha", b"more", tags="A", keys="new"))
        assert [message.physical_offset for message in store.query("alpha", "new")] == [place.physical_offset]
    assert [problem for problem in verify(folder) if problem.severity == "error"] == []
