"""Tag expressions and Java's hash, against upstream's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import SubscriptionSyntaxError
from pyledger.model.tags import java_hash, parse_tags
from tests.models import index_file


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_and_a_lone_star_select_all(expression: str | None) -> None:
    assert parse_tags(expression) is None


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("a", ("a",)),
        ("a||b", ("a", "b")),
        (" b || a || b ", ("b", "a")),
        ("||a||||b||", ("a", "b")),
        ("a|b", ("a|b",)),
        ("a|||b", ("a", "|b")),
        ("|||", ("|",)),
        ("a || *", ("a", "*")),
        (" * ", ("*",)),
        ("* || *", ("*",)),
        (" ", ()),
        (" || ", ()),
        ("\t||\x00\x1f", ()),
        ("\u00a0a || \u3000", ("\u00a0a", "\u3000")),
    ],
)
def test_an_expression_has_the_tags_that_upstream_finds(expression: str, tags: tuple[str, ...]) -> None:
    """By FilterAPI.buildSubscriptionData: Java's `split` and `trim`, and `*` only as the whole expression."""
    assert parse_tags(expression) == tags


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_an_error(expression: str) -> None:
    with pytest.raises(SubscriptionSyntaxError):
        parse_tags(expression)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1772899)],
)
def test_the_hash_is_that_of_java(text: str, code: int) -> None:
    """As String.hashCode returns it; beyond the BMP, one character is two UTF-16 units."""
    assert java_hash(text) == code


@given(st.text())
def test_the_hash_of_any_text_equals_the_models(text: str) -> None:
    assert java_hash(text) == index_file.java_hash(text)
