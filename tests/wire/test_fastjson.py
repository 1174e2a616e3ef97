import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import MalformedJsonError
from pyledger.wire.fastjson import dump, parse

scalars = (
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
).filter(lambda value: '"$ref"' not in json.dumps(value))


def without_none(value: Any) -> Any:
    """What fastjson leaves of a document: fields that are null are not written."""
    if isinstance(value, dict):
        return {key: without_none(one) for key, one in value.items() if one is not None}
    return [without_none(one) for one in value] if isinstance(value, list) else value


@given(documents)
def test_parse_reads_all_of_json(document: Any) -> None:
    assert parse(json.dumps(document)) == document
    assert parse(json.dumps(document, ensure_ascii=False, indent=2)) == document


@given(documents)
def test_dump_writes_what_parse_and_json_read(document: Any) -> None:
    assert parse(dump(document)) == without_none(document)
    assert json.loads(dump(document)) == without_none(document)


@given(st.dictionaries(st.integers(0, 1 << 62), st.integers(), min_size=1))
def test_integer_keys_come_back_without_quotes(queues: dict[int, int]) -> None:
    assert parse(dump({"t@g": queues})) == {"t@g": queues}


def test_dump_has_the_layout_of_fastjson() -> None:
    document = {
        "dataVersion": {"counter": 2},
        "empty": {},
        "none": None,
        "offsetTable": {"t@g": {0: 250, 1: 7}},
    }
    fields = '\t"dataVersion":{\n\t\t"counter":2\n\t},\n\t"empty":{},\n'
    queues = '\t"offsetTable":{\n\t\t"t@g":{0:250,1:7\n\t\t}\n\t}\n'
    assert dump(document) == "{\n" + fields + queues + "}"


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("{0:1,1:2,}", {0: 1, 1: 2}),
        ('{"0":1}', {"0": 1}),
        ("{'a':'it\\'s'}", {"a": "it's"}),
        ("{a:[1,2,],}", {"a": [1, 2]}),
        ("{-1:true, b : null} // end", {-1: True, "b": None}),
        ("/* head */ [.5, 1., 1e3]", [0.5, 1.0, 1000.0]),
        ('"\\uD83D\\uDE00 \\x41\\v\\/"', "\U0001f600 A\v/"),
        ('{"a":{"x":1},"b":{"$ref":"$.a"},"c":[{"$ref":"$.a.x"}]}', {"a": {"x": 1}, "b": {"x": 1}, "c": [1]}),
        ('{"a.b":[{"x":1}],"c":{"$ref":"$.a\\\\.b[0]"}}', {"a.b": [{"x": 1}], "c": {"x": 1}}),
    ],
)
def test_parse_reads_the_dialect(text: str, document: Any) -> None:
    assert parse(text) == document


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ('{"a"', 1, 5),
        ('{"a":}', 1, 6),
        ('{\n"a":1 "b":2}', 2, 7),
        ("[1 2]", 1, 4),
        ("{} {}", 1, 4),
        ('"abc', 1, 5),
        ('"\\u12"', 1, 2),
        ("nul", 1, 1),
        ('{"a":{"$ref":"$.b"}}', 1, 21),
        ('{"a":{"$ref":"b"}}', 1, 19),
        ("[" * 200, 1, 102),
        ("1" * 5000, 1, 1),
    ],
)
def test_broken_text_names_the_place(text: str, line: int, column: int) -> None:
    with pytest.raises(MalformedJsonError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@given(st.text(alphabet="{}[]:,\"'\\$ref.01 atrue/*\n", max_size=40))
def test_parse_never_fails_otherwise(text: str) -> None:
    with contextlib.suppress(MalformedJsonError):
        dump(parse(text))
