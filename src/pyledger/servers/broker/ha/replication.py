"""The role of a broker in its replica set: a master that serves slaves, or a slave that follows a master.

Source: RocketMQ broker/.../BrokerController.java; store/.../ha/DefaultHAService.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pyledger.config.broker import BrokerConfig
from pyledger.config.ha import ROLES, SLAVE, HaConfig
from pyledger.config.net import TlsConfig
from pyledger.errors import AnotherMasterError, BrokerError, RemotingError, WireError
from pyledger.log_events import event, logger
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.client import RemotingClient
from pyledger.net.remoting.name_servers import parse_addresses
from pyledger.protocol.ha.log_divergence import TailSearch
from pyledger.servers.broker.addresses import address_of
from pyledger.servers.broker.ha.dledger_roles import GroupFollower, GroupLeader
from pyledger.servers.broker.ha.other_masters import OtherMaster, find_other_master
from pyledger.servers.broker.ha.slave import SERVICE_NOT_AVAILABLE, SlaveBroker
from pyledger.servers.broker.tables import BrokerTables
from pyledger.servers.ha.client import HaClient
from pyledger.servers.ha.service import HaService
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.bodies.ha_status import HaClientStatus, HaConnectionStatus, HaStatus
from pyledger.wire.remoting.bodies.route import decode_clusters
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.query import ViewMessageRequestHeader

log = logger("ha")

TIMEOUT_MS = 3_000
LOOPBACK = "127.0.0.1", "::1"
SEARCH_PAUSE_MS = 1_000
"""Pause between two searches for slaves at the name servers: any connection can cause one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationListener:
    """Callbacks from replication to the broker."""

    find_master: Callable[[], Awaitable[object]]
    """Query the name servers for the master; `learn_master` gets the result."""
    grown: Callable[[], None]
    """A slave's log has grown."""
    master_changed: Callable[[bool], None]
    """A slave has gained (True) or lost (False) its master."""
    diverged: Callable[[int], None]
    """From this physical offset (bytes) on, a slave's log differs from the master's."""
    outranked: Callable[[], None]
    """Another broker was promoted to master."""


