"""A name server as a whole: its port, its clock and its timers around the route table.

Source: RocketMQ namesrv/.../NamesrvController.java, BrokerHousekeepingService.java.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import RemotingError
from pyledger.log_events import event, logger
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.route import MinBrokerIdChange
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.server import RemotingServer
from pyledger.protocol.namesrv.route_table import RouteTable
from pyledger.servers.namesrv.kv_config import DEFAULT_PATH, KVConfig
from pyledger.servers.namesrv.processor import RequestProcessor
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader

log = logger("namesrv")

FIRST_SCAN_MS = 5_000
NOTICE_TIMEOUT_MS = 300
LOGGED_MAX = 16
"""Brokers removed together that each get a line in the log."""
REMOVED_AT_ONCE = 1_000


class NameServer:
    """Serves one route table from `start` to `close`."""

    def __init__(
        self,
        config: NamesrvConfig | None = None,
        *,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        """Create a name server, not started.

        Args:
            config: The address to listen on, and the rules.
            net: Limits of connections.
            tls: Certificates; without them, the server has no TLS.
        """
        config = config or NamesrvConfig()
        self.config = replace(config, kv_config_path=config.kv_config_path or str(Path.home() / DEFAULT_PATH))
        self.routes = RouteTable(self.config)
        self._net = net or NetConfig()
        self._tls = tls
        self._server: RemotingServer | None = None
        self._client: RemotingClient | None = None
        self._scan: asyncio.TimerHandle | None = None
        self._removal: asyncio.Handle | None = None
        self._notices: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Listening address, `host:port`."""
        port = self.config.port if self._server is None else self._server.port
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{host}:{port}"

    async def start(self) -> None:
        """Read the KV config and listen.

        Raises:
            ConfigError: The KV config or a certificate cannot be read.
            ListenError: The address is not available.
        """
        loop = asyncio.get_running_loop()
        processor = RequestProcessor(
            self.routes,
            KVConfig(Path(self.config.kv_config_path)),
            self._net,
            now_ms=self._now_ms,
            notify=self._notify,
            removals_due=self._removals_due,
        )
        server = RemotingServer(
            processor.handlers(),
            host=self.config.host,
            port=self.config.port,
            config=self._net,
            tls=self._tls,
            on_close=self._connection_closed,
        )
        await server.start()
        self._server = server
        self._client = RemotingClient(config=self._net, tls=self._tls)
        self._scan = loop.call_later(FIRST_SCAN_MS / 1000, self._expire)
        event(log, logging.INFO, "name server ready", address=self.address)

    async def close(self, grace_ms: int = 3_000) -> None:
        """Stop listening and discard all routes. Idempotent.

        Args:
            grace_ms: How long to wait for requests in flight.
        """
        server, client = self._server, self._client
        self._server = self._client = None
        for handle in (self._scan, self._removal):
            if handle is not None:
                handle.cancel()
        for task in tuple(self._notices):
            task.cancel()
        await asyncio.gather(*self._notices, return_exceptions=True)
        if client is not None:
            await client.close()
        if server is not None:
            await server.close(grace_ms)
            event(log, logging.INFO, "name server closed", port=server.port)

    # --- the table's clock

    def _now_ms(self) -> int:
        """Return the milliseconds of a monotonic clock."""
        return int(asyncio.get_running_loop().time() * 1000)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._scan = loop.call_later(self.routes.config.scan_interval_ms / 1000, self._expire)
        expired = self.routes.expire(self._now_ms())
        for broker in expired[:LOGGED_MAX]:
            where = {"cluster": broker.cluster, "address": broker.broker_addr}
            event(log, logging.WARNING, "broker expired", **where, silent_ms=broker.silent_ms)
        if len(expired) > LOGGED_MAX:
            event(log, logging.WARNING, "more brokers expired", count=len(expired) - LOGGED_MAX)
        for broker in expired:
            if isinstance(broker.channel, Connection):
                broker.channel.close()
        if self.routes.is_removing:
            self._removals_due()

    def _connection_closed(self, connection: Connection) -> None:
        if self._server is None or not (addresses := self.routes.close_channel(connection)):
            return
        for address in addresses[:LOGGED_MAX]:
            event(log, logging.WARNING, "broker connection closed", address=address)
        if len(addresses) > LOGGED_MAX:
            event(log, logging.WARNING, "more brokers on it", count=len(addresses) - LOGGED_MAX)
        self._removals_due()

    def _removals_due(self) -> None:
        """Process queued removals in the next iteration of the loop, a limited number at a time."""
        if self._removal is None:
            self._removal = asyncio.get_running_loop().call_soon(self._remove)

    def _remove(self) -> None:
        self._removal = None
        self._notify(self.routes.remove_queued(REMOVED_AT_ONCE))
        if self.routes.is_removing:
            self._removals_due()

    # --- notices

    def _notify(self, changes: Iterable[MinBrokerIdChange]) -> None:
        for change in changes:
            header = NotifyMinBrokerIdChangeRequestHeader(
                min_broker_id=change.min_broker_id,
                min_broker_addr=change.min_broker_addr,
                offline_broker_addr=change.offline_broker_addr,
                ha_broker_addr=change.ha_broker_addr,
            )
            for target in change.targets:
                task = asyncio.get_running_loop().create_task(self._send_notice(target, header))
                self._notices.add(task)
                task.add_done_callback(self._notices.discard)

    async def _send_notice(self, target: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        if self._client is None:
            return
        command = RemotingCommand.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, oneway=True)
        try:
            await self._client.call_oneway(target, command, NOTICE_TIMEOUT_MS)
        except RemotingError as problem:
            event(log, logging.WARNING, "broker not notified of smallest id", target=target, problem=problem)
