"""A bookie in a cluster: its cookie, its registration, and the ledgers that were deleted.

The cookie proves that a bookie still has its disks: it is in each of its folders and in the metadata store. A
bookie that lost a disk would answer "no such entry" for acknowledged entries, so it does not start.

Source: BookKeeper bookie/Cookie.java, LegacyCookieValidation.java, BookieStateManager.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from pyledger.errors import BookieCookieError, BookieExistsError, NoSuchLedgerError, PyLedgerError
from pyledger.log_events import event, logger
from pyledger.metadata.cancellation import end_if_cancelled
from pyledger.metadata.cluster import Cluster
from pyledger.store.bookkeeper.cookie import check_cookies, has_entries, has_grown, stamp_cookies
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.wire.bookkeeper.bookies import ENDPOINT_ID, Cookie, Endpoint, Registration, check_bookie_id

log = logger("bookie")

RETRY_S = 1.0
NAME_TIMEOUT_MS = 30_000
"""The session of an earlier process lasts 10 s, and servers expire sessions only at their own ticks."""


class BookieRegistration:
    """One bookie of a cluster, from `start` to `close`.

    Attributes:
        bookie_id: Its id.
    """

    def __init__(
        self,
        cluster: Cluster,
        bookie_id: str,
        paths: BookiePaths,
        lost: Callable[[], None],
        *,
        may_grow: bool = False,
        name_timeout_ms: int = NAME_TIMEOUT_MS,
    ) -> None:
        """Create a member of a cluster; `start` starts it.

        Args:
            cluster: A cluster that is not started; this object starts and closes it.
            bookie_id: Its id.
            paths: Its folders.
            lost: Called when another process has registered its id.
            may_grow: Whether folders for ledgers may be added.
            name_timeout_ms: How long to wait for another session that has its id.
        """
        self.bookie_id = check_bookie_id(bookie_id)
        self._cluster, self._lost = cluster, lost
        self._paths, self._may_grow, self._name_timeout_ms = paths, may_grow, name_timeout_ms
        self._registration: Registration | None = None
        self._read_only = False
        self._follow: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._suspects: set[int] = set()

    async def start(self) -> None:
        """Connect, and check the cookie; create one for a new bookie.

        Raises:
            MetadataUnreachableError: The metadata store does not answer.
            LedgerMetadataError: There is no cluster.
            BookieCookieError: The bookie does not have its earlier disks.
        """
        await self._cluster.start()
        await self._cluster.check()
        paths = self._paths
        instance_id = await self._cluster.instance_id()
        cookie = Cookie(self.bookie_id, paths.journals, paths.ledgers, instance_id, paths.ledgers)
        stored = await self._cluster.bookies.cookie(self.bookie_id)
        if stored is None and not any(map(has_entries, paths.all)):
            stamp_cookies(paths.all, cookie)
            await self._cluster.bookies.put_cookie(self.bookie_id, cookie)
        elif stored is not None and self._may_grow and has_grown(stored[0], cookie):
            await self._grow(stored[0], stored[1], cookie)
        else:
            check_cookies(paths.all, cookie, None if stored is None else stored[0])

    async def _grow(self, before: Cookie, version: int, cookie: Cookie) -> None:
        """Add new folders."""
        new = [path for path in cookie.ledger_dirs if path not in before.ledger_dirs]
        old = [path for path in self._paths.all if path not in new]
        check_cookies(old, before, before, also=cookie)
        if found := next(filter(has_entries, new), None):
            raise BookieCookieError(self.bookie_id, f"{found} is to be a new folder, but has entries")
        # The metadata store last: until then the next start finds the new folders and repeats this.
        stamp_cookies(self._paths.all, cookie)
        await self._cluster.bookies.put_cookie(self.bookie_id, cookie, version)

    async def register(
        self, host: str, port: int, *, read_only: bool, extensions: tuple[str, ...] = ()
    ) -> None:
        """Register for clients, in this session and in later ones.

        Args:
            host: Host for clients.
            port: Port for clients.
            read_only: Whether it rejects entries.
            extensions: Protocol extensions that it supports.

        Raises:
            BookieExistsError: Another process has registered its id.
            MetadataUnreachableError: The metadata store does not answer.
        """
        self._registration = Registration((Endpoint(ENDPOINT_ID, port, host, extensions=extensions),))
        self._read_only = read_only
        sessions = self._cluster.store.sessions()
        await anext(sessions)
        await self._register()

        async def follow() -> None:
            async with contextlib.aclosing(sessions):
                async for session in sessions:
                    event(log, logging.WARNING, "new session", bookie=self.bookie_id, session=session)
                    await self._register_with_retries()

        self._follow = asyncio.get_running_loop().create_task(follow())

    async def set_read_only(self, read_only: bool) -> None:
        """Publish whether it rejects entries."""
        if read_only != self._read_only and self._registration is not None:
            self._read_only = read_only
            await self._register_with_retries()

    async def deleted_ledgers(self, ledger_ids: list[int]) -> list[int]:
        """Return the ledgers that have had no metadata in two successive calls.

        Each is requested by id, because a listing of all ledgers may be incomplete.

        Raises:
            MetadataUnreachableError: The metadata store does not answer.
        """
        missing = set()
        for ledger_id in ledger_ids:
            try:
                await self._cluster.ledgers.get(ledger_id)
            except NoSuchLedgerError:
                missing.add(ledger_id)
        gone, self._suspects = missing & self._suspects, missing
        return sorted(gone)

    async def existing_ledgers(self, ledger_ids: Iterable[int]) -> list[int]:
        """Return the ledgers that have metadata.

        Raises:
            MetadataUnreachableError: The metadata store does not answer.
        """
        found = []
        for ledger_id in sorted(ledger_ids):
            with contextlib.suppress(NoSuchLedgerError):
                await self._cluster.ledgers.get(ledger_id)
                found.append(ledger_id)
        return found

    async def close(self) -> None:
        """Disconnect, which ends the session and its registration. Idempotent."""
        if self._follow is not None:
            self._follow.cancel()
            await asyncio.gather(self._follow, return_exceptions=True)
            self._follow = None
        await self._cluster.close()

    async def _register(self) -> None:
        assert self._registration is not None
        async with self._lock:
            await self._cluster.bookies.register(
                self.bookie_id,
                self._registration,
                read_only=self._read_only,
                timeout_ms=self._name_timeout_ms,
            )

    async def _register_with_retries(self) -> None:
        """Register, and retry until that succeeds."""
        while True:
            try:
                await self._register()
            except BookieExistsError as error:
                event(log, logging.ERROR, "name taken", bookie=self.bookie_id, problem=error)
                self._lost()
                return
            except PyLedgerError as error:
                # The store does not answer, or has unexpected nodes. A serving bookie must be found again.
                event(log, logging.WARNING, "not registered", bookie=self.bookie_id, problem=error)
                end_if_cancelled()
                await asyncio.sleep(RETRY_S)
            else:
                return
