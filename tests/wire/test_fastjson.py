import contextlib
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger.errors import MalformedJsonError
from pyledger.wire.fastjson import dump, parse, parse_without_references
from tests.support.processor_time import processor_seconds

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
def test_broken_text_names_the_position(text: str, line: int, column: int) -> None:
    with pytest.raises(MalformedJsonError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_what_occurs_again_is_the_same_object() -> None:
    found = parse('{"a":{"x":[1]},"b":[{"$ref":"$.a"},{"$ref":"$.b[0]"}]}')
    assert found["b"][0] is found["a"]
    assert found["b"][1] is found["a"]
    plain = parse_without_references('{"a":{"x":[1]},"b":[{"$ref":"$.a"}]}')
    assert plain["b"] == [{"$ref": "$.a"}]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":{"b":{"$ref":".."}}}',
        '{"a":[{"$ref":"@"}]}',
        '{"a":["' + "x" * 1000 + '"],"b":[' + '{"$ref":"$.a"},' * 500 + "]}",
        '{"a":{"' + "x" * 1000 + '":1},"b":[' + '{"$ref":"$.a"},' * 500 + "]}",
        '{"a":[' + "1," * 1000 + '],"b":[' + '{"$ref":"$.a"},' * 500 + "]}",
        '{"a0":[1],'
        + ",".join(f'"a{n}":[' + f'{{"$ref":"$.a{n - 1}"}},' * 10 + "]" for n in range(1, 20))
        + "}",
    ],
    ids=["root", "parent", "container", "text", "key", "values", "levels"],
)
def test_references_to_much_more_text_than_the_document_are_rejected(text: str) -> None:
    def reject() -> None:
        with pytest.raises(MalformedJsonError, match="references"):
            parse(text)

    assert processor_seconds(reject, 1) < 1


def test_references_to_no_more_text_than_their_own_are_followed() -> None:
    """Heartbeats that say the same subscription of many groups."""
    one = '{"classFilterMode":false,"codeSet":[],"subString":"*","subVersion":1,"tagsSet":[],"topic":"T"}'
    text = f'{{"s":{one},"groups":[' + '{"name":"g","subs":[{"$ref":"$.s"}]},' * 5_000 + "]}"
    found = parse(text)
    assert len({id(group["subs"][0]) for group in found["groups"]}) == 1


UNITS = (
    "1,", "a:1,", "'a':1,", '"a":1,', "{},", "[],", "{{}:1},", '{"$ref":"$"},', "/**/", "//\n", "/*", "*/",
    "\\x41", "\\u0041", "\\ud83d", "\U0001f600", "\\", '"', "'", '"a",', "1e9,", "9", "-", ".", "[", "{",
    " ", "\n", "$ref:", "{a:",
)  # fmt: skip


@given(
    st.sampled_from(["", "[", "{", "{x:'", '["', "{x:["]),
    st.lists(st.sampled_from(UNITS), min_size=1, max_size=4),
    st.sampled_from(["", "]", "}", "'}", '"]', "]}"]),
)
@settings(max_examples=60)
def test_a_document_costs_in_proportion_to_its_size(start: str, units: list[str], end: str) -> None:
    def cost_s(characters: int) -> float:
        text = start + "".join(units) * (characters // len("".join(units))) + end

        def parse_it() -> None:
            with contextlib.suppress(MalformedJsonError):
                parse(text)

        return processor_seconds(parse_it, 2)

    assert cost_s(32_000) < 0.1
    assert cost_s(128_000) < 0.2


def test_other_threads_go_on_while_a_large_document_is_parsed() -> None:
    steps, parsed = [], threading.Event()

    def step() -> None:
        while not parsed.wait(0.001):
            steps.append(1)

    other = threading.Thread(target=step)
    text = "[" + '"text",' * 3_000_000 + "]"
    other.start()
    while not steps:
        time.sleep(0)
    before = len(steps)
    parse(text)
    made = len(steps) - before
    parsed.set()
    other.join()
    assert made >= 5


@given(st.text(alphabet="{}[]:,\"'\\$ref.01 atrue/*\n", max_size=40))
def test_parse_never_fails_otherwise(text: str) -> None:
    with contextlib.suppress(MalformedJsonError):
        dump(parse(text))
