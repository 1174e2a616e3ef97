"""A second, plain interpreter of SQL92 expressions, over trees of tuples that it can also write as text."""

from collections.abc import Mapping
from typing import Any

Tree = tuple[Any, ...]
Value = Any
SEARCHES = {"contains": "__contains__", "startswith": "startswith", "endswith": "endswith"}


class NoValueError(Exception):
    """The message cannot be judged."""


def written(tree: Tree) -> str:
    kind, *rest = tree
    if kind in {"name", "literal"}:
        return str(rest[0])
    if kind == "text":
        return quoted(rest[0])
    if kind == "number":
        return repr(rest[0])
    if kind in ("negate", "not"):
        return f"({'- ' if kind == 'negate' else 'NOT '}{written(rest[0])})"
    if kind in ("null", "not null"):
        return f"({written(rest[0])} IS {kind})"
    if kind in ("between", "not between"):
        value, low, high = map(written, rest)
        return f"({value} {kind} {low} and {high})"
    if kind in ("in", "not in"):
        return f"({written(rest[0])} {kind} ({', '.join(map(quoted, rest[1]))}))"
    if kind.split()[-1] in SEARCHES:
        return f"({written(rest[0])} {kind} {quoted(rest[1])})"
    return f"({written(rest[0])} {kind} {written(rest[1])})"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def is_constant(tree: Tree) -> bool:
    return tree[0] in ("text", "number", "literal")


def is_boolean(tree: Tree) -> bool:
    return tree[0] not in ("name", "text", "number", "negate")


def allowed(tree: Tree) -> bool:
    """Whether upstream compiles it, as the whole expression."""
    return compiles(tree) and (is_boolean(tree) or tree[0] == "name")


def compiles(tree: Tree) -> bool:
    kind, *rest = tree
    if kind in ("name", "text", "number", "literal"):
        return True
    if not all(compiles(one) for one in rest if isinstance(one, tuple) and kind not in ("in", "not in")):
        return False
    if kind in ("and", "or", "not"):
        return all(allowed(one) for one in rest)
    if kind in ("<", "<=", ">", ">="):
        return all(ordered(one) for one in rest)
    if kind in ("between", "not between"):
        ends = [one[1] for one in rest[1:] if one[0] == "number"]
        upside_down = kind == "between" and len(ends) == 2 and ends[0] > ends[1]
        return all(map(ordered, rest)) and not upside_down
    if kind in ("in", "not in"):
        return bool(rest[0][0] == "name")
    if kind in ("=", "<>"):
        never = rest[0][0] == "literal" and is_constant(rest[1]) and rest[1][0] != "literal"
        return ("literal", "NULL") not in rest and not never
    return True


def ordered(tree: Tree) -> bool:
    return tree[0] in ("name", "number", "negate")


def matches(tree: Tree, properties: Mapping[str, str]) -> bool:
    try:
        value = evaluate(tree, properties)
    except NoValueError:
        return False
    return False if tree[0] == "name" else value is True


def evaluate(tree: Tree, properties: Mapping[str, str]) -> Value:
    kind, *rest = tree
    if kind == "name":
        return properties.get(rest[0])
    if kind == "literal":
        return {"TRUE": True, "FALSE": False, "NULL": None}[rest[0]]
    if kind in ("text", "number"):
        return rest[0]
    if kind == "negate":
        return -evaluate(rest[0], properties)
    if kind in ("and", "or", "not"):
        return logic(kind, rest, properties)
    if kind in ("in", "not in"):
        value = properties.get(rest[0][1])
        return None if value is None else (value in rest[1]) is (kind == "in")
    if kind.split()[-1] in SEARCHES:
        value = evaluate(rest[0], properties)
        if not isinstance(value, str) or not rest[1]:
            return False
        return getattr(value, SEARCHES[kind.split()[-1]])(rest[1]) is not kind.startswith("not")
    if kind in ("between", "not between"):
        low, high = (">=", "<=") if kind == "between" else ("<", ">")
        parts = [(low, rest[0], rest[1]), (high, rest[0], rest[2])]
        return logic("and" if kind == "between" else "or", parts, properties)
    if kind in ("null", "not null"):
        return (evaluate(rest[0], properties) is None) is (kind == "null")
    left, right = (evaluate(one, properties) for one in rest)
    return compared(kind, left, right, rest)


def logic(kind: str, rest: list[Tree], properties: Mapping[str, str]) -> Value:
    def truth(tree: Tree) -> Value:
        value = evaluate(tree, properties)
        return (None if value is None else False) if tree[0] == "name" else value

    if kind == "not":
        value = truth(rest[0])
        return None if value is None else not value
    decisive = kind == "or"
    first = truth(rest[0])
    if first is decisive:
        return decisive
    second = truth(rest[1])
    if second is decisive:
        return decisive
    return None if None in (first, second) else not decisive


def compared(sign: str, left: Value, right: Value, trees: list[Tree]) -> Value:
    if sign in ("=", "<>"):
        if left is None or right is None:
            same = True if left is right else None if left is None else False
        else:
            left, right = converted(left, right), converted(right, left)
            same = (type(left) is type(right) and left == right) or (numeric(left, right) and left == right)
        return same if sign == "=" or same is None else not same
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = floating(left), floating(right)
    left, right = converted(left, right), converted(right, left)
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]


def numeric(*values: Value) -> bool:
    return not any(isinstance(value, str | bool) for value in values)


def converted(value: Value, other: Value) -> Value:
    if not isinstance(value, str) or isinstance(other, str):
        return value
    if isinstance(other, bool):
        return value.lower() == "true"
    if isinstance(other, float):
        return floating(value)
    bits = 31 if abs(other) < 1 << 31 else 63
    try:
        number = int(value)
    except ValueError:
        raise NoValueError from None
    if not -(1 << bits) <= number < 1 << bits:
        raise NoValueError
    return number


def floating(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NoValueError from None
