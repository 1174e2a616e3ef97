"""The language of SQL92 subscriptions: text to a filter.

Keywords in any case. Levels, from the loosest: `OR`; `AND`; `=`, `<>`, `IS [NOT] NULL`; `<`, `<=`, `>`, `>=`,
`[NOT] BETWEEN … AND …`, `[NOT] IN ('a', …)`, `[NOT] CONTAINS | STARTSWITH | ENDSWITH 'a'`; `+`, `-`, `NOT`.
`NOT` binds tightest, as upstream has it: `NOT a = 1` is `(NOT a) = 1`.

Differs: text after a whole expression is an error (upstream ignores it), `0.0` is a number (upstream refuses
it), and length and depth are limited.

Source: RocketMQ filter/.../SelectorParser.jj, SqlFilter.java, ConstantExpression.java.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from pyledger.errors import SqlSyntaxError
from pyledger.protocol.filter.expression import (
    AllOf,
    AnyOf,
    Constant,
    Equal,
    IsNull,
    Matches,
    Negate,
    Node,
    Not,
    OneOf,
    Order,
    Property,
    Search,
    Truth,
    compiled,
    is_condition,
    operands,
)
from pyledger.protocol.filter.values import INT32_MAX, INT64_MAX, EvaluationError, Long, order

LENGTH_MAX = 65_536
DEPTH_MAX = 100
DIGITS_MAX = 19
CACHED_FILTERS_MAX = 1000

GRAMMAR = r"""
?start: any
?any: all (_OR all)*                        -> any_of
?all: equality (_AND equality)*             -> all_of
?equality: comparison
    | equality "=" comparison              -> equal
    | equality "<>" comparison             -> not_equal
    | equality _IS _NULL                     -> is_null
    | equality _IS _NOT _NULL                 -> is_not_null
?comparison: unary
    | comparison ">" unary                 -> greater
    | comparison ">=" unary                -> greater_equal
    | comparison "<" unary                 -> less
    | comparison "<=" unary                -> less_equal
    | comparison _BETWEEN unary _AND unary       -> between
    | comparison _NOT _BETWEEN unary _AND unary   -> not_between
    | comparison _IN "(" texts ")"          -> one_of
    | comparison _NOT _IN "(" texts ")"      -> none_of
    | comparison SEARCH STRING             -> matches
    | comparison _NOT SEARCH STRING         -> not_matches
texts: STRING ("," STRING)*
?unary: "+" unary
    | "-" unary                            -> negate
    | _NOT unary                            -> not_
    | primary
?primary: STRING                           -> string
    | DECIMAL                              -> decimal
    | FLOAT                                -> floating
    | _TRUE                                 -> true
    | _FALSE                                -> false
    | _NULL                                 -> null
    | NAME                                 -> property
    | "(" any ")"

_OR.3: /OR(?![A-Z0-9_$])/i
_AND.3: /AND(?![A-Z0-9_$])/i
_NOT.3: /NOT(?![A-Z0-9_$])/i
_IS.3: /IS(?![A-Z0-9_$])/i
_IN.3: /IN(?![A-Z0-9_$])/i
_NULL.3: /NULL(?![A-Z0-9_$])/i
_TRUE.3: /TRUE(?![A-Z0-9_$])/i
_FALSE.3: /FALSE(?![A-Z0-9_$])/i
_BETWEEN.3: /BETWEEN(?![A-Z0-9_$])/i
SEARCH.3: /(?:CONTAINS|STARTSWITH|ENDSWITH)(?![A-Z0-9_$])/i
NAME.2: /[A-Za-z_$][A-Za-z0-9_$]*/
FLOAT.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL: /0|[1-9][0-9]*[lL]?/
STRING: /'(?:[^']|'')*'/
LINE_COMMENT: /--[^\n\r]*/
BLOCK_COMMENT: /\/\*(?:[^*]|\*+[^*\/])*\*+\//
%ignore /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""


class MeaningError(ValueError):
    """An expression that the grammar allows and upstream does not."""


def text_of(token: Token) -> str:
    """What stands between the quotes."""
    return str(token)[1:-1].replace("''", "'")


def condition(node: Node) -> Node:
    """A node where a condition is expected."""
    if isinstance(node, Property):
        return Truth(node)
    if not is_condition(node):
        raise MeaningError("a condition is expected, not a value")
    return node


def comparable(node: Node) -> Node:
    """A side of an order."""
    number = isinstance(node, Constant) and not isinstance(node.value, str | bool | None)
    if not number and (isinstance(node, Constant) or is_condition(node)):
        raise MeaningError("only numbers and properties have an order")
    return node


def make_equal(left: Node, right: Node) -> Node:
    """Equality of two sides that can be equal."""
    constants = [node for node in (left, right) if isinstance(node, Constant)]
    if any(node.value is None for node in constants):
        raise MeaningError("write IS NULL")
    if len(constants) == 2 and isinstance(constants[0].value, bool) and not is_condition(right):
        raise MeaningError("the two can never be equal")
    return Equal(left, right)


