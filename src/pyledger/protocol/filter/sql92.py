"""The language of SQL92 subscriptions: text to a filter.

Keywords in any case. Levels, from the loosest: `OR`; `AND`; `=`, `<>`, `IS [NOT] NULL`; `<`, `<=`, `>`, `>=`,
`[NOT] BETWEEN … AND …`, `[NOT] IN ('a', …)`, `[NOT] CONTAINS | STARTSWITH | ENDSWITH 'a'`; `+`, `-`, `NOT`.
`NOT` binds tightest, as upstream has it: `NOT a = 1` is `(NOT a) = 1`.

Differs: text after a whole expression is an error (upstream ignores it), `0.0` is a number (upstream
rejects
it), and length and depth are limited: parsing takes time in proportion to the length, on the thread that
serves all connections, and what was compiled takes some hundred bytes a character.

Source: RocketMQ filter/.../SelectorParser.jj, SqlFilter.java, ConstantExpression.java.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn, cast

from pyledger.errors import SqlSyntaxError
from pyledger.protocol.filter.expression import (
    AllOf,
    AnyOf,
    Constant,
    Equal,
    IsNull,
    IsTrue,
    Matches,
    Negate,
    Node,
    Not,
    OneOf,
    Order,
    Property,
    Search,
    compiled,
    is_condition,
    operands,
)
from pyledger.protocol.filter.values import INT32_MAX, INT64_MAX, EvaluationError, Long, order

LENGTH_MAX = 16_384
DEPTH_MAX = 100
DIGITS_MAX = 19
CACHED_CHARACTERS_MAX = 131_072
"""Total length of the expressions whose filters are cached."""

TOKEN = re.compile(
    r"""(?:[ \t\n\r\f]+|--[^\n\r]*|/\*.*?\*/)*
    (?:(?P<string>'(?:[^']|'')*')
    |(?P<floating>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<decimal>[0-9]+[lL]?)
    |(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<sign><>|>=|<=|[=<>+\-(),])
    |(?P<end>\Z))""",
    re.DOTALL | re.VERBOSE,
)
KEYWORDS = frozenset(
    ("OR", "AND", "NOT", "IS", "IN", "NULL", "TRUE", "FALSE", "BETWEEN", *(one.value for one in Search))
)
CONSTANTS: Mapping[str, Node] = {"TRUE": Constant(True), "FALSE": Constant(False), "NULL": Constant(None)}
ORDERS = frozenset({">", ">=", "<", "<="})
SEARCHES = frozenset(one.value for one in Search)


class MeaningError(ValueError):
    """An expression that the grammar allows and upstream does not."""


def text_of(token: str) -> str:
    """Return the text between the quotes."""
    return token[1:-1].replace("''", "'")


def condition(node: Node) -> Node:
    """Make a node a condition."""
    if isinstance(node, Property):
        return IsTrue(node)
    if not is_condition(node):
        raise MeaningError("a condition is expected, not a value")
    return node


def comparable(node: Node) -> Node:
    """Check one side of an order comparison."""
    number = isinstance(node, Constant) and not isinstance(node.value, str | bool | None)
    if not number and (isinstance(node, Constant) or is_condition(node)):
        raise MeaningError("only numbers and properties have an order")
    return node


def make_equal(left: Node, right: Node) -> Node:
    """Make an equality of two sides that can be equal."""
    constants = [node for node in (left, right) if isinstance(node, Constant)]
    if any(node.value is None for node in constants):
        raise MeaningError("write IS NULL")
    if len(constants) == 2 and isinstance(constants[0].value, bool) and not is_condition(right):
        raise MeaningError("the two can never be equal")
    return Equal(left, right)


def make_order(sign: str, left: Node, right: Node) -> Node:
    """Make an order comparison of two sides that have an order."""
    return Order(sign, comparable(left), comparable(right))


def joined(kind: type[AllOf] | type[AnyOf], nodes: list[Node]) -> Node:
    """Make a chain of conditions; a single condition stays itself."""
    return nodes[0] if len(nodes) == 1 else kind(tuple(map(condition, nodes)))


def between(node: Node, low: Node, high: Node) -> Node:
    """Make a range, ends included."""
    sides = [side.value for side in (low, high) if isinstance(side, Constant)]
    both = make_order(">=", node, low), make_order("<=", node, high)
    if len(sides) == 2 and order(cast(float, sides[0]), cast(float, sides[1])) > 0:
        raise MeaningError("BETWEEN has its lower end first")
    return AllOf(both)


def not_between(node: Node, low: Node, high: Node) -> Node:
    """Make the complement of a range."""
    return AnyOf((make_order("<", node, low), make_order(">", node, high)))


def one_of(node: Node, texts: frozenset[str], *, negated: bool) -> Node:
    """Make a list test of a property."""
    if not isinstance(node, Property):
        raise MeaningError("IN takes a property")
    return OneOf(node, texts, negated)


def decimal(token: str) -> Node:
    """Parse a whole number of 64 bits."""
    digits = token.rstrip("lL")
    if token[0] == "0" and token != "0":
        raise MeaningError(f"a whole number begins with 0: {token[:DIGITS_MAX]}")
    number = int(digits) if len(digits) <= DIGITS_MAX else INT64_MAX + 1
    if number > INT64_MAX:
        raise MeaningError(f"{token[: 2 * DIGITS_MAX]} does not fit 64 bits")
    return Constant(number if number <= INT32_MAX else Long(number))


def floating(token: str) -> Node:
    """Parse a floating-point number."""
    number = float(token)
    if math.isinf(number):
        raise MeaningError("a number is too big")
    return Constant(number)


class Token(NamedTuple):
    """One word, number, text or sign."""

    kind: str
    """`keyword`, or the name of a group of `TOKEN`."""
    text: str
    """A keyword has capitals."""
    at: int


class ExpressionParser:
    """Recursive-descent parser of one expression, with a method for each level."""

    def __init__(self, expression: str) -> None:
        self.expression: Final = expression
        self.at = self.depth = 0
        self.next = self.token()

    def token(self) -> Token:
        """Return the next token without consuming it."""
        found = TOKEN.match(self.expression, self.at)
        if found is None or found.lastgroup is None:
            self.fail(self.at)
        self.at = found.end()
        kind, text = found.lastgroup, found[found.lastgroup]
        if kind == "name" and (word := text.upper()) in KEYWORDS:
            kind, text = "keyword", word
        return Token(kind, text, found.start(kind if kind != "keyword" else "name"))

    def take(self) -> Token:
        """Consume and return the next token."""
        taken, self.next = self.next, self.token()
        return taken

    def took(self, *texts: str) -> bool:
        """Consume these signs and keywords if the first comes next; then the others must follow."""
        for number, text in enumerate(texts):
            if self.next.text != text or self.next.kind not in ("keyword", "sign"):
                if number:
                    self.fail(self.next.at)
                return False
            self.take()
        return True

    def fail(self, at: int) -> NoReturn:
        """Raise the error for an unexpected token."""
        if at >= len(self.expression):
            raise SqlSyntaxError(self.expression, "not understood at its end")
        line = self.expression.count("\n", 0, at) + 1
        column = at - self.expression.rfind("\n", 0, at)
        raise SqlSyntaxError(self.expression, f"not understood at line {line}, column {column}")

    def whole(self) -> Node:
        """The whole expression."""
        node = condition(self.any_of())
        if self.next.kind != "end":
            self.fail(self.next.at)
        return node

    def any_of(self) -> Node:
        """Conditions with `OR`."""
        nodes = [self.all_of()]
        while self.took("OR"):
            nodes.append(self.all_of())
        return joined(AnyOf, nodes)

    def all_of(self) -> Node:
        """Conditions with `AND`."""
        nodes = [self.equality()]
        while self.took("AND"):
            nodes.append(self.equality())
        return joined(AllOf, nodes)

    def equality(self) -> Node:
        """`=`, `<>`, `IS [NOT] NULL`."""
        node = self.comparison()
        while True:
            if self.took("="):
                node = make_equal(node, self.comparison())
            elif self.took("<>"):
                node = Not(make_equal(node, self.comparison()))
            elif self.took("IS"):
                negated = self.took("NOT")
                if not self.took("NULL"):
                    self.fail(self.next.at)
                node = Not(IsNull(node)) if negated else IsNull(node)
            else:
                return node

    def comparison(self) -> Node:
        """Orders, ranges, lists and searches."""
        node = self.unary()
        while True:
            if self.next.kind == "sign" and self.next.text in ORDERS:
                node = make_order(self.take().text, node, self.unary())
                continue
            negated = self.took("NOT")
            if self.took("BETWEEN"):
                low = self.unary()
                if not self.took("AND"):
                    self.fail(self.next.at)
                node = (not_between if negated else between)(node, low, self.unary())
            elif self.took("IN", "("):
                node = one_of(node, self.texts(), negated=negated)
            elif self.next.kind == "keyword" and self.next.text in SEARCHES:
                search = Search(self.take().text)
                node = Matches(search, node, self.string(), negated)
            elif negated:
                self.fail(self.next.at)
            else:
                return node

    def texts(self) -> frozenset[str]:
        """The rest of a list, after its opening bracket."""
        found = [self.string()]
        while self.took(","):
            found.append(self.string())
        if not self.took(")"):
            self.fail(self.next.at)
        return frozenset(found)

    def string(self) -> str:
        """A text."""
        if self.next.kind != "string":
            self.fail(self.next.at)
        return text_of(self.take().text)

    def unary(self) -> Node:
        """A value or a condition, with its sign or `NOT`."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise MeaningError(TOO_DEEP)
        if self.took("+"):
            node = self.unary()
        elif self.took("-"):
            node = Negate(self.unary())
        elif self.took("NOT"):
            node = Not(condition(self.unary()))
        elif self.took("("):
            node = self.any_of()
            if not self.took(")"):
                self.fail(self.next.at)
        else:
            node = self.value()
        self.depth -= 1
        return node

    def value(self) -> Node:
        """A literal or a property."""
        kind, text, at = self.take()
        if kind == "keyword" and text in CONSTANTS:
            return CONSTANTS[text]
        make = VALUES.get(kind)
        if make is None:
            self.fail(at)
        return make(text)


