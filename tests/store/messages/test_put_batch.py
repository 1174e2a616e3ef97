"""Batches of messages: all are stored or none, by the rules of a single put."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.errors import IllegalMessageError, RecordTooLargeError
from pyledger.model.message import Message, QueueRange
from pyledger.store.messages.message_store import MessageStore

REFUSED: dict[str, Callable[[], Message]] = {
    "a surrogate in the tags": lambda: Message("T", b"z", tags="\ud800"),
    "a surrogate in the keys": lambda: Message("T", b"z", keys="\ud800"),
    "a surrogate in a property": lambda: Message("T", b"z", properties={"a\ud800": "b"}),
    "a surrogate in the topic": lambda: Message("\ud800", b"z"),
    "a separator in a property": lambda: Message("T", b"z", properties={"a": "b\x02"}),
    "an empty property": lambda: Message("T", b"z", properties={"a": ""}),
    "a host that is none": lambda: Message("T", b"z", born_host=("not-an-ip", 1)),
    "no topic": lambda: Message("", b"z"),
    "a negative queue": lambda: Message("T", b"z", -1),
    "no body": lambda: Message("T", None),  # type: ignore[arg-type]
    "a body beyond the limit": lambda: Message("T", bytes((4 << 20) + 1)),
    "a body that fills a file": lambda: Message("T", memoryview(bytes(1 << 20))),
    "properties of 32,768 bytes": lambda: Message("T", b"z", properties={"a": "b" * 32_765}),
    "tags that are too long": lambda: Message("T", b"z", tags="t" * 32_765),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_rejected_message_leaves_nothing_of_its_batch(tmp_path: Path, what: str) -> None:
    with MessageStore.open(tmp_path / "s", mapped_file_size_bytes=1 << 20) as store:
        raised = []
        for put in (store.put, lambda one: store.put_batch([Message("T", b"ok"), one])):
            with pytest.raises((IllegalMessageError, RecordTooLargeError)) as caught:
                put(REFUSED[what]())
            raised.append((type(caught.value), str(caught.value)))
        assert raised[0] == raised[1]
        assert store.max_offset == 0


def test_a_batch_that_fits_into_no_file_leaves_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", mapped_file_size_bytes=1 << 16) as store:
        store.put(Message("T", b"before"))
        with pytest.raises(RecordTooLargeError, match="batch"):
            store.put_batch([Message("T", bytes(10_000), queue_id=n) for n in range(7)])
        assert [message.body for message in store.messages()] == [b"before"]
        results = store.put_batch([Message("T", bytes(10_000), queue_id=n) for n in range(6)])
        assert [result.queue_offset for result in results] == [1, 0, 0, 0, 0, 0]
        assert [message.store_size for message in store.messages()][1:] == [one.size_bytes for one in results]
        store.put_batch([Message("T", bytearray(10_000)) for n in range(6)])
        assert store.queue_range("T", 0) == QueueRange(0, 8)


@pytest.mark.parametrize("size", [32_000, 32_764])
def test_put_and_put_batch_have_the_same_limits(tmp_path: Path, size: int) -> None:
    with MessageStore.open(tmp_path / "s", mapped_file_size_bytes=1 << 20) as store:
        message = Message("T", b"x", properties={"a": "b" * size})
        assert [result.queue_offset for result in (store.put(message), *store.put_batch([message] * 2))] == [
            0,
            1,
            2,
        ]
