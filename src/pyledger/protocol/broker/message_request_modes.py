"""Message request modes of groups: pull or pop.

Source: RocketMQ broker/.../QueryAssignmentProcessor.java, MessageRequestModeManager.java.
"""

from collections.abc import Mapping
from enum import StrEnum

from pyledger.model import names
from pyledger.model.lazy_dataclass import lazy_dataclass
from pyledger.model.remoting_codes import ResponseCode
from pyledger.protocol.broker.rejection import Rejection


class RequestMode(StrEnum):
    """Message request mode of a group."""

    PULL = "PULL"
    POP = "POP"


@lazy_dataclass()
class GroupMode:
    """How a group requests the messages of a topic."""

    mode: RequestMode = RequestMode.PULL
    share_count: int = 0
    """Of popping clients: how many others take from each one's queues; 0: all from all."""


PULLING = GroupMode()


class MessageRequestModeTable:
    """The modes that an operator has set; `modes` is what `messageRequestMode.json` holds."""

    def __init__(self, modes: Mapping[tuple[str, str], GroupMode] | None = None) -> None:
        self.modes = dict(modes or {})
        """By topic and group."""
        self.change_count = 0

    def find(self, topic: str, group: str) -> GroupMode:
        """Return the mode of a group; the default is pull."""
        return self.modes.get((topic, group), PULLING)

    def adopt(self, modes: Mapping[tuple[str, str], GroupMode]) -> None:
        """Become a copy of a master's table."""
        self.change_count += self.modes != dict(modes)
        self.modes = dict(modes)

    def update(
        self, topic: str, group: str, mode: GroupMode, *, topic_known: bool, group_known: bool
    ) -> Rejection | None:
        """Set the mode of a group at an operator's request."""
        if topic.startswith(names.RETRY_PREFIX):
            return Rejection(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if not topic_known:
            problem = f"topic[{topic}] not exist, apply first please!"
            return Rejection(ResponseCode.TOPIC_NOT_EXIST, problem)
        if not group_known:
            problem = f"subscription group [{group}] does not exist"
            return Rejection(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)
        self.modes[topic, group] = mode
        self.change_count += 1
        return None
