"""Registrations of bookies, their addresses, and the cookies that identify them.

Source: BookKeeper discover/ZKRegistrationManager.java, ZKRegistrationClient.java.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from pyledger.errors import BookieExistsError, LedgerMetadataError, NodeExistsError, NoNodeError
from pyledger.metadata.store import MetadataStore
from pyledger.wire.bookkeeper.bookies import (
    Cookie,
    Registration,
    check_bookie_id,
    decode_cookie,
    decode_registration,
    encode_cookie,
    encode_registration,
)

AVAILABLE, READ_ONLY, COOKIES = "available", "readonly", "cookies"


@dataclass(frozen=True, slots=True)
class RegisteredBookies:
    """Registered bookies by id; None for a malformed registration, which cannot be reached."""

    writable: dict[str, Registration | None]
    read_only: dict[str, Registration | None]

    def address(self, bookie_id: str) -> tuple[str, int] | None:
        """Return host and port; of a bookie that is not registered, those in its id."""
        found = self.writable.get(bookie_id) or self.read_only.get(bookie_id)
        if found is not None:
            return found.address
        with contextlib.suppress(LedgerMetadataError):
            return decode_registration(bookie_id, b"").address
        return None


class BookieTable:
    """The bookies of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """Create it in a store that is started.

        Args:
            store: The metadata store.
            root: Path of the cluster.
        """
        self._store, self._root = store, root

    async def registered(self) -> RegisteredBookies:
        """Return all registered bookies."""
        return RegisteredBookies(await self._list(read_only=False), await self._list(read_only=True))

    async def watch(self) -> AsyncGenerator[RegisteredBookies, None]:
        """Yield all registered bookies now, then after each change.

        Raises:
            MetadataUnreachableError: The store can no longer be watched.
        """
        changed = asyncio.Event()

        async def follow(path: str) -> None:
            states = self._store.watch_children(path)
            try:
                async with contextlib.aclosing(states):
                    async for _ in states:
                        changed.set()
            finally:
                changed.set()

        folders = (self._folder(read_only=False), self._folder(read_only=True))
        tasks = [asyncio.get_running_loop().create_task(follow(folder)) for folder in folders]
        try:
            last = None
            while True:
                await changed.wait()
                changed.clear()
                for task in tasks:
                    if task.done():
                        await task  # raises the error that ended it
                found = await self.registered()
                if found != last:
                    last = found
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def register(
        self, bookie_id: str, registration: Registration, *, read_only: bool = False, timeout_ms: int = 10_000
    ) -> None:
        """Register a bookie until this session ends.

        To change between writable and read-only, the new node is created before the old one is deleted.

        Args:
            bookie_id: Its name.
            registration: Where it listens.
            read_only: Whether it rejects new entries.
            timeout_ms: How long to wait for the node of an earlier session to disappear.

        Raises:
            BookieExistsError: Another session has registered the id.
            LedgerMetadataError: The id is malformed.
        """
        path = f"{self._folder(read_only=read_only)}/{check_bookie_id(bookie_id)}"
        await self._store.ensure(self._folder(read_only=read_only))
        data = encode_registration(registration)
        try:
            await self._store.create(path, data, ephemeral=True)
        except NodeExistsError:
            await self._wait_for_end(path, bookie_id, timeout_ms)
            try:
                await self._store.create(path, data, ephemeral=True)
            except NodeExistsError:
                raise BookieExistsError(bookie_id) from None
        await self._remove(bookie_id, read_only=not read_only)

    async def unregister(self, bookie_id: str) -> None:
        """Remove the registration of a bookie."""
        await self._remove(bookie_id, read_only=False)
        await self._remove(bookie_id, read_only=True)

    # --- cookies

    async def cookie(self, bookie_id: str) -> tuple[Cookie, int] | None:
        """Return a bookie's cookie and its version; None for a new bookie."""
        node = await self._store.get(self._cookie_path(bookie_id))
        return None if node is None else (decode_cookie(node.data), node.version)

    async def put_cookie(self, bookie_id: str, cookie: Cookie, version: int | None = None) -> None:
        """Store a bookie's cookie.

        Args:
            bookie_id: Id of the bookie.
            cookie: The cookie.
            version: Version of the cookie that it replaces; None: no cookie may exist.

        Raises:
            NodeExistsError: A cookie exists.
            NodeVersionError: Another client has changed it.
        """
        path, data = self._cookie_path(bookie_id), encode_cookie(cookie)
        if version is None:
            await self._store.ensure(f"{self._root}/{COOKIES}")
            await self._store.create(path, data)
        else:
            await self._store.set(path, data, version)

    async def delete_cookie(self, bookie_id: str) -> None:
        """Delete a bookie's cookie. Its ledgers must have been re-replicated before.

        Raises:
            NoNodeError: It has no cookie.
        """
        await self._store.delete(self._cookie_path(bookie_id))

    async def known(self) -> tuple[str, ...]:
        """Return the ids of all bookies with a cookie, registered or not."""
        try:
            return await self._store.children(f"{self._root}/{COOKIES}")
        except NoNodeError:
            return ()

    # --- inside

    def _folder(self, *, read_only: bool) -> str:
        return f"{self._root}/{AVAILABLE}" + (f"/{READ_ONLY}" if read_only else "")

    def _cookie_path(self, bookie_id: str) -> str:
        return f"{self._root}/{COOKIES}/{check_bookie_id(bookie_id)}"

    async def _list(self, *, read_only: bool) -> dict[str, Registration | None]:
        folder, found = self._folder(read_only=read_only), {}
        try:
            names = await self._store.children(folder)
        except NoNodeError:
            return {}
        for name in names:
            if not read_only and name == READ_ONLY:
                continue
            node = await self._store.get(f"{folder}/{name}")
            if node is not None:
                found[name] = registration_of(name, node.data)
        return found

    async def _remove(self, bookie_id: str, *, read_only: bool) -> None:
        with contextlib.suppress(NoNodeError):
            await self._store.delete(f"{self._folder(read_only=read_only)}/{bookie_id}")

    async def _wait_for_end(self, path: str, bookie_id: str, timeout_ms: int) -> None:
        states = self._store.watch(path)
        async with contextlib.aclosing(states):
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    async for node in states:
                        if node is None:
                            return
            except TimeoutError:
                raise BookieExistsError(bookie_id) from None


def registration_of(bookie_id: str, data: bytes) -> Registration | None:
    """Decode a registration; None if it is malformed, so that it does not affect other bookies."""
    try:
        return decode_registration(bookie_id, data)
    except LedgerMetadataError:
        return None
