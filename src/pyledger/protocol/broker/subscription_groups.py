"""The consumer groups of one broker and what each may do.

Source: RocketMQ broker/.../SubscriptionGroupManager.java.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from pyledger.config.delivery import DeliveryConfig
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.remoting_codes import ResponseCode
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.model.topic import NO_VERSION, DataVersion
from pyledger.protocol.broker.name_rules import INTERNAL_GROUPS, group_problem, is_system_group
from pyledger.protocol.broker.rejection import Rejection

PREDEFINED = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    names.TRANSACTION_GROUP,
)
READ_FORBIDDEN_BIT = 2

log = logger("broker")


class BrokerGroups:
    """The table of groups; `groups`, `forbidden` and `version` are what `subscriptionGroup.json` holds."""

    def __init__(
        self,
        config: DeliveryConfig,
        groups: Mapping[str, SubscriptionGroup] | None = None,
        forbidden: Mapping[str, Mapping[str, int]] | None = None,
        version: DataVersion = NO_VERSION,
    ) -> None:
        self.configure(config)
        self._said_full = False
        self.groups = dict(groups or {})
        self.forbidden: dict[str, dict[str, int]] = {k: dict(v) for k, v in (forbidden or {}).items()}
        self.version = version
        for name in PREDEFINED:
            self.groups.setdefault(name, SubscriptionGroup(name))

    def configure(self, config: DeliveryConfig) -> None:
        """Go by other settings from now on."""
        self.auto_create, self.auto_create_max = config.auto_create_groups, config.auto_created_groups_max

    def adopt(
        self,
        groups: Mapping[str, SubscriptionGroup],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> None:
        """Become a copy of a master's table."""
        self.groups.clear()
        self.groups.update(groups)
        self.forbidden.clear()
        self.forbidden.update({group: dict(topics) for group, topics in forbidden.items()})
        self.version = version

    def known(self, name: str) -> SubscriptionGroup | None:
        """A client's group that is in the table."""
        return None if name in INTERNAL_GROUPS else self.groups.get(name)

    def usable(self, name: str) -> SubscriptionGroup | None:
        """A client's group by its name, as it is or as `keep` would make it; None: it cannot be used."""
        known = self.known(name)
        if known is not None or name in INTERNAL_GROUPS:
            return known
        if group_problem(name) is not None or not (self.auto_create or is_system_group(name)):
            return None
        if len(self.groups) >= self.auto_create_max:
            if not self._said_full:
                self._said_full = True
                event(
                    log,
                    logging.WARNING,
                    "no group is created by its use any more",
                    groups=len(self.groups),
                    auto_created_groups_max=self.auto_create_max,
                )
            return None
        return SubscriptionGroup(name)

    def keep(self, group: SubscriptionGroup, now_ms: int) -> SubscriptionGroup:
        """Add a usable group: the request that needed it has succeeded."""
        return self.groups.get(group.name) or self._put(group, now_ms)

    def update(self, group: SubscriptionGroup, now_ms: int) -> Rejection | None:
        """Create or change a group at an administrator's request.

        Attributes in a request are changes, and 5.3 has none to change; those of a newer broker stay.
        """
        if (problem := group_problem(group.name)) is not None:
            return Rejection(ResponseCode.INVALID_PARAMETER, problem)
        if group.name in INTERNAL_GROUPS:
            return internal_group(group.name)
        if group.attributes:
            changes = ", ".join(signed[1:] for signed in group.attributes)
            return Rejection(ResponseCode.SYSTEM_ERROR, f"unsupported key: {changes}")
        known = self.groups.get(group.name)
        if known is not None:
            group = replace(group, attributes=known.attributes)
        if known != group:
            self._put(group, now_ms)
        return None

    def delete(self, name: str, now_ms: int) -> Rejection | None:
        """Delete a group; an unknown one is no error."""
        if name in INTERNAL_GROUPS:
            return internal_group(name)
        if self.groups.pop(name, None) is not None or name in self.forbidden:
            self.forbidden.pop(name, None)
            self.version = self.version.next(now_ms)
        return None

    def read_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group must not read a topic."""
        return bool(self.forbidden.get(group, {}).get(topic, 0) >> READ_FORBIDDEN_BIT & 1)

    def describe(self) -> str:
        """All groups but the predefined, a line for each."""
        lines = [
            f"{name}: {'on' if group.consume else 'off'}, {group.retry_times_max} retries, "
            f"{group.retry_queue_count} retry queues"
            for name, group in sorted(self.groups.items())
            if name not in PREDEFINED
        ]
        return "\n".join([*lines, f"version {self.version.counter}"])

    def _put(self, group: SubscriptionGroup, now_ms: int) -> SubscriptionGroup:
        self.groups[group.name] = group
        self.version = self.version.next(now_ms)
        return group


def internal_group(name: str) -> Rejection:
    """Reject changes of a group whose offsets are the broker's own progress."""
    return Rejection(ResponseCode.INVALID_PARAMETER, f"the group[{name}] is the broker's own")
