"""`TopicConfig`, its permissions, and `DataVersion`, the version of a topic table.

Source: RocketMQ common/.../TopicConfig.java, PermName.java, DataVersion.java.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, Self


class Permission(IntFlag):
    """What clients may do with a topic."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of a stored table. Two versions are equal only if all three parts are."""

    counter: int = 0
    state_version: int = 0
    timestamp_ms: int = 0

    @classmethod
    def parse(cls, document: Mapping[str, Any] | None) -> Self:
        """Create it from the object in a file; None, as in files of 4.9, gives zeros."""
        found = document or {}
        return cls(*(int(found.get(name, 0)) for name in ("counter", "stateVersion", "timestamp")))

    def next(self, now_ms: int) -> "DataVersion":
        """Return the next version."""
        return replace(self, counter=self.counter + 1, timestamp_ms=now_ms)

    def of_new_master(self, now_ms: int) -> "DataVersion":
        """Return the first version of a broker promoted to master: later than any of the old master's."""
        return replace(
            self, counter=self.counter + 1, state_version=self.state_version + 1, timestamp_ms=now_ms
        )

    def document(self) -> dict[str, Any]:
        """Return the object for a file."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp_ms}


NO_VERSION = DataVersion()


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Configuration of one topic at its broker."""

    name: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    permission: Permission = Permission.READ | Permission.WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Such as `queue.type` (`SimpleCQ` or `BatchCQ`) and `cleanup.policy`."""

    @classmethod
    def parse(cls, name: str, document: Mapping[str, Any]) -> Self:
        """Create it from the object in a file."""
        return cls(
            name=str(document.get("topicName", name)),
            read_queue_count=int(document.get("readQueueNums", 16)),
            write_queue_count=int(document.get("writeQueueNums", 16)),
            permission=Permission(int(document.get("perm", 6))),
            filter_type=str(document.get("topicFilterType", "SINGLE_TAG")),
            sys_flag=int(document.get("topicSysFlag", 0)),
            order=truth(document.get("order", False)),
            attributes={str(key): str(value) for key, value in document.get("attributes", {}).items()},
        )

    def document(self) -> dict[str, Any]:
        """Return the object for a file."""
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": int(self.permission),
            "readQueueNums": self.read_queue_count,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queue_count,
        }


def truth(value: object) -> bool:
    """Return a boolean that may be stored as text."""
    return value.lower() == "true" if isinstance(value, str) else bool(value)
