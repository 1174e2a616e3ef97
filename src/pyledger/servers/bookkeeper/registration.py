"""A bookie's place in a cluster: its cookie, its registration, the ledgers that are gone.

The cookie proves that a bookie has the disks that it had: it lies in each of its folders and in the metadata
store. A bookie that lost a disk would say "no such entry" of what it had acknowledged, so it does not start.

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
"""A session that a bookie of before has left lasts 10 s; the servers end it at a tick of theirs only."""


class BookieRegistration:
    """One bookie of a cluster, from `start` to `close`.

    Attributes:
        bookie_id: Its name.
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
        """A member that begins with `start`.

        Args:
            cluster: Not started yet; this object starts and closes it.
            bookie_id: Its name.
            paths: All of its folders.
            lost: Called when another process has taken its name.
            may_grow: Whether it may have more folders for ledgers than before.
            name_timeout_ms: How long another session that has its name is waited for.
        """
        self.bookie_id = check_bookie_id(bookie_id)
        self._cluster, self._lost = cluster, lost
        self._paths, self._may_grow, self._name_timeout_ms = paths, may_grow, name_timeout_ms
        self._registration: Registration | None = None
        self._read_only = False
        self._follow: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._suspects: set[int] = set()

    async def start(self) -> None:
        """Connect, and check the cookie or, for a new bookie, make one.

        Raises:
            MetadataUnreachableError: Nobody answers.
            LedgerMetadataError: There is no cluster.
            BookieCookieError: These are not the disks that the bookie had.
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
        """Take over folders that are new."""
        new = [path for path in cookie.ledger_dirs if path not in before.ledger_dirs]
        old = [path for path in self._paths.all if path not in new]
        check_cookies(old, before, before, also=cookie)
        if found := next(filter(has_entries, new), None):
            raise BookieCookieError(self.bookie_id, f"{found} is to be a new folder, and holds entries")
        # The registry last: until then a start finds that it has grown, and does this again.
        stamp_cookies(self._paths.all, cookie)
        await self._cluster.bookies.put_cookie(self.bookie_id, cookie, version)

    async def register(
        self, host: str, port: int, *, read_only: bool, extensions: tuple[str, ...] = ()
    ) -> None:
        """Be there for clients, in this session and in those that follow it.

        Args:
            host: Where clients find it.
            port: The same.
            read_only: Whether it takes no entries.
            extensions: Of the protocol, that it speaks.

        Raises:
            BookieExistsError: Another process has its name.
            MetadataUnreachableError: Nobody answers.
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
                    await self._register_at_last()

        self._follow = asyncio.get_running_loop().create_task(follow())

    async def set_read_only(self, read_only: bool) -> None:
        """Tell clients whether it takes entries."""
        if read_only != self._read_only and self._registration is not None:
            self._read_only = read_only
            await self._register_at_last()

    async def deleted_ledgers(self, ledger_ids: list[int]) -> list[int]:
        """Those that are in no metadata, for the second time in a row.

        Each is asked for by name: a list of all could lack one for any reason.

        Raises:
            MetadataUnreachableError: Nobody answers.
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
        """Those that are in the metadata.

        Raises:
            MetadataUnreachableError: Nobody answers.
        """
        found = []
        for ledger_id in sorted(ledger_ids):
            with contextlib.suppress(NoSuchLedgerError):
                await self._cluster.ledgers.get(ledger_id)
                found.append(ledger_id)
        return found

    async def close(self) -> None:
        """Leave. The registration ends with the session; whoever has the name by now keeps it. Idempotent."""
        if self._follow is not None:
            self._follow.cancel()
            await asyncio.gather(self._follow, return_exceptions=True)
            self._follow = None
        await self._cluster.close()

    async def _register(self) -> None:
        assert self._registration is not None
        async with self._turn:
            await self._cluster.bookies.register(
                self.bookie_id,
                self._registration,
                read_only=self._read_only,
                timeout_ms=self._name_timeout_ms,
            )

    async def _register_at_last(self) -> None:
        """Register, as often as it takes."""
        while True:
            try:
                await self._register()
            except BookieExistsError as error:
                event(log, logging.ERROR, "name taken", bookie=self.bookie_id, problem=error)
                self._lost()
                return
            except PyLedgerError as error:
                # Nobody answers, or what is there does not fit, now: who serves shall be found again.
                event(log, logging.WARNING, "not registered", bookie=self.bookie_id, problem=error)
                end_if_cancelled()
                await asyncio.sleep(RETRY_S)
            else:
                return