TOO_DEEP = f"nested more than {DEPTH_MAX} deep"
VALUES: Mapping[str, Callable[[str], Node]] = {
    "string": lambda token: Constant(text_of(token)),
    "decimal": decimal,
    "floating": floating,
    "name": Property,
}


def parse(expression: str) -> tuple[Node, int]:
    """Parse an expression into a tree, and count its nodes.

    Raises:
        SqlSyntaxError: The expression is invalid; the error contains the position and the cause.
    """
    if len(expression) > LENGTH_MAX:
        raise SqlSyntaxError(expression, f"longer than {LENGTH_MAX} characters")
    try:
        node = ExpressionParser(expression).whole()
    except MeaningError as error:
        raise SqlSyntaxError(expression, str(error)) from None
    level: list[Node] = [node]
    depth = count = 0
    while level:
        count += len(level)
        level, depth = [below for above in level for below in operands(above)], depth + 1
        if depth > DEPTH_MAX:
            raise SqlSyntaxError(expression, TOO_DEEP)
    return node, count


class SqlFilter:
    """A compiled expression."""

    def __init__(self, expression: str) -> None:
        """Compile an expression.

        Raises:
            SqlSyntaxError: The expression is invalid; the error contains the position and the cause.
        """
        self.expression = expression
        node, self.node_count = parse(expression)
        """Largest number of steps for one message."""
        self.evaluate = compiled(node)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties matches: not if the result is null or an error."""
        try:
            return self.evaluate(properties) is True
        except EvaluationError:
            return False


class FilterCache:
    """The filters used last, up to a total length of their expressions."""

    def __init__(self, characters_max: int = CACHED_CHARACTERS_MAX) -> None:
        self._filters: OrderedDict[str, SqlFilter] = OrderedDict()
        self._characters_max = characters_max
        self.characters = 0

    def find(self, expression: str) -> SqlFilter:
        """Return the filter of an expression, compiled if it is not cached.

        Raises:
            SqlSyntaxError: The expression is invalid; the error contains the position and the cause.
        """
        found = self._filters.get(expression)
        if found is not None:
            self._filters.move_to_end(expression)
            return found
        found = self._filters[expression] = SqlFilter(expression)
        self.characters += len(expression)
        while self.characters > self._characters_max:
            self.characters -= len(self._filters.popitem(last=False)[0])
        return found


FILTERS = FilterCache()


def sql_filter(expression: str) -> SqlFilter:
    """Return the filter of an expression, compiled once while it is in use.

    Raises:
        SqlSyntaxError: The expression is invalid; the error contains the position and the cause.
    """
    return FILTERS.find(expression)
