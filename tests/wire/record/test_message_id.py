from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import MalformedMessageIdError
from pyledger.wire.record.message_id import decode_message_id, encode_message_id


@given(st.ip_addresses(), st.integers(0, 65535), st.integers(0, (1 << 63) - 1))
def test_message_id_comes_back(host: IPv4Address | IPv6Address, port: int, physical_offset: int) -> None:
    text = encode_message_id(str(host), port, physical_offset)
    assert len(text) == (32 if host.version == 4 else 56)
    assert decode_message_id(text) == decode_message_id(text.lower()) == (str(host), port, physical_offset)


def test_message_id_is_upstreams() -> None:
    assert encode_message_id("127.0.0.1", 10911, 74565) == "7F00000100002A9F0000000000012345"


@pytest.mark.parametrize(
    "text", ["", "7F", "z" * 32, "7F" * 20, " " * 32, "7F000001 0002A9F000000000001234 "]
)
def test_other_text_is_rejected(text: str) -> None:
    with pytest.raises(MalformedMessageIdError, match="32 hex digits"):
        decode_message_id(text)
