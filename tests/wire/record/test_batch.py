import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import MalformedBatchError, RecordTooLargeError
from pyledger.wire.record.batch import BatchItem, decode_batch, encode_batch

items = st.builds(
    BatchItem, st.binary(max_size=50), st.binary(max_size=50), st.integers(-(1 << 31), (1 << 31) - 1)
)
TWO = encode_batch([BatchItem(b"body", b"k\x01v\x02", 7), BatchItem(b"")])


@given(st.lists(items, max_size=8))
def test_batch_comes_back(batch: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


def test_bytes_are_upstreams() -> None:
    first = "0000001e 00000000 00000000 00000007 00000004 626f6479 0004 6b017602"
    assert TWO.hex() == (first + "00000016 00000000 00000000 00000000 00000000 0000").replace(" ", "")


@pytest.mark.parametrize("length", [n for n in range(1, len(TWO)) if n != 30])
def test_every_truncation_is_noticed(length: int) -> None:
    with pytest.raises(MalformedBatchError):
        decode_batch(TWO[:length])


@given(st.integers(0, len(TWO) - 1), st.integers(0, 255))
def test_changed_bytes_never_read_beyond_the_batch(position: int, value: int) -> None:
    changed = bytearray(TWO)
    changed[position] = value
    try:
        batch = decode_batch(bytes(changed))
    except MalformedBatchError:
        return
    assert sum(22 + len(item.body) + len(item.properties) for item in batch) == len(TWO)


def test_properties_have_a_limit() -> None:
    with pytest.raises(RecordTooLargeError):
        encode_batch([BatchItem(b"", b"x" * 32768)])
