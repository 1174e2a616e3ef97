"""Attributes of a topic: which there are, what they may be, and how a change is written: `+name=value,-name`.

Source: RocketMQ common/.../TopicAttributes.java, AttributeUtil.java, AttributeParser.java.
"""

import re
from collections.abc import Mapping

from pyledger.errors import TopicAttributeError
from pyledger.model.lazy_dataclass import lazy_dataclass

INT64_MAX = (1 << 63) - 1


@lazy_dataclass()
class Attribute:
    """One attribute: the words that it may be, or any whole number."""

    words: frozenset[str] | None
    changeable: bool

    def allows(self, value: str) -> bool:
        """Whether it may have a value."""
        if self.words is not None:
            return value in self.words
        return re.fullmatch(r"-?\d{1,19}", value) is not None and abs(int(value)) <= INT64_MAX


ATTRIBUTES = {
    "queue.type": Attribute(frozenset({"SimpleCQ", "BatchCQ"}), changeable=False),
    "cleanup.policy": Attribute(frozenset({"DELETE", "COMPACTION"}), changeable=False),
    "message.type": Attribute(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}), changeable=True
    ),
    "reserve.time": Attribute(None, changeable=True),
}


def parse_change(text: str) -> dict[str, str]:
    """Parse a change as a request has it; keys keep their `+` or `-`.

    Raises:
        TopicAttributeError: an item has another form, or an attribute is named twice.
    """
    change: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, separator, value = item.partition("=")
        sign = "+" if separator else "-"
        if not name.startswith(sign) or len(name) < 2:
            raise TopicAttributeError(item, "write +name=value to set one, -name to remove one")
        if any(name[1:] == other[1:] for other in change):
            raise TopicAttributeError(name[1:], "it is named twice")
        change[name] = value
    return change


def alter_attributes(
    current: Mapping[str, str], change: Mapping[str, str], *, create: bool
) -> dict[str, str]:
    """The attributes after a change.

    Args:
        current: What the topic has.
        change: Names with `+` or `-`, and values.
        create: The topic is new: attributes can only be set.

    Raises:
        TopicAttributeError: an attribute is unknown, cannot be changed, or its value is not allowed.
    """
    after = dict(current)
    for signed, value in change.items():
        sign, name = signed[:1], signed[1:]
        attribute = ATTRIBUTES.get(name)
        if attribute is None:
            raise TopicAttributeError(name, "unknown; there are " + ", ".join(ATTRIBUTES))
        if not create and not attribute.changeable:
            raise TopicAttributeError(name, "it is fixed when the topic is made")
        if sign == "+":
            if not attribute.allows(value):
                allowed = ", ".join(sorted(attribute.words)) if attribute.words else "a whole number"
                raise TopicAttributeError(name, f"{value!r} is not allowed, but {allowed}")
            after[name] = value
        elif create or name not in after:
            raise TopicAttributeError(name, "there is nothing to remove")
        else:
            del after[name]
    return after
