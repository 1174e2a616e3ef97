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
    """Runs beside the bookies of a cluster, Java's or ours, and beside Java's autorecovery.

    Attributes:
        name: Told to people by votes and locks.
        ended: Set when it cannot go on.
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
        """Autorecovery that begins with `start`.

        Args:
            metadata: A cluster that is not started yet, or its address.
            name: No other candidate of the cluster may have it.
            config: Times and limits.
            client: How bookies are asked.
            tls: Certificates, and whether bookies are asked by TLS.
            clock: Its time; None is the machine's.
        """
        self.name, self.ended = name, asyncio.Event()
        self._config, self._clock = config or AutoRecoveryConfig(), clock or SystemClock()
        self._client = AsyncLedgerClient(metadata, config=client, tls=tls)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """Its name: nothing listens."""
        return self.name

    async def start(self) -> None:
        """Connect, and begin.

        Raises:
            MetadataUnreachableError: Nobody answers.
            LedgerMetadataError: There is no cluster, or marks are laid out in another way.
        """
        await self._client.start()
        try:
            await self._client.cluster.marks.prepare()
        except BaseException:
            await self._client.close()
            raise
        worker = ReplicationWorker(self._client, self._config, self._clock, self.name, Random().shuffle)
        self._tasks = [self._begin(work) for work in (self._stand, worker.run)]

    async def close(self) -> None:
        """End; its vote and its locks end with it. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    # --- inside

    async def _keep(self, work: Callable[[], Awaitable[None]]) -> None:
        """Begin anew, after a pause, when the metadata store does not answer."""
        while True:
            try:
                await work()
            except* PyLedgerError as problems:
                event(log, logging.WARNING, "autorecovery pauses", problem=problems.exceptions[0])
            end_if_cancelled()
            await self._clock.wait(self._config.rw_rereplicate_backoff_ms)

    async def _stand(self) -> None:
        """Be a candidate, and the auditor while elected."""
        auditing: asyncio.Task[None] | None = None
        terms = self._client.cluster.election.campaign(self.name)
        try:
            async with contextlib.aclosing(terms):
                async for elected in terms:
                    event(log, logging.INFO, "auditor", name=self.name, elected=elected)
                    if elected:
                        auditor = Auditor(self._client, self._config, self._clock)
                        auditing = self._begin(auditor.run)
                    elif auditing is not None:
                        await end(auditing)
        finally:
            if auditing is not None:
                await end(auditing)

    def _begin(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._keep(work))
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("autorecovery ended", exc_info=error)
            self.ended.set()


async def end(task: asyncio.Task[None]) -> None:
    """Stop a task, whatever became of it."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
