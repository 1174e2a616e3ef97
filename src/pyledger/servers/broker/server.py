"""A running broker: store, tables, listeners and periodic work.

Start: open and recover the store, read the tables, listen, register with the name servers.
Stop: unregister, answer held requests, close connections, write the tables, close the store.

Source: RocketMQ broker/.../BrokerController.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import fields, replace
from random import Random
from typing import TYPE_CHECKING, Any

from pyledger.clock import Clock, SystemClock
from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.ha import SLAVE, HaConfig
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.config.store import StoreConfig
from pyledger.errors import RemotingError
from pyledger.log_events import event, logger
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.topic import Permission
from pyledger.net.remoting.connection import Connection
from pyledger.net.remoting.name_servers import parse_addresses
from pyledger.net.remoting.server import RemotingServer
from pyledger.protocol.broker.broker_stats import BrokerCounts
from pyledger.protocol.broker.client_channel import Notice
from pyledger.servers.broker.addresses import joined
from pyledger.servers.broker.context import BrokerContext, T, client_of, state_of, watched_rules
from pyledger.servers.broker.delay_service import DelayDelivery
from pyledger.servers.broker.ha.dledger_roles import GroupFollower
from pyledger.servers.broker.ha.replication import (
    MasterReplication,
    ReplicationListener,
    SlaveReplication,
    replication_of,
)
from pyledger.servers.broker.message_puts import MessagePuts
from pyledger.servers.broker.pop_service import PopService
from pyledger.servers.broker.processors.request_table import BrokerHandlers
from pyledger.servers.broker.processors.role_filter import check_role
from pyledger.servers.broker.pull_request_hold import PullRequestHold
from pyledger.servers.broker.registration import NameServerReports
from pyledger.servers.broker.tables import BrokerTables
from pyledger.servers.broker.timer_service import TimerDelivery
from pyledger.servers.broker.topic_routes import TopicRoutes
from pyledger.servers.broker.transaction_service import Transactions
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader

if TYPE_CHECKING:
    from pyledger.servers.broker.dledger.member import Membership

log = logger("broker")

VIP_DISTANCE = 2
HA_DISTANCE = 1
SCAN_INTERVAL_MS = 10_000
"""Pause between two searches for silent clients."""
COUNT_INTERVAL_MS = 1_000
ACCESS_INTERVAL_MS = 500
"""Pause between two checks of the file with users for changes."""
RETRY_INTERVAL_MS = 3_000
"""Pause until a failed registration with a name server is retried."""
FIRST_CHUNK_BYTES = 4 << 20
"""First allocation of a log file, unless the settings name another: a broker without messages stays small."""


class Broker:
    """One broker. `start` it, then `close` it."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        delivery: DeliveryConfig | None = None,
        store: StoreConfig | None = None,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
        ha: HaConfig | None = None,
        membership: "Membership | None" = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Create a broker without starting it.

        Args:
            config: Its names, its addresses and its name servers.
            delivery: The rules of sending and consuming.
            store: Settings of the store; host and port are the broker's. Default file sizes are replaced by
                those of the folder.
            net: Limits of connections.
            tls: Certificates; None: no TLS.
            ha: The settings of master or slave.
            membership: The membership in the DLedger group that keeps its log; None: it keeps its own log.
            clock: The clock.
            random: Draws the queue of a send that names none.

        Raises:
            ConfigError: the file of `acl_path` cannot be read or understood; a slave has a master's id.
        """
        self.config = config or BrokerConfig()
        self._ha, self._membership = ha or HaConfig(), membership
        check_role(self.config, self._ha)
        self._delivery = delivery or DeliveryConfig()
        self._store_config = store or StoreConfig()
        self._net, self._tls = net or NetConfig(), tls
        self._clock, self._random = clock or SystemClock(), random or Random()
        self._access_rules = watched_rules(self.config.acl_path)
        self._steady_base_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        self._handlers = BrokerHandlers()
        self._servers: list[RemotingServer] = []
        self._client = client_of(
            self.config.acl_user,
            self._access_rules,
            config=self._net,
            tls=self._tls,
            on_close=self._name_server_gone,
        )
        self._reports: NameServerReports | None = None
        self._delays: DelayDelivery | None = None
        self._timers: TimerDelivery | None = None
        self._report_now = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self.on_diverged: Callable[[int], None] = lambda _end_offset: None
        """Called with the physical offset (bytes) from which on a slave's log differs from its master's."""
        self.change_role: Callable[[str, int], None] | None = None
        """Called with a new role and broker id; None: the role cannot change."""
        self.before_serving: Callable[[BrokerContext], None] = lambda _context: None
        """Called with the context when the store is open, before requests are answered."""
        self.ports_are_free = not self.config.port
        """Whether slaves may connect to any free port."""
        self.context: BrokerContext | None = None
        """The context of its processors; None while it is not started."""

    @property
    def address(self) -> str:
        """`host:port` that clients use."""
        port = self._servers[0].port if self._servers else self.config.port
        return joined(self.config.advertised_host or self.config.host, port)

    @property
    def store(self) -> StoreEngine:
        """The open store.

        Raises:
            RuntimeError: the broker is not started.
        """
        if self.context is None:
            raise RuntimeError("the broker is not started")
        return self.context.store

    async def start(self) -> None:
        """Open the store and serve.

        Raises:
            StoreError: the store or one of its tables cannot be opened.
            ListenError: an address is in use, or not one of this machine.
            ConfigError: a certificate cannot be read.
        """
        try:
            if not self.config.port:
                # Message ids contain the port, so it must be known first; no client knows it yet.
                await self._listen(0)
            port = self._servers[0].port if self._servers else self.config.port
            store = await self._open_store(port)
            self.context = await self._assemble(store)
            self.before_serving(self.context)
            self._handlers.answer_with(self.context)
            if not self._servers:
                await self._listen(port)
                if self.config.vip_port and not self.ports_are_free and port > VIP_DISTANCE:
                    await self._listen(port - VIP_DISTANCE)
            await self._begin(self.context, port)
        except BaseException:
            await self.close()
            raise
        event(log, logging.INFO, "broker ready", name=self.config.name, address=self.address)

    async def close(self, grace_ms: int = 3_000) -> None:
        """Stop serving and close the store. Idempotent.

        Args:
            grace_ms: How long to wait for requests in flight, in ms.
        """
        if self._closing:
            return
        self._closing = True
        if self._reports is not None:
            await self._reports.leave()
        if self._delays is not None:
            self._delays.close()
        if self._timers is not None:
            self._timers.close()
        if self.context is not None:
            await self.context.replication.close()
            self.context.pops.close()
            self.context.held.close()
        for server in self._servers:
            await server.close(grace_ms)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
        if self.context is not None:
            await self.context.transactions.close()
            await self.context.tables.save_changed()
            await self.context.tables.hand_over(self.context.store)
            await asyncio.to_thread(self.context.store.close)
            event(log, logging.INFO, "broker closed", name=self.config.name)

    def change_settings(self, wanted: Mapping[str, str]) -> None:
        """Change settings of the running broker, until it stops.

        Args:
            wanted: Values by upstream's names, none of them `refused_setting`.

        Raises:
            ConfigError: a value is wrong; nothing has changed.
        """
        from pyledger.config.runtime import changed_settings  # noqa: PLC0415
        from pyledger.servers.broker.processors.admin.broker_config import (  # noqa: PLC0415 - rarely
            CHANGEABLE,
        )

        assert self.context is not None
        assert self._reports is not None
        config = changed_settings(self.context.config, wanted, CHANGEABLE)
        delivery = changed_settings(self.context.delivery, wanted, CHANGEABLE)
        permission = self.context.config.permission
        before = self.context.broker_state
        broker_state = state_of(config, slave=before.slave, master_alive=before.master_alive)
        self.context = replace(self.context, config=config, delivery=delivery, broker_state=broker_state)
        self.context.tables.configure(delivery, self._now_ms())
        self.context.held.configure(delivery)
        self._handlers.answer_with(self.context)
        if config.permission != permission:
            self._reports.permission = Permission(config.permission)
            self.context.tables.topics.advance(self._now_ms())
            self._run(self._report_again())

    def _stand_down(self) -> None:
        """Another broker was promoted: serve neither sends nor pulls, and do not register any more."""
        assert self.context is not None
        self.context = replace(
            self.context, broker_state=replace(self.context.broker_state, permission=Permission(0))
        )
        if self._reports is not None:
            self._reports.name_servers = []
        self._handlers.answer_with(self.context)

    # --- start-up

    async def _listen(self, port: int) -> None:
        server = RemotingServer(
            self._handlers,
            host=self.config.host,
            port=port,
            config=self._net,
            tls=self._tls,
            # A signature covers fields that native code does not keep: with access rules it decodes nothing.
            answer_batch=self._handlers.answer_batch if self._access_rules is None else None,
            on_close=self._connection_closed,
        )
        await server.start()
        self._servers.append(server)

    async def _open_store(self, port: int) -> StoreEngine:
        given: dict[str, Any] = {"first_chunk_bytes": FIRST_CHUNK_BYTES} | {
            field.name: value
            for field in fields(self._store_config)
            if (value := getattr(self._store_config, field.name)) != field.default
        }
        host = self.config.advertised_host or self.config.host
        given |= {"store_host": "127.0.0.1" if host == "localhost" else host, "store_port": port}
        opener: Callable[..., StoreEngine] = (self._membership or StoreEngine).open
        store = await asyncio.to_thread(opener, self.config.store_folder, clock=self._clock, **given)
        if self._membership is not None:
            await self._membership.settle(store)
        return store

    async def _assemble(self, store: StoreEngine) -> BrokerContext:
        try:
            tables = BrokerTables(self.config, self._delivery, store, self._clock.now_ms)
        except BaseException:
            await asyncio.to_thread(store.close)
            raise
        counts, wall_ms = BrokerCounts(), self._clock.now_ms
        held = PullRequestHold(
            self._delivery, self._now_ms, lambda topic, queue: store.queue_range(topic, queue).max_offset
        )
        puts = MessagePuts(
            store, held.arrived, counts, tables.timers, wall_ms, waiting_max=self.config.waiting_sends_max
        )
        listener = ReplicationListener(
            find_master=self._report_again,
            grown=held.poll_soon,
            master_changed=self._master_changed,
            diverged=lambda end_offset: self.on_diverged(end_offset),  # noqa: PLW0108 - set later
            outranked=self._stand_down,
        )
        side = replication_of if self._membership is None else self._membership.replication
        replication = side(
            self.config, self._ha, store, tables, self._client, self._now_ms, listener, self._tls
        )
        puts.replication = replication
        return BrokerContext(
            config=self.config,
            delivery=self._delivery,
            broker_state=state_of(self.config, slave=self._ha.role == SLAVE, master_alive=False),
            store=store,
            tables=tables,
            puts=puts,
            held=held,
            replication=replication,
            pops=PopService(
                store,
                puts,
                tables,
                cluster=self.config.cluster,
                broker_name=self.config.name,
                now_ms=wall_ms,
                tables_changed=self._tables_changed,
            ),
            routes=TopicRoutes(
                self.config.name,
                tuple(parse_addresses(self.config.name_servers)),
                tables.topics,
                lambda: self._client,
                self._now_ms,
            ),
            transactions=Transactions(
                self._delivery, store, puts, tables, self.config.name, wall_ms, self._access_rules
            ),
            counts=counts,
            access_rules=self._access_rules,
            net=self._net,
            tls=self._tls,
            ha=self._ha,
            clock=self._clock,
            random=self._random,
            address=self.address,
            started_ms=wall_ms(),
            now_ms=self._now_ms,
            tables_changed=self._tables_changed,
            change_settings=self.change_settings,
            change_role=lambda: self.change_role,
            notify=self._notify,
        )

    async def _begin(self, context: BrokerContext, port: int) -> None:
        host = self.config.advertised_host or self.config.host
        ha_port = self._ha.port or (0 if self.ports_are_free else port + HA_DISTANCE)
        replication = context.replication
        if isinstance(replication, MasterReplication):
            ha_port = await replication.start(self.config.host, ha_port, self.address) or ha_port
        self._reports = NameServerReports(
            self.config,
            context.tables.topics,
            self._client,
            address=self.address,
            ha_address=joined(host, ha_port),
            now_ms=self._clock.now_ms,
            on_master=replication.learn_master,
        )
        if isinstance(replication, SlaveReplication | GroupFollower):
            replication.start()
        else:
            self._deliver(context)
        await self._reports.report_all()
        self._run(self._keep_reporting(self._reports))
        self._run(self._every(self.config.offsets_flush_interval_ms, context.tables.save_changed))
        self._run(self._every(SCAN_INTERVAL_MS, self._expire_clients))
        if self._access_rules is not None:
            self._run(self._every(ACCESS_INTERVAL_MS, self._read_access_rules))
        self._run(self._every(COUNT_INTERVAL_MS, self._sample_counts))

    def _deliver(self, context: BrokerContext) -> None:
        """Start what only a master does: deliver delayed messages, check transactions, revive pops."""
        self._delays = DelayDelivery(context.tables.delays, context.store, context.puts, self._clock.now_ms)
        self._delays.start()
        self._timers = TimerDelivery(
            context.tables.timers, context.store, context.puts, self._clock.now_ms, context.pops.forward
        )
        self._timers.start()
        context.transactions.start()
        context.pops.start()

    # --- periodic work

    def _now_ms(self) -> int:
        """Return milliseconds since 1970 by a monotonic clock."""
        return self._steady_base_ms + self._clock.monotonic_ms()

    def _run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _every(self, interval_ms: int, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await action()
            except Exception:
                log.exception("periodic work failed")

    async def _keep_reporting(self, reports: NameServerReports) -> None:
        registered = len(reports.name_servers)
        while True:
            complete = registered == len(reports.name_servers)
            pause_ms = self.config.register_interval_ms if complete else RETRY_INTERVAL_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._report_now.wait()
                    # A name server closes connections before it ends; its successor needs time to start.
                    await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
            self._report_now.clear()
            registered = await reports.report_all()

    async def _sample_counts(self) -> None:
        assert self.context is not None
        self.context.counts.sample(self._now_ms(), self._clock.hour_of_day())

    async def _read_access_rules(self) -> None:
        assert self._access_rules is not None
        self._access_rules.refresh()

    async def _expire_clients(self) -> None:
        """Close connections of clients that send no heartbeats; those that disconnect are noticed at once."""
        assert self.context is not None
        now_ms, tables = self._now_ms(), self.context.tables
        for channel in dict.fromkeys(tables.consumers.expire(now_ms) + tables.producers.expire(now_ms)):
            if isinstance(channel, Connection):
                event(log, logging.WARNING, "client expired", peer=channel.remote_address)
                channel.close()

    # --- events

    def _master_changed(self, alive: bool) -> None:
        """Update the state of a slave that has gained or lost its master: pulls depend on it."""
        if self.context is not None and not self._closing:
            self.context = replace(
                self.context, broker_state=replace(self.context.broker_state, master_alive=alive)
            )
            self._handlers.answer_with(self.context)

    def _tables_changed(self) -> "asyncio.Future[None]":
        return self._run(self._store_tables())

    async def _store_tables(self) -> None:
        assert self.context is not None
        tables = self.context.tables
        await tables.topics_file.save()
        await tables.groups_file.save()
        if self._reports is not None and not self._closing:
            self._run(self._reports.report_changes())

    async def _report_again(self) -> None:
        """Register again: the response to a slave names its master."""
        if self._reports is not None:
            await self._reports.report_all()

    def _name_server_gone(self, _connection: Connection) -> None:
        """Register again: a name server forgets a broker when its connection closes."""
        self._report_now.set()

    def _connection_closed(self, connection: Connection) -> None:
        if self.context is None:
            return
        self.context.held.close_channel(connection)
        self.context.tables.producers.close_channel(connection)
        self._notify(self.context.tables.consumers.close_channel(connection))

    def _notify(self, notices: Iterable[Notice]) -> None:
        if self._closing:
            return
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        for notice in notices:
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=notice.group)
            for channel in notice.channels:
                if not isinstance(channel, Connection) or channel.closed:
                    continue
                command = RemotingCommand.request(code, header, oneway=True)
                try:
                    channel.call_oneway(command)
                except RemotingError as problem:
                    event(log, logging.WARNING, "client not notified of its group", problem=problem)