class MasterReplication:
    """The master's side: serves slaves, and completes the puts that wait for them."""

    late_status = "FLUSH_DISK_TIMEOUT"
    """Status of a put that is not durable in time."""

    def __init__(
        self,
        config: BrokerConfig,
        ha: HaConfig,
        store: StoreEngine,
        tables: BrokerTables,
        client: RemotingClient,
        now_ms: Callable[[], int],
        outranked: Callable[[], None],
        tls: TlsConfig | None,
    ) -> None:
        """Create the master's side; it serves slaves once it is started.

        Args:
            config: The broker's name and its name servers.
            ha: The settings of replication.
            store: The store whose log slaves copy.
            tables: The broker's tables.
            client: Calls the name servers.
            now_ms: A monotonic clock.
            outranked: Called when another broker was promoted to master.
            tls: Certificates of the broker's ports; None: no TLS.
        """
        self._config, self._role = config, ROLES[ha.role]
        self._client = client
        self._store = store
        self._tables = tables
        self._outranked = outranked
        self._address = ""
        self._is_outranked = False
        self._watch: asyncio.Task[None] | None = None
        self._registered: set[str] = set()
        self._now_ms = now_ms
        self._search: asyncio.Task[None] | None = None
        self._search_from_ms = 0
        self.service = HaService(store, ha, now_ms, self.knows, access_control=bool(config.acl_path), tls=tls)

    async def start(self, host: str, port: int, address: str) -> int:
        """Make sure that there is no other master, and listen for slaves.

        Args:
            host: Where to listen.
            port: The port to listen on; 0 takes a free one.
            address: `host:port` that clients use.

        Returns:
            The port for slaves; 0 where none are served.

        Raises:
            AnotherMasterError: there is another master, and it is alive.
            ListenError: the address cannot be had.
        """
        self._address = address
        other = await self._other_master()
        if other is not None and not self._outranks(other):
            raise AnotherMasterError(self._config.name, other.address)
        self._watch = asyncio.get_running_loop().create_task(self._check_periodically())
        await self.service.start(host, port)
        return self.service.port

    async def close(self) -> None:
        """Close the connections of slaves and complete the puts that wait for them."""
        for task in (self._watch, self._search):
            if task is not None:
                task.cancel()
        await self.service.close()

    async def _other_master(self) -> OtherMaster | None:
        """Another master of this broker's name that is alive."""
        names = parse_addresses(self._config.name_servers)
        return await find_other_master(self._client, names, self._config.name, self._address)

    def _outranks(self, other: OtherMaster) -> bool:
        """Whether this broker was made master after another one."""
        return self._tables.topics.version.state_version > other.state_version

    async def _check_periodically(self) -> None:
        while not self._is_outranked:
            await asyncio.sleep(self._config.register_interval_ms / 1000)
            await self.check_rank()

    async def check_rank(self) -> None:
        """Stop serving when the name servers know a broker that was promoted later."""
        other = await self._other_master()
        if other is None or self._is_outranked:
            return
        # Equal versions: neither was promoted, so neither is known to be the right one.
        later = other.state_version > self._tables.topics.version.state_version
        event(log, logging.ERROR, "another master is alive", address=other.address, stands_down=later)
        if later:
            self._is_outranked = True
            self._outranked()
            await self.service.close()

    def rejection(self) -> str | None:
        """Why no put may be taken now, in upstream's words; None: it may."""
        return SERVICE_NOT_AVAILABLE if self._is_outranked else self.service.rejection()

    def appended(self) -> None:
        """Bytes of the log can be sent to slaves."""
        self.service.appended()

    def poll_reports(self) -> None:
        """Process the reports that have arrived, without waiting."""
        self.service.poll_reports()

    def wait(self, end_offset: int, answer: Callable[[str], None]) -> str | None:
        """Return the status once slaves have all below a physical offset (bytes); None: `answer` gets it."""
        return self.service.wait(end_offset, answer)

    def learn_master(self, _address: str, _ha_address: str) -> None:
        """Do nothing: a master follows no broker."""

    async def knows(self, host: str) -> bool:
        """Whether an address is this machine's, or that of a registered slave."""
        if host in LOOPBACK or host in self._registered:
            return True
        if self._search is None:
            self._search = asyncio.get_running_loop().create_task(self._find_slaves())
        await asyncio.wait([self._search])  # all callers share one search
        return host in self._registered

    async def _find_slaves(self) -> None:
        """Fetch the addresses of this broker's slaves from the name servers."""
        client, name = self._client, self._config.name
        try:
            await asyncio.sleep((self._search_from_ms - self._now_ms()) / 1000)
            for address in parse_addresses(self._config.name_servers):
                command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
                try:
                    answer = await client.call(address, command, TIMEOUT_MS)
                    if answer.code == ResponseCode.SUCCESS and (
                        broker := decode_clusters(answer.body).brokers.get(name)
                    ):
                        slaves = [one for number, one in broker.broker_addrs.items() if number != 0]
                        self._registered |= {address_of(one)[0] for one in slaves}
                except (RemotingError, WireError, ValueError):
                    continue
        finally:
            self._search = None
            self._search_from_ms = self._now_ms() + SEARCH_PAUSE_MS

    def status(self) -> HaStatus:
        """Return the body of the response to 907."""
        end = self._store.max_offset
        slaves = self.service.slaves()
        return HaStatus(
            master=True,
            broker_role=self._role,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(one.in_sync for one in slaves),
            ha_connection_info=tuple(
                HaConnectionStatus(
                    addr=one.address,
                    slave_ack_offset=one.ack_offset,
                    diff=end - max(0, one.ack_offset),
                    in_sync=one.in_sync,
                    transfer_from_where=one.next_offset,
                )
                for one in slaves
            ),
        )


