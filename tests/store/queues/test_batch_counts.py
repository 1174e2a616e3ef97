"""Properties that lie about an inner batch: no digest covers them, and they must hide no message."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger import arrow
from pyledger.errors import CorruptRecordError
from pyledger.store.maintenance.rebuild import rebuild
from pyledger.store.maintenance.repair import repair
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from tests.golden.archive import golden_case


def state(store: Path, name: bytes, value: Callable[[int], bytes]) -> None:
    """Change a property of the fourth record that has it with two digits or more."""
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    found = [m for m in re.finditer(name + rb"\x01(\d+)\x02", data) if len(m[1]) > 1][3]
    data[found.start(1) : found.end(1)] = value(len(found[1]))
    log.write_bytes(data)


def problems(store: Path) -> list[str]:
    return [p.kind for p in verify(store) if p.severity == "error"]


@pytest.mark.parametrize("without_files", [False, True], ids=["files", "no files"])
@pytest.mark.parametrize("digit", [b"9", b"0"])
def test_a_wrong_count_hides_no_record(tmp_path: Path, digit: bytes, without_files: bool) -> None:
    store = golden_case("inner-batch-5").unpack(tmp_path)
    with StoreReader.open(store) as reader:
        wanted = [m.physical_offset for m in reader.messages(order="queue")]
        ranges = reader.queues()
    state(store, b"INNER_NUM", lambda digits: digit * digits)
    assert problems(store) == ["batch-count"]
    if without_files:
        shutil.rmtree(store / "batchconsumequeue")
    with StoreReader.open(store) as reader:
        assert [m.physical_offset for m in reader.messages(order="queue")] == wanted
        assert reader.queues() == ranges
    assert arrow.scan(store, plan="queue").read_all().num_rows == len(wanted)
    rebuild(store)
    with MessageStore.open(store) as opened:
        assert opened.queues() == ranges
    assert problems(store) == ["batch-count"]


def test_records_that_no_queue_can_name_are_reported(tmp_path: Path) -> None:
    store = golden_case("inner-batch-5").unpack(tmp_path)
    state(store, b"INNER_BASE", lambda digits: b"9" * digits)
    rebuild(store)
    assert "unreachable" in problems(store)
    assert [step.action for step in repair(store).steps] == ["leave"]
    with StoreReader.open(store) as reader, pytest.raises(CorruptRecordError, match="queue offsets"):
        list(reader.messages(order="queue"))
    with StoreReader.open(store) as reader:
        assert len(list(reader.messages())) > 0, "in log order they are there"
