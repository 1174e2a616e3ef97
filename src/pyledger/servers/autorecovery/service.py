"""Autorecovery of one cluster, from start to close: a candidate for auditor, and a replication worker.

Source: BookKeeper replication/AutoRecoveryMain.java, AuditorElector.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from random import Random

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.config.net import TlsConfig
from pyledger.errors import PyLedgerError
from pyledger.log_events import event, logger
from pyledger.metadata.cancellation import end_if_cancelled
from pyledger.metadata.cluster import Cluster
from pyledger.servers.autorecovery.auditor import Auditor
from pyledger.servers.autorecovery.clock import Clock, SystemClock
from pyledger.servers.autorecovery.replication_worker import ReplicationWorker

log = logger("autorecovery")


class AutoRecovery:
    """Autorecovery of a cluster of bookies, Java's or ours; Java's autorecovery may run at the same time.

    Attributes:
        name: Name shown in votes and locks.
        ended: Set when it cannot continue.
    """

    def __init__(
        self,
        metadata: str | Cluster,
        name: str,
        *,
        config: AutoRecoveryConfig | None = None,
        client: BookkeeperConfig | None = None,
        tls: TlsConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Create autorecovery; `start` starts it.

        Args:
            metadata: A cluster that is not started yet, or its address.
            name: Unique among the candidates of the cluster.
            config: Times and limits.
            client: Settings of the client that connects to bookies.
            tls: Certificates, and whether that client uses TLS.
            clock: The source of its time; by default the machine's clock.
        """
        self.name, self.ended = name, asyncio.Event()
        self._config, self._clock = config or AutoRecoveryConfig(), clock or SystemClock()
        self._client = AsyncLedgerClient(metadata, config=client, tls=tls)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Its name, because it listens on no port."""
        return self.name

    async def start(self) -> None:
        """Connect and start.

        Raises:
            MetadataUnreachableError: The metadata store does not answer.
            LedgerMetadataError: There is no cluster, or its marks have another layout.
        """
        await self._client.start()
        try:
            await self._client.cluster.marks.prepare()
        except BaseException:
            await self._client.close()
            raise
        worker = ReplicationWorker(self._client, self._config, self._clock, self.name, Random().shuffle)
        self._tasks = [self._start_task(work) for work in (self._campaign, worker.run)]

    async def close(self) -> None:
        """Stop, and withdraw its vote and its locks. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    # --- inside

    async def _run_forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work again, after a pause, when the metadata store does not answer."""
        while True:
            try:
                await work()
            except* PyLedgerError as problems:
                event(log, logging.WARNING, "autorecovery pauses", problem=problems.exceptions[0])
            end_if_cancelled()
            await self._clock.wait(self._config.rw_rereplicate_backoff_ms)

    async def _campaign(self) -> None:
        """Campaign, and be the auditor while elected."""
        auditing: asyncio.Task[None] | None = None
        terms = self._client.cluster.election.campaign(self.name)
        try:
            async with contextlib.aclosing(terms):
                async for elected in terms:
                    event(log, logging.INFO, "auditor", name=self.name, elected=elected)
                    if elected:
                        auditor = Auditor(self._client, self._config, self._clock)
                        auditing = self._start_task(auditor.run)
                    elif auditing is not None:
                        await end(auditing)
        finally:
            if auditing is not None:
                await end(auditing)

    def _start_task(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._run_forever(work))
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("autorecovery ended", exc_info=error)
            self.ended.set()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and ignore its result."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
