"""A bookie: its folders, its port, its registration in a cluster.

Source: BookKeeper bookie/BookieImpl.java, BookieStateManager.java, SyncThread.java.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from pyledger.clock import SystemClock
from pyledger.config.bookie import BookieConfig
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import ConfigError, LedgerFileError, PyLedgerError, StoreError, StoreFullError
from pyledger.log_events import event, logger
from pyledger.metadata.cluster import Cluster
from pyledger.net.bookkeeper.server import IDLE_SECONDS, LedgerConnection, LedgerServer
from pyledger.net.event_limiter import Alarms
from pyledger.protocol.bookkeeper.bookie import BookieRules
from pyledger.servers.bookkeeper.garbage_collector import GarbageCollector
from pyledger.servers.bookkeeper.registration import BookieRegistration
from pyledger.servers.bookkeeper.request_processor import BookieRequestProcessor
from pyledger.store.bookkeeper.disks import LedgerDisks
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.store.bookkeeper.store import BookieStore, Checkpoint

log = logger("bookie")

T = TypeVar("T")
READ_THREADS = 4
CLOSE_GRACE_MS = 3_000
RETRY_S = 1.0
TLS_EXTENSION = "tls"
"""Extension that a bookie with TLS registers."""


class BookieServer:
    """Runs one bookie from `start` to `close`.

    Attributes:
        ended: Set when it cannot continue: its disk failed, or another process has its id.
    """

    def __init__(
        self,
        paths: BookiePaths,
        *,
        config: BookieConfig | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: TlsConfig | None = None,
        cluster: Cluster | None = None,
        bookie_id: str = "",
        advertised_host: str = "",
    ) -> None:
        """Create a bookie, which opens its folders and listens when it is started.

        Args:
            paths: Folders of its journals, and of its entry logs and indexes.
            config: Its settings.
            host: Address or name to listen on.
            port: Port to listen on; 0 takes any free port.
            tls: Certificates; without them TLS is off.
            cluster: The cluster to register in, not started yet; None: clients need its address.
            bookie_id: Its id; by default made of host and port.
            advertised_host: Host for clients; by default `host`.
        """
        self.config = config or BookieConfig()
        self.ended = asyncio.Event()
        self._paths = paths.absolute()
        self._clock = SystemClock()
        self._host = host
        self._advertised_host = advertised_host or host
        self._member: BookieRegistration | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        if cluster is not None:
            if not bookie_id and not port:
                raise ConfigError("bookie_id", "is empty, and the port that would name it is any", "give one")
            name = bookie_id or f"{self._advertised_host}:{port}"
            self._member = BookieRegistration(
                cluster, name, self._paths, self._stop_serving, may_grow=self.config.allow_storage_expansion
            )
        net = NetConfig(
            frame_max_bytes=self.config.frame_max_bytes,
            server_idle_seconds=IDLE_SECONDS,
            requests_max=self.config.adds_in_progress_max,
        )
        self._server = LedgerServer(
            self._take,
            self._full,
            on_close=self._gone,
            host=host,
            port=port,
            config=net,
            tls=tls,
        )
        self._disk = ThreadPoolExecutor(1, "bookie-disk")
        self._reads = ThreadPoolExecutor(READ_THREADS, "bookie-read")
        self._alarms = Alarms(log)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._moving: asyncio.Future[None] | None = None
        self._collector: GarbageCollector | None = None
        self._started = self._closing = self._collecting = False
        self._ending = self._disk_failed = False
        self._store: BookieStore
        self._processor: BookieRequestProcessor

    @property
    def address(self) -> str:
        """The `host:port` it listens on."""
        return f"{self._host}:{self._server.port}"

    @property
    def disks(self) -> LedgerDisks:
        """The disks of its ledgers."""
        return self._store.disks

    async def start(self) -> None:
        """Bind the port, check the cookie, replay the journal, listen, and register.

        Raises:
            StoreError: The folders cannot be opened.
            LedgerFileError: A file in the folders is damaged.
            BookieCookieError: They are not its earlier folders.
            MetadataUnreachableError: The cluster does not answer.
            BookieExistsError: Another process has its id.
            ListenError: The port is not available.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        event(log, logging.INFO, "bookie serves", address=self.address, ledgers=len(self._store.ledgers))

    async def _start(self) -> None:
        # First: a new bookie that cannot listen must not leave a cookie in the cluster.
        await self._server.bind()
        if self._member is not None:
            await self._member.start()
        store = self._store = await self._run(
            BookieStore.recover, self._paths, self.config, self._clock, self._journal_failed
        )
        if self._member is not None and not store.is_listed:
            await self._require_indexes(self._member)
        self.rules = BookieRules(store, store.ledgers)
        await self._run(store.begin)
        self._processor = BookieRequestProcessor(
            store, self.rules, self._reads, self._clock, self._checkpoint
        )
        self._started = True
        if not self._ending:
            self._check_disks()
        await self._server.start()
        self._arm("checkpoint", self.config.flush_interval_ms / 1000, self._checkpoint)
        if self._member is not None:
            where = (self._advertised_host, self._server.port)
            extensions = () if self._server.context is None else (TLS_EXTENSION,)
            await self._member.register(*where, read_only=self.rules.read_only, extensions=extensions)
            self._collector = GarbageCollector(
                store, self.config, self._disk, self._member.deleted_ledgers, self._settled
            )
            self._arm("collect", self.config.gc_wait_time_ms / 1000, self._collect)

    async def _require_indexes(self, member: BookieRegistration) -> None:
        """Check folders without a list of ledgers, Java's or older ones, for lost indexes.

        Raises:
            LedgerFileError: An index is lost.
        """
        try:
            unknown = await self._run(self._store.unknown_ledgers)
            if lost := await member.existing_ledgers(unknown):
                problem = f"no index names ledgers {lost[:5]}, which are in entry logs and were not deleted"
                raise LedgerFileError(self._store.disks.folders[0], 0, problem)
        except BaseException:
            await self._run(self._store.let_go)
            raise

    async def close(self) -> None:
        """Leave the cluster, answer requests in flight, write all entries to entry logs, stop. Idempotent."""
        if self._closing:
            return
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self._member is not None:
                await self._leave(self._member)
            await self._server.close(CLOSE_GRACE_MS)
            if self._started:
                await self._close_store()
        finally:
            self._reads.shutdown()
            self._disk.shutdown()

    async def _leave(self, member: BookieRegistration) -> None:
        """Leave the cluster. If that fails, the registration ends with the process."""
        try:
            await member.close()
        except PyLedgerError as error:
            event(log, logging.ERROR, "cluster not left cleanly", problem=error)

    async def _close_store(self) -> None:
        self._processor.close()
        if self._moving is not None:
            await asyncio.wait([self._moving])
        self._store.waits = True
        if self._disk_failed:
            await self._run(self._store.abandon)
            return
        try:
            await self._run(self._store.close)
        except StoreFullError as error:
            event(log, logging.ERROR, "disks are full, entries stay in the journal", problem=error)

    # --- inside

    def _take(self, connection: LedgerConnection, frames: list[Any], at: int) -> int:
        return self._processor.take(connection, frames, at)

    def _gone(self, connection: Any) -> None:
        if self._started:
            self._processor.on_closed(connection)

    def _full(self) -> bool:
        return self._processor.full()

    def _arm(self, name: str, delay_s: float, call: Callable[[], None]) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        if not self._closing and not self._ending:
            self._timers[name] = self._loop.call_later(delay_s, call)

    def _checkpoint(self) -> None:
        """Begin a checkpoint, unless one is running."""
        self._arm("checkpoint", self.config.flush_interval_ms / 1000, self._checkpoint)
        if self._moving is not None or self._closing or self._ending:
            return
        if (checkpoint := self._store.begin_checkpoint()) is not None:
            self._moving = self._loop.run_in_executor(self._disk, self._store.write_checkpoint, checkpoint)
            self._moving.add_done_callback(partial(self._moved, checkpoint))

    def _moved(self, checkpoint: Checkpoint, work: asyncio.Future[None]) -> None:
        self._moving = None
        error = None if work.cancelled() else work.exception()
        if error is None:
            self._store.end_checkpoint(checkpoint)
            if self._store.cached_bytes > self.config.write_cache_bytes:
                self._checkpoint()
            for connection in self._server.connections:
                connection.go_on()
        elif isinstance(error, StoreFullError):
            # Nothing is lost: the entries are in the journal. Use another disk, or become read-only.
            self._alarms.warn(f"disk is full: {error}", self._clock.monotonic_ms())
            self._store.disks.leave_out(error.path)
            everywhere = self._store.disks.all_full
            if everywhere:
                self._set_read_only(True, "all disks are full")
                self.rules.takes_recovery_adds = False
            self._arm("checkpoint", RETRY_S if everywhere else 0, self._checkpoint)
        else:
            event(log, logging.ERROR, "checkpoint failed", problem=error)
            self._fail()
            if not isinstance(error, StoreError):
                raise error

    def _check_disks(self) -> None:
        config, disks, full = self.config, self._store.disks, self._store.disks.full
        try:
            spaces = disks.check()
        except StoreError as error:
            event(log, logging.ERROR, "disk is gone", problem=error)
            self._fail()
            return
        used = max(space.used_percent for space in spaces)
        for folder in sorted(disks.full ^ full):
            event(log, logging.WARNING, "disk", folder=folder, full=folder in disks.full)
        left_out = bool(disks.full) if config.read_only_mode_on_any_disk_full_enabled else disks.all_full
        self._set_read_only(config.force_read_only_bookie or left_out, f"disk used to {used:.1f} percent")
        if self._collector is not None:
            warn, before = config.disk_usage_warn_threshold_percent, self._collector.used_percent
            self._collector.used_percent, self._collector.all_full = used, disks.all_full
            if used > warn >= before:
                self._collect()
        least_bytes = config.min_usable_size_for_high_priority_writes_bytes
        self.rules.takes_recovery_adds = any(space.free_bytes >= least_bytes for space in spaces)
        self._arm("disk", self.config.disk_check_interval_ms / 1000, self._check_disks)

    def _set_read_only(self, read_only: bool, why: str) -> None:
        if read_only != self.rules.read_only:
            self.rules.read_only = read_only
            event(log, logging.WARNING, "bookie changes", read_only=read_only, why=why)
            if self._member is not None:
                self._spawn(self._member.set_read_only(read_only))

    async def _run(self, call: Callable[..., T], *arguments: object) -> T:
        """Call a function in the thread that writes to the disk."""
        return await self._loop.run_in_executor(self._disk, call, *arguments)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _collect(self) -> None:
        """Begin to collect garbage, unless a collection is running."""
        if self._collector is not None and not self._collecting:
            self._collecting = True
            self._spawn(self._collect_garbage(self._collector))

    async def _collect_garbage(self, collector: GarbageCollector) -> None:
        try:
            await collector.collect()
        except StoreFullError as error:
            event(log, logging.WARNING, "not collected", problem=error)
        except (StoreError, OSError) as error:
            event(log, logging.ERROR, "disk failed while collecting", problem=error)
            self._fail()
        except Exception:
            log.exception("not collected")
        finally:
            self._collecting = False
            self._arm("collect", self.config.gc_wait_time_ms / 1000, self._collect)

    async def _settled(self) -> None:
        """Return when no checkpoint is running."""
        while self._moving is not None:
            await asyncio.wait([self._moving])

    def _journal_failed(self) -> None:
        self._loop.call_soon_threadsafe(self._fail)

    def _fail(self) -> None:
        """Stop writing to the disk, which has failed. The next start replays the journal."""
        self._disk_failed = True
        self._stop_serving()

    def _stop_serving(self) -> None:
        """Acknowledge no more adds and start no more work, whatever the disk check finds."""
        self._ending = True
        for timer in self._timers.values():
            timer.cancel()
        self.rules.read_only, self.rules.takes_recovery_adds = True, False
        self.ended.set()
