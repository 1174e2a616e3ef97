"""SQL92 filters: what upstream accepts and matches, and any expression against a naive interpreter."""

import contextlib
import math
import sys
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyledger.errors import SqlSyntaxError
from pyledger.protocol.filter.sql92 import DEPTH_MAX, LENGTH_MAX, FilterCache, SqlFilter, sql_filter
from pyledger.protocol.filter.values import order
from tests.models import sql92 as model
from tests.support.processor_time import processor_seconds

AND = "a=3 and b<>4 And c>5 AND d<=4"
OR = "a=3 or b<>4 Or c>5 OR d<=4"


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        (AND, {"a": "3", "b": "5", "c": "6", "d": "1"}, True),
        (AND, {"a": "4", "b": "5", "c": "6", "d": "1"}, False),
        (AND, {"a": "3", "b": "5", "c": "6"}, False),
        (OR, {"a": "3"}, True),
        (OR, {"a": "4", "b": "5"}, True),
        (OR, {"a": "4", "b": "4", "c": "6"}, True),
        (OR, {"a": "4", "b": "4", "c": "3", "d": "2"}, True),
        (OR, {"a": "4", "b": "4", "c": "3", "d": "10"}, False),
        ("a in ('3', '4', '5')", {"a": "4"}, True),
        ("a in ('3', '4', '5')", {"a": "8"}, False),
        ("a not in ('3', '4', '5')", {"a": "8"}, True),
        ("a not in ('3', '4', '5')", {}, False),
        ("a between 2 and 10", {"a": "2"}, True),
        ("a between 2 and 10", {"a": "10"}, True),
        ("a between 2 and 10", {"a": "11"}, False),
        ("a not between 2 and 10", {"a": "11"}, True),
        ("a not between 2 and 10", {"a": "3"}, False),
        ("a is null", {"abc": "2"}, True),
        ("a is not null", {"abc": "2"}, False),
        ("a is null OR a='hello'", {}, True),
        ("a is null OR a='hello'", {"a": "abc"}, False),
        ("a=TRUE OR b=FALSE", {"a": "true", "b": "false"}, True),
        ("a=TRUE OR b=FALSE", {"a": "false", "b": "true"}, False),
        ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, True),
        ("a > 3.1E10", {"a": "3.1415E10"}, True),
        ("a > b", {"a": "20", "b": "10"}, True),
        ("a > b", {"a": "9", "b": "10"}, False),
        ("a = b", {"a": "3.14", "b": "3.14"}, True),
        ("a <> b", {"a": "3.14", "b": "3.141"}, True),
        ("color = 'c1' AND TAGS IS NOT NULL", {"color": "c1", "TAGS": "x"}, True),
        ("color = 'c1' AND TAGS IS NOT NULL", {"color": "c1"}, False),
    ],
)
def test_upstream_cases_match_alike(expression: str, properties: dict[str, str], wanted: bool) -> None:
    assert SqlFilter(expression).matches(properties) is wanted


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        # What is missing is null; on the right of an equality it is merely different.
        ("a <> 'x'", {}, False),
        ("'x' <> a", {}, True),
        ("NOT (a = 'x')", {}, False),
        # Text that is no number makes the whole expression fail, unless it was decided before.
        ("a > 1 OR b = 'y'", {"a": "abc", "b": "y"}, False),
        ("b = 'y' OR a > 1", {"a": "abc", "b": "y"}, True),
        ("a <> 3", {"a": "abc"}, False),
        ("a > 3", {"a": "3.5"}, False),
        ("a > 3.0", {"a": "3.5"}, True),
        # The literal decides how wide a number may be.
        ("a > 3", {"a": "3000000000"}, False),
        ("a > 3000000000", {"a": "3000000001"}, True),
        ("a > -3000000000", {"a": "-1"}, True),
        ("a > b", {"a": "x", "b": "1"}, False),
        ("a = 1.0", {"a": " 1f "}, True),
        ("a = 1.0", {"a": "0x1p0"}, True),
        ("a > 1.0", {"a": "NaN"}, True),
        # Properties are text, and text is not true.
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("NOT a = TRUE", {"a": "true"}, True),
        ("a = TRUE", {"a": "TRUE"}, True),
        ("-a < 5", {"a": "3"}, False),
        ("a contains 'ell'", {"a": "hello"}, True),
        ("a not contains 'ell'", {}, False),
        ("a contains ''", {"a": "hello"}, False),
        ("a startswith 'he' and a endswith 'lo' and a not startswith 'x'", {"a": "hello"}, True),
        ("a in ('x') and inner$ = '1' and not_ = '2'", {"a": "x", "inner$": "1", "not_": "2"}, True),
        ("(a = 1) = (b = 1)", {"a": "1", "b": "1"}, True),
        ("a = 1 -- that is all", {"a": "1"}, True),
        ("a /* the **/ = 1", {"a": "1"}, True),
    ],
)
def test_values_convert_as_in_java(expression: str, properties: dict[str, str], wanted: bool) -> None:
    assert SqlFilter(expression).matches(properties) is wanted


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "a and between 2 and 10",
        "a between 10 and 0",
        "a between 'a' and 'b'",
        "a > 100000000000000000000000",
        "a > " + "1" * 400 + ".",
        "a > 'x'",
        "a > TRUE",
        "(a = 1) > 2",
        "a = NULL",
        "TRUE = 1",
        "5",
        "NOT 5",
        "a = 1 b = 2",
        "a = 1;",
        "a in (1, 2)",
        "5 in ('5')",
        "a in ()",
        "a is 5",
        "05 = a",
        "a = 'open",
        "(a = 1",
        "import os",
        "a.__class__ = 1",
        "(" * (LENGTH_MAX + 1),
        "NOT " * (DEPTH_MAX + 1) + "a",
        "a" + "= b" * (DEPTH_MAX + 1),
        "a = '" + "x" * LENGTH_MAX + "'",
    ],
    ids=lambda text: text[:30],
)
def test_invalid_expressions_raise(expression: str) -> None:
    with pytest.raises(SqlSyntaxError):
        SqlFilter(expression)


