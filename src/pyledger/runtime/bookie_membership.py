"""A bookie's place in a cluster: its cookie, its registration, the ledgers that are gone.

The cookie proves that a bookie has the disks that it had: it lies in each of its folders and in the metadata
store. A bookie that lost a disk would say "no such entry" of what it had acknowledged, so it does not start.

Source: BookKeeper bookie/Cookie.java, LegacyCookieValidation.java, BookieStateManager.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from pyledger.errors import BookieExistsError, MetadataUnreachableError, NoSuchLedgerError
from pyledger.log import event, logger
from pyledger.metadata.cluster import Cluster
from pyledger.store.bookie_cookie import check_cookies, has_entries, stamp_cookies
from pyledger.wire.ledger.bookies import ENDPOINT_ID, Cookie, Endpoint, Registration, check_bookie_id

log = logger("bookie")

RETRY_S = 1.0


class BookieMembership:
    """One bookie of a cluster, from `start` to `close`.

    Attributes:
        bookie_id: Its name.
    """

    def __init__(
        self, cluster: Cluster, bookie_id: str, journal_path: str, ledgers_path: str, lost: Callable[[], None]
    ) -> None:
        """A member that begins with `start`.

        Args:
            cluster: Not started yet; this object starts and closes it.
            bookie_id: Its name.
            journal_path: Folder of its journal.
            ledgers_path: Folder of its entry logs and indexes.
            lost: Called when another process has taken its name.
        """
        self.bookie_id = check_bookie_id(bookie_id)
        self._cluster, self._lost = cluster, lost
        self._journal_path, self._ledgers_path = journal_path, ledgers_path
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
        cookie = Cookie(
            self.bookie_id,
            (self._journal_path,),
            (self._ledgers_path,),
            await self._cluster.instance_id(),
            (self._ledgers_path,),
        )
        folders = (self._journal_path, self._ledgers_path)
        stored = await self._cluster.bookies.cookie(self.bookie_id)
        if stored is None and not any(map(has_entries, folders)):
            stamp_cookies(folders, cookie)
            await self._cluster.bookies.put_cookie(self.bookie_id, cookie)
        else:
            check_cookies(folders, cookie, None if stored is None else stored[0])

    async def register(self, host: str, port: int, *, read_only: bool) -> None:
        """Be there for clients, in this session and in those that follow it.

        Raises:
            BookieExistsError: Another process has its name.
            MetadataUnreachableError: Nobody answers.
        """
        self._registration = Registration((Endpoint(ENDPOINT_ID, port, host),))
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

    async def close(self) -> None:
        """Leave. Idempotent."""
        if self._follow is not None:
            self._follow.cancel()
            await asyncio.gather(self._follow, return_exceptions=True)
            self._follow = None
            with contextlib.suppress(MetadataUnreachableError):
                await self._cluster.bookies.unregister(self.bookie_id)
        await self._cluster.close()

    async def _register(self) -> None:
        assert self._registration is not None
        async with self._turn:
            await self._cluster.bookies.register(
                self.bookie_id, self._registration, read_only=self._read_only
            )

    async def _register_at_last(self) -> None:
        """Register, as often as it takes."""
        while True:
            try:
                await self._register()
            except MetadataUnreachableError as error:
                event(log, logging.WARNING, "not registered", bookie=self.bookie_id, problem=error)
                await asyncio.sleep(RETRY_S)
            except BookieExistsError as error:
                event(log, logging.ERROR, "name taken", bookie=self.bookie_id, problem=error)
                self._lost()
                return
            else:
                return