def make_order(sign: str, left: Node, right: Node) -> Node:
    """An order of two sides that have one."""
    return Order(sign, comparable(left), comparable(right))


def joined(kind: type[AllOf] | type[AnyOf], nodes: tuple[Node, ...]) -> Node:
    """A chain of conditions; a chain of one is that one."""
    return nodes[0] if len(nodes) == 1 else kind(tuple(map(condition, nodes)))


def between(node: Node, low: Node, high: Node) -> Node:
    """A range, ends included."""
    sides = [side.value for side in (low, high) if isinstance(side, Constant)]
    both = make_order(">=", node, low), make_order("<=", node, high)
    if len(sides) == 2 and order(cast(float, sides[0]), cast(float, sides[1])) > 0:
        raise MeaningError("BETWEEN has its lower end first")
    return AllOf(both)


def one_of(node: Node, texts: frozenset[str], *, negated: bool) -> Node:
    """A list, of a property."""
    if not isinstance(node, Property):
        raise MeaningError("IN takes a property")
    return OneOf(node, texts, negated)


def decimal(token: Token) -> Node:
    """A whole number of 64 bits."""
    digits = token.rstrip("lL")
    number = int(digits) if len(digits) <= DIGITS_MAX else INT64_MAX + 1
    if number > INT64_MAX:
        raise MeaningError(f"{token} does not fit 64 bits")
    return Constant(number if number <= INT32_MAX else Long(number))


def floating(token: Token) -> Node:
    """A floating number."""
    number = float(token)
    if math.isinf(number):
        raise MeaningError("a number is too big")
    return Constant(number)


RULES: Mapping[str, Callable[..., object]] = {
    "any_of": lambda *nodes: joined(AnyOf, nodes),
    "all_of": lambda *nodes: joined(AllOf, nodes),
    "equal": make_equal,
    "not_equal": lambda left, right: Not(make_equal(left, right)),
    "is_null": IsNull,
    "is_not_null": lambda node: Not(IsNull(node)),
    "greater": partial(make_order, ">"),
    "greater_equal": partial(make_order, ">="),
    "less": partial(make_order, "<"),
    "less_equal": partial(make_order, "<="),
    "between": between,
    "not_between": lambda node, low, high: AnyOf((make_order("<", node, low), make_order(">", node, high))),
    "one_of": partial(one_of, negated=False),
    "none_of": partial(one_of, negated=True),
    "matches": lambda node, word, text: Matches(Search(word.upper()), node, text_of(text), False),
    "not_matches": lambda node, word, text: Matches(Search(word.upper()), node, text_of(text), True),
    "texts": lambda *tokens: frozenset(map(text_of, tokens)),
    "negate": Negate,
    "not_": lambda node: Not(condition(node)),
    "string": lambda token: Constant(text_of(token)),
    "decimal": decimal,
    "floating": floating,
    "true": lambda: Constant(True),
    "false": lambda: Constant(False),
    "null": lambda: Constant(None),
    "property": lambda token: Property(str(token)),
}
"""What each rule of the grammar makes of what is below it."""


class Builder(Transformer[Token, Node]):
    """Makes nodes from the bottom up, while the text is parsed."""

    def __getattr__(self, rule: str) -> Callable[[list[object]], object]:
        try:
            make = RULES[rule]
        except KeyError:
            raise AttributeError(rule) from None
        return lambda children: make(*children)


PARSER = Lark(GRAMMAR, parser="lalr", transformer=Builder())


def parse(expression: str) -> Node:
    """The tree of an expression.

    Raises:
        SqlSyntaxError: says where and what.
    """
    if len(expression) > LENGTH_MAX:
        raise SqlSyntaxError(expression[:100], f"longer than {LENGTH_MAX} characters")
    try:
        node = condition(cast(Node, PARSER.parse(expression)))
    except UnexpectedInput as error:
        place = f"line {error.line}, column {error.column}" if error.line > 0 else "its end"
        raise SqlSyntaxError(expression, f"not understood at {place}") from None
    except MeaningError as error:
        raise SqlSyntaxError(expression, str(error)) from None
    level: list[Node] = [node]
    depth = 0
    while level:
        level, depth = [below for above in level for below in operands(above)], depth + 1
        if depth > DEPTH_MAX:
            raise SqlSyntaxError(expression, f"nested more than {DEPTH_MAX} deep")
    return node


class SqlFilter:
    """A compiled expression."""

    def __init__(self, expression: str) -> None:
        """Compile an expression.

        Raises:
            SqlSyntaxError: says where and what.
        """
        self.expression = expression
        self.evaluate = compiled(parse(expression))

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted: not where the answer is null or fails."""
        try:
            return self.evaluate(properties) is True
        except EvaluationError:
            return False


@lru_cache(maxsize=CACHED_FILTERS_MAX)
def sql_filter(expression: str) -> SqlFilter:
    """The filter of an expression, compiled once.

    Raises:
        SqlSyntaxError: says where and what.
    """
    return SqlFilter(expression)
