"""Our own recovery of every golden folder gives what upstream's gave, and the store goes on from there."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger.errors import StoreFormatError
from pyledger.model.message import Message
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.queues.get_result import GetStatus
from tests.golden.archive import GoldenCase

COLUMNS = {
    "physicalOffset": "physical_offset",
    "queueOffset": "queue_offset",
    "storeSize": "store_size",
    "storeTimestamp": "store_timestamp",
    "bornTimestamp": "born_timestamp",
    "sysFlag": "sys_flag",
    "bodyCRC": "body_crc",
}


def queue_rows(store: MessageStore, topic: str, queue_id: int) -> Iterator[dict[str, object]]:
    """Every message that the queue names, in queue order."""
    offset = store.queue_range(topic, queue_id).min_offset
    while (found := store.get(topic, queue_id, offset)).status is not GetStatus.OFFSET_OVERFLOW_ONE:
        if found.status is GetStatus.NO_MESSAGE_IN_QUEUE:
            return
        assert found.next_offset > offset, found
        for message in found.messages:
            row: dict[str, object] = {
                name: getattr(message, attribute) for name, attribute in COLUMNS.items()
            }
            yield row | {"bodySha256": hashlib.sha256(message.body).hexdigest()}
        offset = found.next_offset


def test_recovered_store_holds_what_upstream_found(golden: GoldenCase, golden_store: Path) -> None:
    if not golden.loads:
        with pytest.raises(StoreFormatError):
            MessageStore.open(golden_store)
        return
    expected: dict[tuple[str, int], list[dict[str, object]]] = {}
    for line in golden.of_kind("message"):
        row = {name: line[name] for name in (*COLUMNS, "bodySha256")}
        expected.setdefault((line["topic"], line["queueId"]), []).append(row)
    with MessageStore.open(golden_store) as store:
        assert store.recovery.clean is not golden.summary["abortFile"]
        assert store.min_offset == golden.summary["minPhysicalOffset"]
        assert store.max_offset == golden.summary["maxPhysicalOffset"]
        for queue, rows in expected.items():
            assert list(queue_rows(store, *queue)) == rows, queue
        spans = {
            f"{topic}/{queue}": [s.min_offset, s.max_offset] for (topic, queue), s in store.queues().items()
        }
        assert spans == {name: span for name, span in golden.summary["queues"].items() if span[1] > 0}
        named = {line["physicalOffset"] for line in golden.of_kind("message") + golden.of_kind("unindexed")}
        for line in golden.of_kind("key"):
            found = [m.physical_offset for m in store.query(line["topic"], line["key"])]
            # Upstream's answer holds messages whose key only has the same hash; ours finds older ones too.
            assert found == sorted(found)
            assert {o for o in line["physicalOffsets"] if has_key(store, o, line)} <= set(found)
            assert all(has_key(store, offset, line) for offset in found)
            assert set(found) <= named


def has_key(store: MessageStore, offset: int, line: dict[str, str]) -> bool:
    message = store.message_at(offset)
    keys = [message.unique_key, *(message.keys or "").split(" ")]
    return message.topic == line["topic"] and line["key"] in keys


def test_store_of_upstream_is_continued(golden: GoldenCase, golden_store: Path) -> None:
    if not golden.loads:
        return
    with MessageStore.open(golden_store) as store:
        before = store.queues()
        topic, queue_id = next(iter(before), ("new", 0))
        result = store.put(Message(topic, b"ours", queue_id=queue_id, keys="ours"))
        assert result.queue_offset == (before[topic, queue_id].max_offset if before else 0)
    with MessageStore.open(golden_store) as store:
        assert store.recovery.clean
        assert store.query(topic, "ours")[-1].body == b"ours"
        assert store.get(topic, queue_id, result.queue_offset).messages[0].body == b"ours"
