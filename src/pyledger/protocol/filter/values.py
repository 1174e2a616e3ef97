"""Values of an SQL92 expression and how two of them compare, as Java's classes do.

A property is text. To compare it with a number, it must be a number of the same kind: `a > 3` fails if `a` is
`3.5` or does not fit 32 bits. A message for which the expression fails does not match.

Source: RocketMQ filter/.../ComparisonExpression.java.
"""

import math
import re

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
WHOLE = re.compile(r"[+-]?\d{1,40}")
DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII
)
HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?", re.ASCII
)
JAVA_SPACE = "".join(map(chr, range(33)))


class Long(int):
    """A number of 64 bits; a plain `int` is one of 32 bits."""

    def __neg__(self) -> "Long":
        return Long(-int(self))


Value = str | bool | int | float | None


class EvaluationError(ValueError):
    """The expression has no value for this message."""


def whole_number(text: str, low: int, high: int) -> int:
    """Text as Java's `Integer.valueOf` and `Long.valueOf` read it.

    Raises:
        EvaluationError: it is no whole number, or out of range.
    """
    if WHOLE.fullmatch(text) and low <= (number := int(text)) <= high:
        return number
    raise EvaluationError(f"{text!r} is no whole number from {low} to {high}")


def decimal_number(text: str) -> float:
    """Text as Java's `Double.valueOf` reads it.

    Raises:
        EvaluationError: it is no number.
    """
    text = text.strip(JAVA_SPACE)
    if DECIMAL.fullmatch(text):
        return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))
    if HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise EvaluationError(f"{text!r} is no number")


def like(text: str, other: Value) -> Value:
    """Text as a value of another's kind.

    Raises:
        EvaluationError: it cannot be one.
    """
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, Long):
        return Long(whole_number(text, INT64_MIN, INT64_MAX))
    if isinstance(other, int):
        return whole_number(text, INT32_MIN, INT32_MAX)
    return decimal_number(text) if isinstance(other, float) else text


def equal(left: Value, right: Value) -> bool:
    """Whether two values, neither null, are the same after conversion.

    Raises:
        EvaluationError: text cannot be converted.
    """
    if isinstance(left, str) and not isinstance(right, str):
        left = like(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        right = like(right, left)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    assert left is not None
    assert right is not None
    return order(left, right) == 0


def compare(left: Value, right: Value) -> int:
    """Below 0, 0 or above 0, as the first of two values, neither null, is less, equal or greater.

    Raises:
        EvaluationError: text is no number.
    """
    if isinstance(left, str) and isinstance(right, str):
        left, right = decimal_number(left), decimal_number(right)
    elif isinstance(left, str):
        left = like(left, right)
    elif isinstance(right, str):
        right = like(right, left)
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return -1
    assert not isinstance(left, str)
    assert not isinstance(right, str)
    return order(left, right)


def order(left: float, right: float) -> int:
    """Compare numbers; of floating ones NaN is the greatest, and -0.0 is less than 0.0."""
    if float not in (type(left), type(right)):
        return (left > right) - (left < right)
    a, b = rank(float(left)), rank(float(right))
    return (a > b) - (a < b)


def rank(number: float) -> tuple[bool, float, float]:
    """What floating numbers are sorted by."""
    if math.isnan(number):
        return True, 0.0, 0.0
    return False, number, math.copysign(1.0, number)
