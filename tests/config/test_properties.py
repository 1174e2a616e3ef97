"""Java's properties: the examples of its documentation, and the corners of its grammar."""

import pytest

from pyledger.config.properties import parse
from pyledger.errors import ConfigError


@pytest.mark.parametrize("line", ["Truth = Beauty", "  Truth:Beauty", "Truth\t\t\t:Beauty", "Truth Beauty"])
def test_key_and_value_are_parted_by_equals_colon_or_space(line: str) -> None:
    assert parse(line) == {"Truth": "Beauty"}


def test_a_line_continues_after_a_backslash() -> None:
    text = "fruits     apple, banana, \\\n      pear, \\\r\n   kiwi\nlast=\\\\\nnext=1"
    assert parse(text) == {"fruits": "apple, banana, pear, kiwi", "last": "\\", "next": "1"}


def test_comments_and_blank_lines_are_left_out_but_not_within_a_line() -> None:
    assert parse("#a=1\n  ! b=2\n\n\f\nc=#3\\\n#4\n") == {"c": "#3#4"}


def test_escapes_in_keys_and_values() -> None:
    assert parse(r"a\ b\:\=c = \u00e9\t\z") == {"a b:=c": "\u00e9\tz"}


def test_key_alone_has_an_empty_value_and_the_last_wins() -> None:
    assert parse("cheeses") == {"cheeses": ""}
    assert parse("a=1\na=2") == {"a": "2"}


def test_value_may_hold_separators() -> None:
    assert parse("namesrvAddr=a:1;b:2=c") == {"namesrvAddr": "a:1;b:2=c"}


def test_broken_escape_is_named() -> None:
    with pytest.raises(ConfigError, match="broken escape"):
        parse(r"a=\u12")
