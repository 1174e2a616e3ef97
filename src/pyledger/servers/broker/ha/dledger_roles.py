"""The roles of brokers in a DLedger group: the group's leader is the master, the others are its slaves.

The group replicates the log itself, so a put waits for no slave here: it is durable when the group has
committed it. Tables are copied as between any master and slave.

Source: RocketMQ broker/.../dledger/DLedgerRoleChangeHandler.java.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from pyledger.config.ha import HaConfig
from pyledger.errors import PyLedgerError
from pyledger.net.remoting.client import RemotingClient
from pyledger.servers.broker.ha.slave import SERVICE_NOT_AVAILABLE, SlaveBroker
from pyledger.servers.broker.tables import BrokerTables
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.wire.remoting.bodies.ha_status import HaClientStatus, HaStatus

PUT_OK = "PUT_OK"
SEARCH_INTERVAL_MS = 500
SEARCHES_PER_TERM = 10
SYNC_FIRST_MS = 500
SYNC_INTERVAL_MS = 3_000
"""A leader may be replaced at any time, so tables are copied more often than a master's. Upstream: 10 s."""


class GroupLeader:
    """The leader's side."""

    late_status = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    """Status of a put that no quorum has in time."""

    def __init__(self, store: StoreEngine, takes_appends: Callable[[], bool]) -> None:
        """Take the store, and a function that returns whether the group takes this member's entries now."""
        self._store = store
        self._takes_appends = takes_appends

    async def close(self) -> None:
        """Do nothing: no task runs here."""

    def rejection(self) -> str | None:
        """Why no put may be taken now, in upstream's words; None: it may."""
        return None if self._takes_appends() else SERVICE_NOT_AVAILABLE

    def appended(self) -> None:
        """Do nothing: the member has replicated the entry itself."""

    def poll_reports(self) -> None:
        """Do nothing: no slave reports to a leader."""

    def wait(self, _end_offset: int, _answer: Callable[[str], None]) -> str | None:
        """Return at once: what is durable below a physical offset (bytes) is at a quorum."""
        return PUT_OK

    def learn_master(self, _address: str, _ha_address: str) -> None:
        """Do nothing: a leader follows no broker."""

    def status(self) -> HaStatus:
        """Return the body of the response to 907: the group has no HA connections."""
        return HaStatus(master=True, master_commit_log_max_offset=self._store.max_offset)


class GroupFollower(SlaveBroker):
    """A follower's side: the group replicates the log, and the tables are copied from the leader."""

    late_status = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    """Status of a put that no quorum has in time."""

    def __init__(
        self,
        ha: HaConfig,
        store: StoreEngine,
        tables: BrokerTables,
        client: RemotingClient,
        master_changed: Callable[[bool], None],
        find_master: Callable[[], Awaitable[object]],
        term: Callable[[], int],
    ) -> None:
        """Create the follower's side; it copies tables once it is started.

        Args:
            ha: The intervals, where they are shorter than a group's.
            store: The member's store.
            tables: The tables that become copies of the leader's.
            client: Calls the leader.
            master_changed: Called when a leader is found (True) or lost (False).
            find_master: Queries the name servers for the master.
            term: Returns the term of the group, as the member knows it.
        """
        often = replace(
            ha,
            sync_first_ms=min(ha.sync_first_ms, SYNC_FIRST_MS),
            sync_interval_ms=min(ha.sync_interval_ms, SYNC_INTERVAL_MS),
        )
        super().__init__(often, store, tables, client, term)
        self._master_changed, self._find_master, self._term = master_changed, find_master, term
        self._search: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start copying tables, and finding each new leader."""
        super().start()
        self._search = asyncio.get_running_loop().create_task(self._find_leaders())

    async def close(self) -> None:
        """Stop copying."""
        if self._search is not None:
            self._search.cancel()
            await asyncio.gather(self._search, return_exceptions=True)
        await super().close()

    async def _find_leaders(self) -> None:
        """Query the name servers for 5 s after each change of the term: its leader registers there soon."""
        term, left = None, 0
        while True:
            if term != self._term():
                term, left = self._term(), SEARCHES_PER_TERM
            if left:
                left -= 1
                with contextlib.suppress(PyLedgerError):  # a malformed response is retried
                    await self._find_master()
            await asyncio.sleep(SEARCH_INTERVAL_MS / 1000)

    def learn_master(self, address: str, _ha_address: str) -> None:
        """Take the leader's address from the name servers; empty when they know none."""
        if bool(address) != bool(self.master_address):
            self._master_changed(bool(address))
        self.master_address = address

    def status(self) -> HaStatus:
        """Return the body of the response to 907."""
        end = self._store.max_offset
        client = HaClientStatus(
            master_addr=self.master_address,
            max_offset=end,
            last_read_timestamp=0,
            last_write_timestamp=0,
            activated=bool(self.master_address),
        )
        return HaStatus(master=False, master_commit_log_max_offset=end, ha_client_info=client)
