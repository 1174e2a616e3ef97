import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import IllegalMessageError, RecordTooLargeError
from pyledger.wire.record.properties import decode_properties, encode_properties

names = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20
)
values = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(st.dictionaries(names, values), st.booleans())
def test_properties_come_back(properties: dict[str, str], close_last: bool) -> None:
    encoded = encode_properties(properties, close_last=close_last)
    assert decode_properties(encoded) == properties
    assert encoded.endswith(b"\x02") == (close_last and bool(properties))


@given(st.binary(max_size=100))
def test_decode_takes_any_bytes(encoded: bytes) -> None:
    assert all(name and value for name, value in decode_properties(encoded).items())


def test_bytes_are_upstreams() -> None:
    assert encode_properties({"TAGS": "a", "k": "v\x01w"}) == b"TAGS\x01a\x02k\x01v\x01w\x02"
    assert decode_properties(b"a\x011\x02\x01x\x02b\x01\x02c\x02a\x012") == {"a": "2"}


@pytest.mark.parametrize(
    "pair", [("", "v"), ("k", ""), ("k\x01", "v"), ("k\x02", "v"), ("k", "v\x02"), ("k", "\ud800")]
)
def test_pairs_that_would_not_come_back_are_rejected(pair: tuple[str, str]) -> None:
    with pytest.raises(IllegalMessageError):
        encode_properties(dict([pair]))


def test_size_limit_counts_encoded_bytes() -> None:
    assert len(encode_properties({"k": "v" * 32764})) == 32767
    with pytest.raises(RecordTooLargeError):
        encode_properties({"k": "v" * 32765})
    with pytest.raises(RecordTooLargeError):
        encode_properties({"k": "é" * 16384})
