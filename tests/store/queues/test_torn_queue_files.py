"""Readers of folders whose queues lost files or parts of them: every plan gives every message."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger import arrow
from pyledger.model.message import Message, QueueRange
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.record.batch import BatchItem, encode_batch
from tests.golden.archive import golden_case
from tests.store.messages.test_recovery import SMALL

ROWS = 807
BETA_0 = QueueRange(0, 52)


def lose_last_file(queues: Path) -> None:
    (queues / "beta" / "0" / f"{800:020d}").unlink()


def cut_last_file(queues: Path) -> None:
    os.truncate(queues / "beta" / "0" / f"{800:020d}", 200)


def zero_last_file(queues: Path) -> None:
    (queues / "beta" / "0" / f"{800:020d}").write_bytes(bytes(800))


def lose_all_files(queues: Path) -> None:
    for path in (queues / "beta" / "0").iterdir():
        path.unlink()


LOSSES = [lose_last_file, cut_last_file, zero_last_file, lose_all_files]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("lose", LOSSES)
def test_both_plans_give_every_row(tmp_path: Path, lose: Callable[[Path], None], clean: bool) -> None:
    store = golden_case("rolled-5").unpack(tmp_path)
    lose(store / "consumequeue")
    if not clean:
        (store / "abort").touch()
    with StoreReader.open(store) as reader:
        assert reader.queues()["beta", 0] == BETA_0
        assert len(list(reader.messages(order="queue"))) == ROWS
    for plan in ("log", "queue"):
        assert arrow.scan(store, plan=plan).read_all().num_rows == ROWS
        assert (
            arrow.scan(store, plan=plan, topics="beta", queues=[0]).read_all().num_rows == BETA_0.max_offset
        )


def test_a_batch_queue_that_lost_its_last_file_is_derived(tmp_path: Path) -> None:
    options = SMALL | {"batch_consume_queue_file_size_bytes": 46 * 4}
    body = encode_batch([BatchItem(bytes(100)) for _ in range(3)])
    with StoreEngine.open(tmp_path, **options) as store:
        for _ in range(6):
            store.append_inner_batch(Message("b", body))
        for _ in range(200):
            store.put(Message("t", bytes(300)))
    max((tmp_path / "batchconsumequeue" / "b" / "0").iterdir()).unlink()
    with StoreReader.open(tmp_path) as reader:
        assert reader.queues()["b", 0] == QueueRange(0, 18)
    with StoreEngine.open(tmp_path, **options) as store:
        assert store.queue_range("b", 0) == QueueRange(0, 18)


def test_an_idle_queue_that_lost_its_last_file_goes_on_with_its_numbers(tmp_path: Path) -> None:
    with StoreEngine.open(tmp_path, **SMALL) as store:
        for _ in range(50):
            store.put(Message("idle", b"x"))
        for _ in range(200):
            store.put(Message("t", bytes(300)))
    shutil.copytree(tmp_path, whole := tmp_path.with_name("whole"))
    (tmp_path / "consumequeue" / "idle" / "0" / f"{800:020d}").unlink()
    with StoreEngine.open(tmp_path, **SMALL) as store:
        assert store.put(Message("idle", b"y")).queue_offset == 50
        recovered = store.recovery.dispatched
    with StoreEngine.open(whole, **SMALL) as store:
        assert store.recovery.dispatched < recovered, "a queue that ends within a file costs no walk"
