import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.errors import HeaderFieldError
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.headers import admin, client, namesrv, pop, pull, query, send
from pyledger.wire.remoting.headers.codec import Header, fields_of, parse_int, parse_long
from pyledger.wire.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS

KINDS = [
    kind
    for module in (admin, client, namesrv, pop, pull, query, send)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Header) and kind.__module__ == module.__name__
]
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
OFFSETS = {"consumerGroup": "g", "topic": "t", "queueId": "1"}


def values_of(kind: type[Header]) -> st.SearchStrategy[Header]:
    """Headers whose fields hold what their annotation allows."""
    given_fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in fields_of(kind):
        if field.parse is str:
            values: st.SearchStrategy[Any] = st.text(max_size=9)
        elif field.parse is parse_int:
            values = i32
        elif field.parse is parse_long:
            values = st.integers(-(1 << 63), (1 << 63) - 1)
        elif field.attribute == "boundary_type":
            values = st.sampled_from(query.BoundaryType)
        else:
            values = st.booleans()
        default = {one.name: one.default for one in dataclasses.fields(kind)}[field.attribute]
        given_fields[field.attribute] = values if default is not None else st.none() | values
    return st.builds(kind, **given_fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_headers_come_back(kind: type[Header], data: st.DataObject) -> None:
    header = data.draw(values_of(kind))
    assert kind.decode(header.encode()) == header


@given(values_of(send.SendMessageRequestHeader))
def test_short_names_carry_all_but_the_rare_fields(header: Header) -> None:
    assert isinstance(header, send.SendMessageRequestHeader)
    again = send.SendMessageRequestHeader.decode(
        header.encode(RequestCode.SEND_BATCH_MESSAGE), RequestCode.SEND_BATCH_MESSAGE
    )
    assert again == dataclasses.replace(header, ns=None, nsd=None, oway=None, lo=None)


def test_every_header_belongs_to_a_command() -> None:
    used = set(REQUEST_HEADERS.values()) | set(RESPONSE_HEADERS.values())
    assert used == set(KINDS)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"setZeroIfNotFound": "TRUE"}, True),
        ({"setZeroIfNotFound": "1"}, False),
        ({"setZeroIfNotFound": "false"}, False),
    ],
)
def test_booleans_are_read_as_java_reads_them(fields: dict[str, str], wanted: bool | None) -> None:
    header = query.QueryConsumerOffsetRequestHeader.decode(OFFSETS | fields)
    assert header.set_zero_if_not_found is wanted


@pytest.mark.parametrize("text", ["+5", "5", "-0", "0005", "2147483647"])
def test_numbers_are_read_as_java_reads_them(text: str) -> None:
    header = query.UpdateConsumerOffsetRequestHeader.decode(OFFSETS | {"queueId": text})
    assert header.queue_id == int(text)


@pytest.mark.parametrize("text", ["", " 5", "5 ", "1_0", "0x1", "2147483648", "1.0", "٣", "9" * 5000])
def test_what_is_no_number_takes_the_default_or_is_named(text: str) -> None:
    tolerant = query.UpdateConsumerOffsetRequestHeader.decode(OFFSETS | {"queueId": text})
    assert tolerant.queue_id is None
    with pytest.raises(HeaderFieldError) as caught:
        query.GetMaxOffsetRequestHeader.decode({"topic": "t", "queueId": text})
    assert (caught.value.header, caught.value.field) == ("GetMaxOffsetRequestHeader", "queueId")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(HeaderFieldError, match="queueId is missing"):
        query.GetMaxOffsetRequestHeader.decode({"topic": "t", "else": "ignored"})


@pytest.mark.parametrize(("text", "wanted"), [("upper", "UPPER"), ("Lower", "LOWER"), ("middle", "LOWER")])
def test_a_boundary_is_lower_unless_it_is_upper(text: str, wanted: str) -> None:
    fields = {"topic": "t", "queueId": "0", "timestamp": "1", "boundaryType": text}
    assert query.SearchOffsetRequestHeader.decode(fields).boundary_type == wanted
