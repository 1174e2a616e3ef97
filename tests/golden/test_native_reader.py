"""The native reader over every golden folder: each record that Java found, field by field, and no other."""

import hashlib
from pathlib import Path
from typing import Any

import pyledger.store  # noqa: F401  hands the codecs to the native module
from pyledger._core import LogView, MappedFile, MessageScan, StoredMessage, read_message, scan
from tests.golden.archive import GoldenCase


def open_view(store: Path) -> LogView:
    files = [MappedFile.open(str(path)) for path in sorted((store / "commitlog").iterdir())]
    return LogView(files, files[-1].start_offset + files[-1].mapped_bytes)


def as_line(message: StoredMessage, line: dict[str, Any]) -> dict[str, Any]:
    """The message in the form of its golden line."""
    found = {
        "kind": "message" if message.is_indexed else "unindexed",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "layout": message.layout,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "bodyLength": message.body_length,
        "bodyCRC": message.body_crc,
        "bodySha256": hashlib.sha256(message.body_view).hexdigest(),
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
    if message.is_indexed:
        found["tagsCode"] = message.tags_code
    if "plainSha256" in line:
        found["plainSha256"] = hashlib.sha256(message.plain_body).hexdigest()
    return found


def test_every_golden_line_is_read_as_java_reads_it(golden: GoldenCase, pristine_store: Path) -> None:
    view = open_view(pristine_store)
    lines = sorted(golden.of_kind("message") + golden.of_kind("unindexed"), key=lambda x: x["physicalOffset"])
    if golden.loads:
        found = [message.physical_offset for message in MessageScan(view, view.start_offset)]
        assert found == [line["physicalOffset"] for line in lines]
    for line in lines:
        assert as_line(read_message(view, line["physicalOffset"]), line) == line


def test_scan_ends_where_java_recovers_to(golden: GoldenCase, pristine_store: Path) -> None:
    view = open_view(pristine_store)
    stop = scan(view, view.start_offset)
    if golden.loads:
        assert stop.next_offset == golden.summary["maxPhysicalOffset"]
        assert stop.blank_count == golden.summary["blanks"]
        assert stop.record_count == golden.summary["messages"] + golden.summary["unindexed"]
    else:
        assert (stop.status, stop.record_count > 0) == ("short", True)
