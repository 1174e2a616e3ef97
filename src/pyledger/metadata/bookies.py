"""Which bookies there are, where they listen, and the cookies that prove who they are.

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
    """Bookies that are there, by id; None: what it registered with is malformed, so it cannot be reached."""

    writable: dict[str, Registration | None]
    read_only: dict[str, Registration | None]

    def address(self, bookie_id: str) -> tuple[str, int] | None:
        """Host and port; of a bookie that is not registered, what its id says."""
        found = self.writable.get(bookie_id) or self.read_only.get(bookie_id)
        if found is not None:
            return found.address
        with contextlib.suppress(LedgerMetadataError):
            return decode_registration(bookie_id, b"").address
        return None


class BookieTable:
    """The bookies of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """Of a store that is started.

        Args:
            store: Where they register.
            root: Path of the cluster.
        """
        self._store, self._root = store, root

    async def registered(self) -> RegisteredBookies:
        """All bookies that are there now."""
        return RegisteredBookies(await self._list(read_only=False), await self._list(read_only=True))

    async def watch(self) -> AsyncGenerator[RegisteredBookies, None]:
        """All bookies that are there now, then whenever one comes or goes.

        Raises:
            MetadataUnreachableError: The store cannot tell any more.
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
            told = None
            while True:
                await changed.wait()
                changed.clear()
                for task in tasks:
                    if task.done():
                        await task  # raises what ended it
                found = await self.registered()
                if found != told:
                    told = found
                    yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def register(
        self, bookie_id: str, registration: Registration, *, read_only: bool = False, timeout_ms: int = 10_000
    ) -> None:
        """Say that a bookie is there, for as long as this session lives.

        It changes sides in one go: the new node is there before the old one goes.

        Args:
            bookie_id: Its name.
            registration: Where it listens.
            read_only: Whether it takes no new entries.
            timeout_ms: How long a node of an earlier session is waited for to end.

        Raises:
            BookieExistsError: Another session keeps the id.
            LedgerMetadataError: The id is none.
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
        """Say that a bookie is gone."""
        await self._remove(bookie_id, read_only=False)
        await self._remove(bookie_id, read_only=True)

    # --- cookies

    async def cookie(self, bookie_id: str) -> tuple[Cookie, int] | None:
        """A bookie's cookie and its version; None: it has none, so it is new."""
        node = await self._store.get(self._cookie_path(bookie_id))
        return None if node is None else (decode_cookie(node.data), node.version)

    async def put_cookie(self, bookie_id: str, cookie: Cookie, version: int | None = None) -> None:
        """Store a bookie's cookie.

        Args:
            bookie_id: Whose.
            cookie: What.
            version: Of the one that it replaces; None: there must be none.

        Raises:
            NodeExistsError: There is one.
            NodeVersionError: Somebody else has changed it.
        """
        path, data = self._cookie_path(bookie_id), encode_cookie(cookie)
        if version is None:
            await self._store.ensure(f"{self._root}/{COOKIES}")
            await self._store.create(path, data)
        else:
            await self._store.set(path, data, version)

    async def delete_cookie(self, bookie_id: str) -> None:
        """Forget a bookie, whose ledgers must have been copied before.

        Raises:
            NoNodeError: It has no cookie.
        """
        await self._store.delete(self._cookie_path(bookie_id))

    async def known(self) -> tuple[str, ...]:
        """Ids of all bookies that ever were, whether they are there or not."""
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
    """What a bookie registered with; None: it cannot be read, and must not hinder the others."""
    try:
        return decode_registration(bookie_id, data)
    except LedgerMetadataError:
        return None
