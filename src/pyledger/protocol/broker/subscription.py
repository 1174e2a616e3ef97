"""What a group wants of a topic: tags or an SQL92 expression.

Source: RocketMQ common/.../FilterAPI.java, SubscriptionData.java, ExpressionType.java.
"""

from pyledger.errors import SubscriptionSyntaxError
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.tags import ALL_TAGS, java_hash, parse_tags

TAG = "TAG"
SQL92 = "SQL92"


@lazy_dataclass()
class Subscription:
    """One topic of a group's subscriptions, as its members state it."""

    topic: str
    expression: str = ALL_TAGS
    tags: tuple[str, ...] = ()
    codes: frozenset[int] = frozenset()
    """Hash of each tag, signed 32 bits."""
    version: int = 0
    """Wall-clock ms of the client that stated it; a higher one replaces a lower one."""
    expression_type: str = TAG

    @property
    def by_tag(self) -> bool:
        """Whether tags alone decide."""
        return is_tag_type(self.expression_type)

    def wants_code(self, code: int) -> bool:
        """Whether a queue unit with a tags code may hold a wanted message: other tags can share a code.

        An SQL92 subscription is decided by the properties, not here.
        """
        if not self.by_tag or self.expression == ALL_TAGS:
            return True
        low = code & 0xFFFFFFFF
        return (low - (1 << 32) if low >> 31 else low) in self.codes


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression lists tags; so does one without a type."""
    return not expression_type or expression_type == TAG


def parse_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, version: int = 0
) -> Subscription:
    """Parse a subscription as a pull or a consumer states it.

    Args:
        topic: The topic.
        expression: `*` or nothing for all; `TagA || TagB`; or an SQL92 expression.
        expression_type: `TAG`, nothing, or `SQL92`.
        version: When it was stated, ms.

    Raises:
        SubscriptionSyntaxError: tags of separators alone, or an expression without text.
    """
    if not is_tag_type(expression_type):
        if not expression:
            raise SubscriptionSyntaxError(expression or "", "the expression is empty")
        return Subscription(topic, expression, (), frozenset(), version, str(expression_type))
    tags = parse_tags(expression)
    if tags is None:
        return Subscription(topic, ALL_TAGS, version=version)
    return Subscription(topic, str(expression), tags, frozenset(map(java_hash, tags)), version)
