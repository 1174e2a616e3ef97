"""What a broker is to others of its name: a master that serves slaves, or a slave that follows a master.

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
ASK_PAUSE_MS = 1_000
"""Pause between two questions to the name servers for slaves: any connection can make this broker ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationListener:
    """What a broker is told, and asked."""

    ask_again: Callable[[], Awaitable[object]]
    """Asks the name servers who is master; what they say comes to `learn_master`."""
    grown: Callable[[], None]
    """A slave's log has grown."""
    master_changed: Callable[[bool], None]
    """Whether a slave has a master, when that changes."""
    diverged: Callable[[int], None]
    """Behind this physical offset (bytes) a slave's log is not the master's."""
    outranked: Callable[[], None]
    """Another broker has become master in this one's place."""


class MasterReplication:
    """The master's side: slaves, and who waits for them."""

    late_status = "FLUSH_DISK_TIMEOUT"
    """What became of a put that is not durable in time."""

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
        """Take what slaves get.

        Args:
            config: The broker's name, and its name servers.
            ha: The rules.
            store: Whose log slaves get.
            tables: What the broker knows beside it.
            client: Calls the name servers.
            now_ms: A clock that never goes back.
            outranked: Called when another broker has become master in this one's place.
            tls: Of the broker's ports; None: they speak none.
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
        self._asking: asyncio.Task[None] | None = None
        self._ask_from_ms = 0
        self.service = HaService(store, ha, now_ms, self.knows, access_control=bool(config.acl_path), tls=tls)

    async def start(self, host: str, port: int, address: str) -> int:
        """Make sure that there is no other master, and listen for slaves.

        Args:
            host: Where to listen.
            port: The same; 0 takes a free one.
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
        self._watch = asyncio.get_running_loop().create_task(self._look_out())
        await self.service.start(host, port)
        return self.service.port

    async def close(self) -> None:
        """Let slaves go; who waits for them waits no more."""
        for task in (self._watch, self._asking):
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

    async def _look_out(self) -> None:
        while not self._is_outranked:
            await asyncio.sleep(self._config.register_interval_ms / 1000)
            await self.check_rank()

    async def check_rank(self) -> None:
        """Stand down when another broker was made master, as far as name servers tell."""
        other = await self._other_master()
        if other is None or self._is_outranked:
            return
        # Equal versions: nobody was promoted, and who of the two is right cannot be told from here.
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
        """How the wait for slaves ended that shall have all below a physical offset (bytes).

        None: `answer` will be told.
        """
        return self.service.wait(end_offset, answer)

    def learn_master(self, _address: str, _ha_address: str) -> None:
        """A master follows nobody."""

    async def knows(self, host: str) -> bool:
        """Whether an address is this machine's, or that of a registered slave."""
        if host in LOOPBACK or host in self._registered:
            return True
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_for_slaves())
        await asyncio.wait([self._asking])  # one question for all that wait
        return host in self._registered

    async def _ask_for_slaves(self) -> None:
        """Learn from the name servers which addresses slaves of this broker have."""
        client, name = self._client, self._config.name
        try:
            await asyncio.sleep((self._ask_from_ms - self._now_ms()) / 1000)
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
            self._asking = None
            self._ask_from_ms = self._now_ms() + ASK_PAUSE_MS

    def status(self) -> HaStatus:
        """To 907."""
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
    """The slave's side: it follows a master and takes nothing from clients."""

    late_status = "FLUSH_DISK_TIMEOUT"
    """What became of a put that is not durable in time."""

    def __init__(
        self,
        ha: HaConfig,
        store: StoreEngine,
        tables: BrokerTables,
        client: RemotingClient,
        now_ms: Callable[[], int],
        told: ReplicationListener,
        tls: TlsConfig | None,
    ) -> None:
        """Take what comes from the master.

        Args:
            ha: The rules.
            store: Takes the log.
            tables: Become copies of the master's.
            client: Calls the master.
            now_ms: A clock that never goes back.
            told: The broker.
            tls: Of the broker's own requests; None: they travel in plain text.
        """
        super().__init__(ha, store, tables, client)
        self._ha = ha
        self._told = told
        self._client = client
        self.ha_client = HaClient(
            store, ha, now_ms, learn=told.ask_again, agree=self._agree, grown=told.grown, tls=tls
        )

    def start(self) -> None:
        """Begin to follow."""
        self.ha_client.start()
        super().start()

    async def close(self) -> None:
        """Follow no more."""
        await super().close()
        await self.ha_client.close()

    def learn_master(self, address: str, ha_address: str) -> None:
        """What the name servers say; empty when they know of no master."""
        alive = bool(address)
        if alive != bool(self.master_address):
            event(log, logging.INFO, "master is there" if alive else "master is gone", master=address)
            self._told.master_changed(alive)
        if alive:
            self.sync.meet(address)
        self.master_address = address
        if ha_address:
            self.ha_client.follow(ha_address)

    async def _agree(self) -> str:
        """Why this log and the master's cannot go on together; empty: they can."""
        replica, master = self.ha_client.replica, self.master_address
        if master:
            await self.sync.ask_master_end()
            await self.sync.ask_master_role()
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
        while (offset := search.question) is not None:
            search.answer(await self._is_same(master, offset))
        if search.last_common is None:
            return f"nothing in the last files of this log is in that of {master}: empty the slave"
        end = search.last_common + self._store.message_at(search.last_common).store_size
        event(log, logging.ERROR, "the log is not the master's", master=master, from_offset=end)
        self._told.diverged(end)
        return f"this log and that of {master} part at {end}"

    async def _is_same(self, master: str, offset: int) -> bool:
        """Whether the master has the same record at a physical offset (bytes).

        Raises:
            RemotingError: it cannot be asked.
            BrokerError: it refuses to say.
        """
        command = RemotingCommand.request(
            RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset)
        )
        answer = await self._client.call(master, command, TIMEOUT_MS)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            return False  # nothing stands there
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, master)
        return answer.body == self._store.message_at(offset).record_view

    def status(self) -> HaStatus:
        """To 907."""
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
        """What the master has before this log begins, as far as it was heard of."""
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
    told: ReplicationListener,
    tls: TlsConfig | None = None,
) -> Replication:
    """The side that a broker's role asks for."""
    if ha.role == SLAVE:
        return SlaveReplication(ha, store, tables, client, now_ms, told, tls)
    return MasterReplication(config, ha, store, tables, client, now_ms, told.outranked, tls)