def test_long_chains_neither_fail_nor_recurse() -> None:
    chain = " or ".join(f"a={number}" for number in range(1500))
    assert SqlFilter(chain).matches({"a": "1499"})
    assert not SqlFilter(chain).matches({"a": "1500"})
    assert SqlFilter(chain).node_count == 1 + 3 * 1500


def test_filters_are_compiled_once() -> None:
    assert sql_filter("a = 1") is sql_filter("a = 1")


def test_kept_filters_have_a_limit_of_characters() -> None:
    cache = FilterCache(characters_max=60)
    first, second, third = (f"a = '{letter * 20}'" for letter in "xyz")
    kept = cache.find(first), cache.find(second)
    assert cache.find(first) is kept[0]
    cache.find(third)
    assert cache.characters == len(first) + len(third)
    assert cache.find(first) is kept[0]
    assert cache.find(second) is not kept[1]
    with pytest.raises(SqlSyntaxError):
        cache.find("a = " + "'" * 41)
    assert cache.characters == len(first) + len(second)


@pytest.mark.parametrize(
    "unit", [" OR a=1", "(", "NOT ", "-", "'", "''", "/*", "/**/", "*", "0", "1.", "a ", "--"]
)
def test_an_expression_costs_in_proportion_to_its_length(unit: str) -> None:
    def steps(size: int) -> int:
        parser_steps = 0

        def count(*_: object) -> None:
            nonlocal parser_steps
            parser_steps += 1

        sys.setprofile(count)
        try:
            with contextlib.suppress(SqlSyntaxError):
                SqlFilter("a=1" + unit * (size // len(unit)))
        finally:
            sys.setprofile(None)
        return parser_steps

    assert steps(16_000) <= 5 * steps(4_000) + 1_000

    def compile_it() -> None:
        with contextlib.suppress(SqlSyntaxError):
            SqlFilter("a=1" + unit * (16_000 // len(unit)))

    assert processor_seconds(compile_it, 1) < 1


def test_an_error_shows_the_beginning_of_its_expression() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        SqlFilter("a = " + "x" * LENGTH_MAX)
    assert len(str(caught.value)) < 400


NAMES = st.sampled_from(["a", "b", "c", "missing"])
TEXTS = st.sampled_from(
    ["", "1", "2", "10", "2.5", "-1", "true", "false", "x", "hello", "3000000000", "it's"]
)
NUMBERS = st.sampled_from([0, 1, 2, 10, 3_000_000_000, 0.5, 2.5, 1e300])
LISTS = st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
PROPERTIES = st.dictionaries(st.sampled_from("abc"), TEXTS.filter(bool))
VALUES: st.SearchStrategy[model.Tree] = st.one_of(
    st.tuples(st.just("name"), NAMES),
    st.tuples(st.just("text"), TEXTS),
    st.tuples(st.just("number"), NUMBERS),
    st.tuples(st.just("negate"), st.tuples(st.just("number"), NUMBERS)),
    st.tuples(st.just("literal"), st.sampled_from(["TRUE", "FALSE", "NULL"])),
)


def deeper(below: st.SearchStrategy[model.Tree]) -> st.SearchStrategy[model.Tree]:
    return st.one_of(
        st.tuples(st.just("not"), below),
        st.tuples(st.sampled_from(["and", "or", "=", "<>", "<", "<=", ">", ">="]), below, below),
        st.tuples(st.sampled_from(["null", "not null"]), below),
        st.tuples(st.sampled_from(["between", "not between"]), VALUES, VALUES, VALUES),
        st.tuples(
            st.sampled_from(["in", "not in"]), VALUES, st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
        ),
        st.tuples(
            st.sampled_from(["", "not "]).flatmap(
                lambda no: st.sampled_from(["contains", "startswith", "endswith"]).map(no.__add__)
            ),
            below,
            TEXTS,
        ),
    )


@given(st.recursive(VALUES, deeper, max_leaves=12), PROPERTIES)
@example(("<>", ("text", "x"), ("name", "missing")), {})
def test_any_expression_matches_as_in_the_naive_interpreter(
    tree: model.Tree, properties: Mapping[str, str]
) -> None:
    text = model.written(tree)
    if not model.allowed(tree):
        with pytest.raises(SqlSyntaxError):
            SqlFilter(text)
        return
    assert SqlFilter(text).matches(properties) is model.matches(tree, properties), text


@given(st.text(alphabet="ab01'()=<>.-+*/ \nANDORNTISUL$_eE", max_size=60))
@example("a" * 5000)
@example("/*" + "*" * 5000)
def test_any_text_is_a_filter_or_a_syntax_error(text: str) -> None:
    try:
        found = SqlFilter(text)
    except SqlSyntaxError:
        return
    assert found.matches({"a": "1", "b": "x"}) in (True, False)


@given(st.floats() | st.integers(-5, 5), st.floats() | st.integers(-5, 5))
def test_numbers_are_ordered_totally(left: float, right: float) -> None:
    assert order(left, right) == -order(right, left)
    if not any(map(math.isnan, (left, right))) and left != right:
        assert order(left, right) == (1 if left > right else -1)
