"""What a broker of a DLedger group is to the others: the group's leader is the master, the others its slaves.

The log goes from member to member by the group's own replication, so a put waits for nobody here: it is
durable when the group has committed it. Tables go as between any master and slave.

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
ASK_INTERVAL_MS = 500
ASKS_PER_TERM = 10
SYNC_FIRST_MS = 500
SYNC_INTERVAL_MS = 3_000
"""A leader may go at any time, so its tables are copied more often than a master's. Upstream: 10 s."""


class GroupLeader:
    """The leader's side."""

    late_status = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    """What became of a put that no quorum has in time."""

    def __init__(self, store: StoreEngine, takes_appends: Callable[[], bool]) -> None:
        """Take the store, and what tells whether the group takes entries of this member now."""
        self._store = store
        self._takes_appends = takes_appends

    async def close(self) -> None:
        """Nothing runs here."""

    def rejection(self) -> str | None:
        """Why no put may be taken now, in upstream's words; None: it may."""
        return None if self._takes_appends() else SERVICE_NOT_AVAILABLE

    def appended(self) -> None:
        """The member was told already."""

    def poll_reports(self) -> None:
        """No slave reports here."""

    def wait(self, _end_offset: int, _answer: Callable[[str], None]) -> str | None:
        """What is durable below a physical offset (bytes) is at a quorum."""
        return PUT_OK

    def learn_master(self, _address: str, _ha_address: str) -> None:
        """A leader follows nobody."""

    def status(self) -> HaStatus:
        """To 907: the group has no HA connections."""
        return HaStatus(master=True, master_commit_log_max_offset=self._store.max_offset)


class GroupFollower(SlaveBroker):
    """The side of the others: their log comes by itself, their tables are copied from the leader's."""

    late_status = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    """What became of a put that no quorum has in time."""

    def __init__(
        self,
        ha: HaConfig,
        store: StoreEngine,
        tables: BrokerTables,
        client: RemotingClient,
        master_changed: Callable[[bool], None],
        ask_again: Callable[[], Awaitable[object]],
        term: Callable[[], int],
    ) -> None:
        """Take where copies come from and go.

        Args:
            ha: Intervals, as far as they are shorter than a group's.
            store: The member's.
            tables: Become copies of the leader's.
            client: Calls the leader.
            master_changed: Told whether there is a leader, when that changes.
            ask_again: Asks the name servers who is master.
            term: Of the group, as the member knows it.
        """
        often = replace(
            ha,
            sync_first_ms=min(ha.sync_first_ms, SYNC_FIRST_MS),
            sync_interval_ms=min(ha.sync_interval_ms, SYNC_INTERVAL_MS),
        )
        super().__init__(often, store, tables, client, term)
        self._master_changed, self._ask_again, self._term = master_changed, ask_again, term
        self._asks: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to copy tables, and to look for each new leader."""
        super().start()
        self._asks = asyncio.get_running_loop().create_task(self._look_for_leaders())

    async def close(self) -> None:
        """Copy no more."""
        if self._asks is not None:
            self._asks.cancel()
            await asyncio.gather(self._asks, return_exceptions=True)
        await super().close()

    async def _look_for_leaders(self) -> None:
        """Ask the name servers for a while whenever the term has changed: its leader is known there soon."""
        term, left = None, 0
        while True:
            if term != self._term():
                term, left = self._term(), ASKS_PER_TERM
            if left:
                left -= 1
                with contextlib.suppress(PyLedgerError):  # a name server that talks nonsense is asked again
                    await self._ask_again()
            await asyncio.sleep(ASK_INTERVAL_MS / 1000)

    def learn_master(self, address: str, _ha_address: str) -> None:
        """What the name servers say; empty when they know of no master."""
        if bool(address) != bool(self.master_address):
            self._master_changed(bool(address))
        self.master_address = address

    def status(self) -> HaStatus:
        """To 907."""
        end = self._store.max_offset
        client = HaClientStatus(
            master_addr=self.master_address,
            max_offset=end,
            last_read_timestamp=0,
            last_write_timestamp=0,
            activated=bool(self.master_address),
        )
        return HaStatus(master=False, master_commit_log_max_offset=end, ha_client_info=client)
