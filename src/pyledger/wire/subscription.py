"""What a consumer wants of a topic, as it travels in heartbeats.

Source: RocketMQ remoting/.../protocol/heartbeat/SubscriptionData.java, filter/FilterAPI.java,
body/CheckClientRequestBody.java.
"""

from dataclasses import dataclass
from typing import Self

from pyledger.errors import IllegalMessageError
from pyledger.message import tags_code
from pyledger.wire.body import Body
from pyledger.wire.headers.codec import Int, Long

ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(Body):
    """One topic and what of it; upstream's `SubscriptionData`."""

    topic: str | None = None
    sub_string: str | None = None
    """The expression: tags joined by `||`, `*` for all, or SQL92."""
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int, ...] = ()
    """Hash codes of the tags."""
    sub_version: Long = 0
    """Time of the subscription in milliseconds. A broker keeps the later of two."""
    expression_type: str | None = TAG
    class_filter_mode: bool = False

    @classmethod
    def of(
        cls, topic: str, expression: str | None, sub_version: int, expression_type: str | None = TAG
    ) -> Self:
        """Build what an expression means.

        Args:
            topic: Name of the topic.
            expression: None, empty and `*` are all.
            sub_version: Milliseconds since 1970.
            expression_type: None and `TAG` for tags, otherwise the expression is not looked at.

        Raises:
            IllegalMessageError: nothing is between the bars.
        """
        if expression_type not in {None, "", TAG}:
            return cls(
                topic=topic, sub_string=expression, sub_version=sub_version, expression_type=expression_type
            )
        if not expression or expression == ALL:
            return cls(topic=topic, sub_string=ALL, sub_version=sub_version)
        parts = expression.split("||")
        if not any(parts):
            raise IllegalMessageError(f"the subscription {expression!r} of {topic} names no tag")
        tags = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
        codes = tuple(dict.fromkeys(map(tags_code, tags)))
        return cls(topic=topic, sub_string=expression, sub_version=sub_version, tags_set=tags, code_set=codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckClientConfig(Body):
    """46: is this subscription one that the broker can filter by? Upstream's `CheckClientRequestBody`."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: Subscription | None = None
