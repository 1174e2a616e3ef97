"""Every way to a store gives the same rows: batch, stream, running broker, `cat`, Java's reader."""

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

from pyledger.client.blocking.producer import Producer
from pyledger.errors import CorruptRecordError
from pyledger.model.message import Message
from pyledger.servers.local.rocketmq import LocalBroker
from pyledger.store.cold.archive import archive
from tests.golden.archive import GoldenCase
from tests.spark.test_brokers import SEND_TIMEOUT_MS
from tests.spark.ways import as_rows, batch_table, cat_rows, java_rows, stream_table

FAR_FUTURE_MS = 1 << 50
LINES_COMPARED = 1000
"""Of larger folders tests/arrow compares every row with what Java found."""
TOPICS = ("orders", "refunds")


def test_a_golden_folder_read_and_followed(golden: GoldenCase, pristine_store: Path) -> None:
    path = str(pristine_store)
    table = batch_table(path=path)
    assert table.num_rows
    lines = golden.of_kind("message")
    if golden.loads and len(lines) <= LINES_COMPARED:
        assert as_rows(table) == java_rows(lines) == cat_rows(pristine_store)
    assert stream_table(path=path).equals(table)
    few = str(max(1, table.num_rows // 5))
    assert stream_table(path=path, maxOffsetsPerTrigger=few).equals(table)
    a_third = max(1, pc.sum(table["storeSize"]).as_py() // 3)
    assert stream_table(path=path, maxBytesPerTrigger=str(a_third)).equals(table)


def test_an_archived_golden_folder(golden: GoldenCase, pristine_store: Path, tmp_path: Path) -> None:
    store = tmp_path / "archived"
    shutil.copytree(pristine_store, store)
    try:
        packed = list(archive(store, older_than_ms=FAR_FUTURE_MS))
    except CorruptRecordError:
        assert not golden.loads
        return
    assert packed or not golden.name.startswith("rolled")
    table = batch_table(path=str(pristine_store))
    assert batch_table(path=str(store)).equals(table)
    assert stream_table(path=str(store), maxOffsetsPerTrigger=str(table.num_rows // 3 + 1)).equals(table)


def send(address: str, count: int) -> None:
    """Messages of two topics, some of them packed by the producer."""
    with Producer("ways", address, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        for number in range(count):
            body = f"{number}".encode() * (3000 if number % 10 == 0 else number % 7 + 1)
            message = Message(TOPICS[number % 2], body, tags="AB"[number % 2], keys=f"k{number} all")
            producer.send(message)


@pytest.mark.timeout(300)
def test_a_broker_and_its_folder(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as node:
        send(node.address, 90)
        folder, live = {"path": str(node.folder), "topics": ",".join(TOPICS)}, {
            "namesrv": node.address,
            "topics": ",".join(TOPICS),
        }  # fmt: skip
        rows = as_rows(batch_table(**folder))
        assert len(rows) == 90
        assert any(row["sysFlag"] for row in rows)
        assert as_rows(batch_table(**live)) == rows
        assert as_rows(stream_table(**folder, maxOffsetsPerTrigger="40")) == rows
        assert as_rows(stream_table(**live, maxOffsetsPerTrigger="40")) == rows
        assert cat_rows(node.folder, *(word for topic in TOPICS for word in ("--topic", topic))) == rows
