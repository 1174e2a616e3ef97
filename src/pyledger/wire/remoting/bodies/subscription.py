"""What a consumer wants of a topic, as it travels in heartbeats.

Source: RocketMQ remoting/.../protocol/heartbeat/SubscriptionData.java, filter/FilterAPI.java,
body/CheckClientRequestBody.java.
"""

from typing import Self

from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.tags import java_hash
from pyledger.protocol.broker.subscription import TAG, parse_subscription
from pyledger.protocol.broker.subscription import Subscription as Rule
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.headers.codec import Int, Long


@lazy_dataclass(kw_only=True)
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
            expression_type: None and `TAG` for tags, otherwise the expression is not parsed.

        Raises:
            SubscriptionSyntaxError: nothing is between the bars, or an SQL92 expression is empty.
        """
        found = parse_subscription(topic, expression, expression_type, sub_version)
        codes = tuple(dict.fromkeys(map(java_hash, found.tags)))
        return cls(
            topic=topic,
            sub_string=found.expression,
            sub_version=sub_version,
            tags_set=found.tags,
            code_set=codes,
            expression_type=found.expression_type,
        )

    def rule(self) -> Rule:
        """What the broker's rules know of it."""
        return Rule(
            self.topic or "",
            self.sub_string or "",
            self.tags_set,
            frozenset(self.code_set),
            self.sub_version,
            self.expression_type or TAG,
        )


@lazy_dataclass(kw_only=True)
class CheckClientConfig(Body):
    """46: is this subscription one that the broker can filter by? Upstream's `CheckClientRequestBody`."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: Subscription | None = None
