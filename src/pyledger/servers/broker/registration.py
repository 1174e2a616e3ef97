"""Registers the broker with its name servers at start-up, on topic changes and every 30 s; unregisters it.

Source: RocketMQ broker/.../BrokerController.java, BrokerOuterAPI.java.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyledger.config.broker import BrokerConfig
from pyledger.errors import RemotingError
from pyledger.log_events import event, logger
from pyledger.model.digest import body_crc
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.model.topic import DataVersion, Permission, TopicConfig
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.name_servers import parse_addresses
from pyledger.protocol.broker.topics import BrokerTopics
from pyledger.wire.remoting.bodies.registration import RegisterBrokerBody
from pyledger.wire.remoting.bodies.topic_config import TopicConfigTable
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.namesrv import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

log = logger("broker")

LEAVE_TIMEOUT_MS = 3_000
READ_WRITE = Permission.READ | Permission.WRITE


class NameServerReports:
    """The registrations of one broker with all its name servers."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: BrokerTopics,
        client: RemotingClient,
        *,
        address: str,
        ha_address: str,
        now_ms: Callable[[], int],
        on_master: Callable[[str, str], None] = lambda _master, _ha: None,
    ) -> None:
        """Register nothing yet.

        Args:
            config: The broker's names and its name servers.
            topics: The broker's topics.
            client: Calls the name servers.
            address: `host:port` for clients.
            ha_address: `host:port` for slaves.
            now_ms: The wall clock.
            on_master: Called at a slave with `host:port` of its master and of the master's HA service; both
                are empty while no name server knows a master.
        """
        self._on_master = on_master
        self._config = config
        self._topics = topics
        self._client = client
        self._address = address
        self._ha_address = ha_address
        self._now_ms = now_ms
        self.permission = Permission(config.permission)
        """What clients may do with the broker; topics are registered with these permits at most."""
        self.name_servers = parse_addresses(config.name_servers)
        # Registered last, compared by identity: topics are replaced, never changed.
        self._reported: Mapping[str, TopicConfig] = {}
        self._failing: set[str] = set()

    async def report_all(self) -> int:
        """Register all topics with every name server; return how many succeeded."""
        return await self._report(dict(self._topics.topics))

    async def report_changes(self) -> int:
        """Register the topics that are new or changed since the last time with every name server."""
        changed = {
            name: topic
            for name, topic in self._topics.topics.items()
            if self._reported.get(name) is not topic
        }
        return await self._report(changed) if changed else 0

    async def leave(self) -> None:
        """Unregister from every name server."""
        header = UnRegisterBrokerRequestHeader(
            broker_name=self._config.name,
            broker_addr=self._address,
            cluster_name=self._config.cluster,
            broker_id=self._config.broker_id,
        )
        calls = [
            self._call(one, RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header), LEAVE_TIMEOUT_MS)
            for one in self.name_servers
        ]
        await asyncio.gather(*calls)

    async def _report(self, topics: Mapping[str, TopicConfig]) -> int:
        body = self._body(topics)
        self._reported = dict(self._topics.topics)
        header = RegisterBrokerRequestHeader(
            broker_name=self._config.name,
            broker_addr=self._address,
            cluster_name=self._config.cluster,
            ha_server_addr=self._ha_address,
            broker_id=self._config.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=body_crc(body),
        )
        calls = [
            self._call(
                one,
                RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body),
                self._config.register_timeout_ms,
            )
            for one in self.name_servers
        ]
        answers = await asyncio.gather(*calls)
        if self._config.broker_id != 0:
            self._learn_master([one for one in answers if one is not None])
        return sum(one is not None for one in answers)

    def _learn_master(self, answers: list[RemotingCommand]) -> None:
        """Pass on the master that a name server knows; do nothing when none has answered."""
        found = [one.header(RegisterBrokerResponseHeader) for one in answers]
        known = next((one for one in found if one.master_addr), None)
        if found:
            self._on_master(
                "" if known is None else known.master_addr or "",
                "" if known is None else known.ha_server_addr or "",
            )

    def _body(self, topics: Mapping[str, TopicConfig]) -> bytes:
        if self.permission & READ_WRITE != READ_WRITE:
            topics = {
                name: replace(topic, permission=topic.permission & self.permission)
                for name, topic in topics.items()
            }
        table = TopicConfigTable(
            topic_config_table=topics,
            data_version=self._topics.version,
            mapping_data_version=DataVersion(timestamp_ms=self._now_ms()),
        )
        return RegisterBrokerBody(topic_config_serialize_wrapper=table).encode()

    async def _call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand | None:
        """Send one request; return None when it failed. The next registration tries again."""
        try:
            answer = await self._client.call(address, command, timeout_ms)
        except RemotingError as problem:
            self._failed(address, str(problem))
            return None
        if answer.code != ResponseCode.SUCCESS:
            self._failed(address, f"code {answer.code}: {answer.remark}")
            return None
        if address in self._failing:
            self._failing.discard(address)
            event(log, logging.INFO, "registered with name server after retry", address=address)
        return answer

    def _failed(self, address: str, problem: str) -> None:
        """Log the first of several failures in a row."""
        if address not in self._failing:
            self._failing.add(address)
            event(log, logging.WARNING, "not registered with name server", address=address, problem=problem)