class SlaveReplication(SlaveBroker):
    """The slave's side: follows a master and takes no puts from clients."""

    late_status = "FLUSH_DISK_TIMEOUT"
    """Status of a put that is not durable in time."""

    def __init__(
        self,
        ha: HaConfig,
        store: StoreEngine,
        tables: BrokerTables,
        client: RemotingClient,
        now_ms: Callable[[], int],
        listener: ReplicationListener,
        tls: TlsConfig | None,
    ) -> None:
        """Create the slave's side; it follows the master once it is started.

        Args:
            ha: The settings of replication.
            store: The store that the log is copied to.
            tables: The tables that become copies of the master's.
            client: Calls the master.
            now_ms: A monotonic clock.
            listener: The broker's callbacks.
            tls: Certificates of the broker's own requests; None: they are sent in plain text.
        """
        super().__init__(ha, store, tables, client)
        self._ha = ha
        self._listener = listener
        self._client = client
        self.ha_client = HaClient(
            store, ha, now_ms, learn=listener.find_master, agree=self._agree, grown=listener.grown, tls=tls
        )

    def start(self) -> None:
        """Start following the master."""
        self.ha_client.start()
        super().start()

    async def close(self) -> None:
        """Stop following."""
        await super().close()
        await self.ha_client.close()

    def learn_master(self, address: str, ha_address: str) -> None:
        """Take the master's addresses from the name servers; empty when they know none."""
        alive = bool(address)
        if alive != bool(self.master_address):
            event(log, logging.INFO, "master is there" if alive else "master is gone", master=address)
            self._listener.master_changed(alive)
        if alive:
            self.sync.meet(address)
        self.master_address = address
        if ha_address:
            self.ha_client.follow(ha_address)

    async def _agree(self) -> str:
        """Return why this log cannot continue the master's; empty: it can."""
        replica, master = self.ha_client.replica, self.master_address
        if master:
            await self.sync.fetch_master_end()
            await self.sync.fetch_master_role()
        last = await asyncio.to_thread(replica.last_record_offset)
        if last < 0:
            return ""
        if not master:
            if not self._ha.master_address:
                return "no name server knows a master"
            event(log, logging.WARNING, "end of the log not compared: the master's address is not known")
            return ""
        if await self._is_same(master, last):
            return ""
        search = TailSearch(await asyncio.to_thread(replica.record_offsets))
        while (offset := search.next_offset) is not None:
            search.answer(await self._is_same(master, offset))
        if search.last_common is None:
            return f"nothing in the last files of this log is in that of {master}: empty the slave"
        end = search.last_common + self._store.message_at(search.last_common).store_size
        event(log, logging.ERROR, "the log is not the master's", master=master, from_offset=end)
        self._listener.diverged(end)
        return f"this log and that of {master} differ from {end} on"

    async def _is_same(self, master: str, offset: int) -> bool:
        """Whether the master has the same record at a physical offset (bytes).

        Raises:
            RemotingError: the request failed.
            BrokerError: the master rejects the request.
        """
        command = RemotingCommand.request(
            RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset)
        )
        answer = await self._client.call(master, command, TIMEOUT_MS)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            return False  # no record starts there
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, master)
        return answer.body == self._store.message_at(offset).record_view

    def status(self) -> HaStatus:
        """Return the body of the response to 907."""
        link, end = self.ha_client.connection, self._store.max_offset
        heard = max(self.ha_client.master_end, self.sync.master_end)
        return HaStatus(
            master=False,
            broker_role=ROLES[SLAVE],
            master_commit_log_max_offset=max(heard, end) if heard > 0 or self.sync.master_end == 0 else -1,
            ha_client_info=HaClientStatus(
                master_addr=self.ha_client.master_address,
                max_offset=end,
                last_read_timestamp=0 if link is None else link.last_read_ms,
                last_write_timestamp=0 if link is None else link.last_write_ms,
                activated=link is not None,
                problem=self.ha_client.problem,
                missing_bytes=self._missing_bytes(),
                master_role=self.sync.master_role,
            ),
        )

    def _missing_bytes(self) -> int:
        """Bytes that the master has before the start of this log, as far as the master has reported."""
        start = self.sync.master_start
        own = self._store.min_offset if self._store.max_offset else self.sync.master_end
        return max(0, own - start) if start >= 0 else 0


Replication = MasterReplication | SlaveReplication | GroupLeader | GroupFollower


def replication_of(
    config: BrokerConfig,
    ha: HaConfig,
    store: StoreEngine,
    tables: BrokerTables,
    client: RemotingClient,
    now_ms: Callable[[], int],
    listener: ReplicationListener,
    tls: TlsConfig | None = None,
) -> Replication:
    """Create the side that the broker's role requires."""
    if ha.role == SLAVE:
        return SlaveReplication(ha, store, tables, client, now_ms, listener, tls)
    return MasterReplication(config, ha, store, tables, client, now_ms, listener.outranked, tls)
