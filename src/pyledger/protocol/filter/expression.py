"""An SQL92 expression as a tree, and the function that it becomes.

Logic has three values: true, false and null (None). A missing property is null. Comparisons with null are
null, except that `=` with null on the right side is false, and text searches in null are false: exactly
upstream's logic.

Source: RocketMQ filter/.../expression/*.java.
"""

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.protocol.filter.values import Value, compare, equal

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
ORDERS: dict[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Search(Enum):
    """Kinds of text search; the values are upstream's keywords."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


SEARCHES: dict[Search, Callable[[str, str], bool]] = {
    Search.CONTAINS: operator.contains,
    Search.STARTS_WITH: str.startswith,
    Search.ENDS_WITH: str.endswith,
}


@lazy_dataclass()
class Constant:
    """A literal."""

    value: Value


@lazy_dataclass()
class Property:
    """The value of a property; null where a message has none."""

    name: str


@lazy_dataclass()
class Negate:
    """A negated number; null for anything else."""

    operand: "Node"


@lazy_dataclass()
class IsTrue:
    """A property used as a condition: text is never true."""

    operand: Property


@lazy_dataclass()
class Not:
    """Negation; of null, null."""

    operand: "Node"


@lazy_dataclass()
class AnyOf:
    """True if one is true, else null if one is null."""

    operands: tuple["Node", ...]


@lazy_dataclass()
class AllOf:
    """False if one is false, else null if one is null."""

    operands: tuple["Node", ...]


@lazy_dataclass()
class Equal:
    """Equality of two values."""

    left: "Node"
    right: "Node"


@lazy_dataclass()
class IsNull:
    """Whether a value is null."""

    operand: "Node"


@lazy_dataclass()
class Order:
    """An order comparison of two numbers."""

    sign: str
    left: "Node"
    right: "Node"


@lazy_dataclass()
class OneOf:
    """A property that is one of some texts."""

    operand: Property
    texts: frozenset[str]
    negated: bool


@lazy_dataclass()
class Matches:
    """A search of one text in another; it and its negation are false for null and for an empty search."""

    search: Search
    operand: "Node"
    text: str
    negated: bool


Condition = IsTrue | Not | AnyOf | AllOf | Equal | IsNull | Order | OneOf | Matches
Node = Constant | Property | Negate | Condition


def is_condition(node: Node) -> bool:
    """Whether a node is true, false or null, whatever the message."""
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negate)


def operands(node: Node) -> tuple[Node, ...]:
    """Return the child nodes."""
    if isinstance(node, Constant | Property):
        return ()
    if isinstance(node, Equal | Order):
        return node.left, node.right
    return node.operands if isinstance(node, AnyOf | AllOf) else (node.operand,)


def compiled(node: Node) -> Evaluate:
    """Compile a tree into a function, which raises `EvaluationError` if there is no value."""
    return MAKERS[type(node)](node)


def make_constant(node: Constant) -> Evaluate:
    """A literal."""
    value = node.value
    return lambda _: value


def make_property(node: Property) -> Evaluate:
    """A property's value."""
    name = node.name
    return lambda properties: properties.get(name)


def make_negate(node: Negate) -> Evaluate:
    """The other sign."""
    operand = compiled(node.operand)

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None or isinstance(value, str | bool) else -value

    return evaluate


def make_is_true(node: IsTrue) -> Evaluate:
    """Null or false: text is not true."""
    name = node.operand.name
    return lambda properties: None if properties.get(name) is None else False


def make_not(node: Not) -> Evaluate:
    """The contrary."""
    operand = compiled(node.operand)

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def make_any(node: AnyOf) -> Evaluate:
    """OR, from left to right, until one is true."""
    operands = tuple(map(compiled, node.operands))

    def evaluate(properties: Properties) -> Value:
        unknown = False
        for operand in operands:
            value = operand(properties)
            if value:
                return True
            unknown |= value is None
        return None if unknown else False

    return evaluate


def make_all(node: AllOf) -> Evaluate:
    """AND, from left to right, until one is false."""
    operands = tuple(map(compiled, node.operands))

    def evaluate(properties: Properties) -> Value:
        unknown = False
        for operand in operands:
            value = operand(properties)
            if value is False:
                return False
            unknown |= value is None
        return None if unknown else True

    return evaluate


def make_equal(node: Equal) -> Evaluate:
    """Equality, with upstream's two answers to null."""
    first, second = compiled(node.left), compiled(node.right)

    def evaluate(properties: Properties) -> Value:
        left, right = first(properties), second(properties)
        if left is None:
            return True if right is None else None
        return False if right is None else equal(left, right)

    return evaluate


def make_is_null(node: IsNull) -> Evaluate:
    """Whether there is no value."""
    operand = compiled(node.operand)
    return lambda properties: operand(properties) is None


def make_order(node: Order) -> Evaluate:
    """An order of numbers; null with null."""
    first, second, holds = compiled(node.left), compiled(node.right), ORDERS[node.sign]

    def evaluate(properties: Properties) -> Value:
        left = first(properties)
        right = None if left is None else second(properties)
        return None if right is None else holds(compare(left, right), 0)

    return evaluate


def make_one_of(node: OneOf) -> Evaluate:
    """A list of texts."""
    name, texts, negated = node.operand.name, node.texts, node.negated

    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in texts) != negated

    return evaluate


def make_matches(node: Matches) -> Evaluate:
    """A search in text."""
    operand, found, text, negated = compiled(node.operand), SEARCHES[node.search], node.text, node.negated

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return isinstance(value, str) and bool(text) and found(value, text) != negated

    return evaluate


MAKERS: dict[type, Callable[[Any], Evaluate]] = {
    Constant: make_constant,
    Property: make_property,
    Negate: make_negate,
    IsTrue: make_is_true,
    Not: make_not,
    AnyOf: make_any,
    AllOf: make_all,
    Equal: make_equal,
    IsNull: make_is_null,
    Order: make_order,
    OneOf: make_one_of,
    Matches: make_matches,
}
