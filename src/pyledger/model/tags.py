"""Tags: the expressions that select messages by tag, and Java's hash of a text."""

from pyledger.errors import SubscriptionSyntaxError

ALL_TAGS = "*"
JAVA_BLANKS = "".join(map(chr, range(33)))
"""What Java's `String.trim` removes: every character up to the space, and no other."""


def parse_tags(expression: str | None) -> tuple[str, ...] | None:
    """Return the distinct tags of an expression such as `TagA || TagB`; None (all) for None, empty or `*`.

    `*` beside other parts is a tag like any other. Blank parts are ignored. If no tag is left, the result is
    empty: no message matches.

    Raises:
        SubscriptionSyntaxError: The expression has only separators, or is not a string.

    Source: RocketMQ remoting/.../protocol/filter/FilterAPI.java, buildSubscriptionData.
    """
    given: object = expression
    if not isinstance(given, str | None):
        kind = type(given).__name__
        raise SubscriptionSyntaxError(repr(given), f"it is of type {kind}; give text such as 'A || B'")
    if not expression or expression == ALL_TAGS:
        return None
    parts = expression.split("||")
    if not any(parts):
        raise SubscriptionSyntaxError(expression, "it has separators and no tag")
    return tuple(dict.fromkeys(tag for part in parts if (tag := part.strip(JAVA_BLANKS))))


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: the tags code of a queue unit is that of the message's tags.

    Signed 32 bits, over UTF-16 units; 0 for an empty text.
    """
    code = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code
