"""Records of message traces: the bytes that Java writes, read leniently."""

from hypothesis import given
from hypothesis import strategies as st

from pyledger.wire.remoting.bodies.trace import BeginTrace, EndTrace, SendTrace, decode_traces

SENT = SendTrace(
    time_ms=1_700_000_000_000,
    region="DefaultRegion",
    group="G",
    topic="T",
    msg_id="7F0000010001",
    tags="A",
    keys="k1 k2",
    store_host="127.0.0.1:10911",
    body_bytes=5,
    took_ms=3,
    offset_msg_id="7F00000100002A9F0000000000000000",
)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"])).filter(
    lambda text: text != "null"
)
SMALL = st.integers(0, 1 << 31)


def test_records_are_javas() -> None:
    assert SENT.encode() == (
        "Pub\x011700000000000\x01DefaultRegion\x01G\x01T\x017F0000010001\x01A\x01k1 k2\x01127.0.0.1:10911"
        "\x015\x013\x010\x017F00000100002A9F0000000000000000\x01true\x02"
    )
    begun = BeginTrace(
        time_ms=5, region="R", group="G", request_id="AB", msg_id="ID", reconsume_times=2, keys=None
    )
    assert begun.encode() == "SubBefore\x015\x01R\x01G\x01AB\x01ID\x012\x01null\x02"
    ended = EndTrace(request_id="AB", msg_id="ID", took_ms=7, succeeded=False, end=4, time_ms=9, group="G")
    assert ended.encode() == "SubAfter\x01AB\x01ID\x017\x01false\x01null\x014\x019\x01G\x02"
    assert list(decode_traces(SENT.encode() + begun.encode() + ended.encode())) == [SENT, begun, ended]


def test_records_of_older_and_newer_clients() -> None:
    old = "Pub\x011\x01R\x01G\x01T\x01ID\x01null\x01null\x01h\x015\x013\x010\x01true\x02"
    new = "Pub\x011\x01R\x01G\x01T\x01ID\x01null\x01null\x01h\x015\x013\x010\x01PLACE\x01false\x01me\x02"
    short = "SubAfter\x01AB\x01ID\x017\x01true\x01null\x02"
    found = list(decode_traces(old + new + short))
    assert [one.succeeded for one in found if not isinstance(one, BeginTrace)] == [True, False, True]
    assert isinstance(found[1], SendTrace)
    assert (found[1].offset_msg_id, found[1].tags) == ("PLACE", None)


@given(TEXT, TEXT, TEXT, st.none() | TEXT, st.none() | TEXT, SMALL, SMALL, st.booleans())
def test_send_comes_back(
    region: str, group: str, msg_id: str, tags: str | None, keys: str | None, took: int, size: int, ok: bool
) -> None:
    one = SendTrace(
        time_ms=took,
        region=region,
        group=group,
        topic="T",
        msg_id=msg_id,
        tags=tags,
        keys=keys,
        store_host="h:1",
        body_bytes=size,
        took_ms=took,
        succeeded=ok,
    )
    assert list(decode_traces(one.encode())) == [one]


@given(
    st.lists(st.sampled_from(["Pub", "SubBefore", "SubAfter", "Recall", "\x01", "\x02", "1", "null", "x"]))
)
def test_nonsense_is_left_out(pieces: list[str]) -> None:
    for one in decode_traces("".join(pieces)):
        assert one.msg_id is not None
