"""Producers: groups and their connections, for transaction checks and for replies.

Source: RocketMQ broker/.../ProducerManager.java.
"""

from collections.abc import Callable

from pyledger.config.delivery import DeliveryConfig
from pyledger.protocol.broker.client_channel import Channel, Client

CHANNEL_TRIES = 3


class ProducerTable:
    """All producer groups with a member at this broker."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.timeout_ms = config.channel_timeout_ms
        self.groups: dict[str, dict[Channel, Client]] = {}
        self.channels: dict[Channel, dict[str, None]] = {}
        self.by_client_id: dict[str, Channel] = {}
        self.client_ids: dict[Channel, str] = {}
        """What each connection has last called itself."""
        self._next_channel = 0

    def heartbeat(self, group: str, member: Client) -> None:
        """Apply a client's heartbeat for one of its groups."""
        self.groups.setdefault(group, {})[member.channel] = member
        self.channels.setdefault(member.channel, {})[group] = None
        if self.client_ids.get(member.channel) != member.client_id:
            self._forget_id(member.channel)
            self.client_ids[member.channel] = member.client_id
        self.by_client_id[member.client_id] = member.channel

    def unregister(self, group: str, channel: Channel) -> None:
        """Take a client out of a group."""
        members = self.groups.get(group, {})
        if members.pop(channel, None) is None:
            return
        if not members:
            del self.groups[group]
        groups = self.channels[channel]
        del groups[group]
        if not groups:
            del self.channels[channel]
            self._forget_id(channel)

    def _forget_id(self, channel: Channel) -> None:
        client_id = self.client_ids.pop(channel, None)
        if client_id is not None and self.by_client_id.get(client_id) == channel:
            del self.by_client_id[client_id]

    def close_channel(self, channel: Channel) -> None:
        """Take a client out of all its groups: its connection is gone."""
        for group in list(self.channels.get(channel, ())):
            self.unregister(group, channel)

    def expire(self, now_ms: int) -> list[Channel]:
        """Every 10 s: remove silent clients; returns the connections to close."""
        silent = [
            (group, channel)
            for group, members in self.groups.items()
            for channel, member in members.items()
            if member.expired(now_ms, self.timeout_ms)
        ]
        for group, channel in silent:
            self.unregister(group, channel)
        return list(dict.fromkeys(channel for _, channel in silent))

    def members(self, group: str) -> list[Client]:
        """The members of a group, in the order they came."""
        return list(self.groups.get(group, {}).values())

    def channel_of_group(
        self, group: str, usable: Callable[[Channel], bool], may_know: Callable[[Channel], bool]
    ) -> Channel | None:
        """Return a connection of a group, round robin; None if three in a row are not usable.

        Args:
            group: Which one.
            usable: Whether a connection can take a request now.
            may_know: Whether a connection may be chosen at all; the others do not count.
        """
        channels = [one for one in self.groups.get(group, {}) if may_know(one)]
        if not channels:
            return None
        self._next_channel += 1
        for step in range(min(CHANNEL_TRIES, len(channels))):
            channel = channels[(self._next_channel + step) % len(channels)]
            if usable(channel):
                return channel
        return None

    def channel_of_client(self, client_id: str) -> Channel | None:
        """The latest connection of a client, for a reply to it."""
        return self.by_client_id.get(client_id)

    def describe(self) -> str:
        """All groups, a line for each."""
        lines = [
            f"{group}: " + ", ".join(f"{member.client_id}@{member.channel}" for member in members.values())
            for group, members in sorted(self.groups.items())
        ]
        return "\n".join(lines) or "no groups"
