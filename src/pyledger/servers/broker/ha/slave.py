"""What every broker that follows another one has in common: it takes no puts, and copies tables."""

import asyncio
from collections.abc import Callable

from pyledger.config.ha import HaConfig
from pyledger.net.remoting.client import RemotingClient
from pyledger.servers.broker.ha.slave_synchronize import SlaveSynchronize
from pyledger.servers.broker.tables import BrokerTables
from pyledger.store.messages.store_engine import StoreEngine

SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"


class SlaveBroker:
    """A slave, except for how it gets its log."""

    def __init__(
        self,
        ha: HaConfig,
        store: StoreEngine,
        tables: BrokerTables,
        client: RemotingClient,
        term: Callable[[], int] = lambda: 0,
    ) -> None:
        """Copy nothing yet.

        Args:
            ha: The intervals of the copies.
            store: The slave's store.
            tables: The tables that become copies of the master's.
            client: Calls the master.
            term: Returns the term of its group, if any.
        """
        self.master_address = ""
        """`host:port` of the master for requests; empty while no name server knows one."""
        self._store = store
        self.sync = SlaveSynchronize(
            tables,
            ha,
            client,
            lambda: self.master_address,
            lambda: store.confirmed_where,
            lambda topic, queue_id: store.queue_range(topic, queue_id).max_offset,
            term,
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start copying tables."""
        self._task = asyncio.get_running_loop().create_task(self.sync.run())

    async def close(self) -> None:
        """Stop copying."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def rejection(self) -> str | None:
        """Reject all puts: the log of a slave is its master's."""
        return SERVICE_NOT_AVAILABLE

    def appended(self) -> None:
        """Do nothing: no broker follows a slave."""

    def poll_reports(self) -> None:
        """Do nothing: no broker reports to a slave."""

    def wait(self, _end_offset: int, _answer: Callable[[str], None]) -> str | None:
        """Reject: no message is put here."""
        return SERVICE_NOT_AVAILABLE
