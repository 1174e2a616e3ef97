"""Under-replicated ledgers of a cluster: marks, locks, the autorecovery switch and delay.

The auditor marks an under-replicated ledger. A worker locks a marked ledger; the lock ends with its session.
It removes the mark when no replica is missing, unless the mark was set again meanwhile.

Source: BookKeeper meta/ZkLedgerUnderreplicationManager.java.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, MutableSequence
from dataclasses import dataclass

from pyledger.errors import (
    LedgerMetadataError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeVersionError,
    NoNodeError,
)
from pyledger.metadata.store import MetadataStore
from pyledger.wire.bookkeeper.paths import mark_path, marked_ledger
from pyledger.wire.bookkeeper.underreplication import (
    Mark,
    check_layout,
    decode_check_time,
    decode_mark,
    encode_check_time,
    encode_layout,
    encode_lock,
    encode_mark,
)

FOLDER = "underreplication"
LEDGERS, LOCKS, LAYOUT, DISABLED = "ledgers", "locks", "LAYOUT", "disable"
DELAY, LAST_CHECK = "lostBookieRecoveryDelay", "checkallledgersctime"
LEVELS = 4
"""Number of folders above a mark."""
Shuffle = Callable[[MutableSequence[str]], None]


@dataclass(frozen=True, slots=True)
class LockedLedger:
    """A marked ledger that this session has locked, and the version of its mark at that time."""

    ledger_id: int
    mark: Mark
    version: int


class UnderreplicatedLedgers:
    """The under-replicated ledgers of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """Create it in a store that is started.

        Args:
            store: The metadata store.
            root: Path of the cluster.
        """
        self._store, self._root = store, f"{root}/{FOLDER}"

    async def prepare(self) -> None:
        """Create the missing folders.

        Raises:
            LedgerMetadataError: The layout of the marks is not supported.
        """
        for name in (LEDGERS, LOCKS):
            await self._store.ensure(f"{self._root}/{name}")
        layout = f"{self._root}/{LAYOUT}"
        with contextlib.suppress(NodeExistsError):
            await self._store.create(layout, encode_layout())
        if (node := await self._store.get(layout)) is not None:
            check_layout(node.data)

    # --- marks

    async def mark(self, ledger_id: int, replicas: Collection[str], now_ms: int) -> None:
        """Mark a ledger as under-replicated.

        Args:
            ledger_id: Id of the ledger.
            replicas: Bookies whose replicas are missing.
            now_ms: Milliseconds since 1970, for a ledger that has no mark yet.
        """
        path = self._path(ledger_id)
        while True:
            node = await self._store.get(path)
            with contextlib.suppress(NodeExistsError, NodeVersionError, NoNodeError):
                if node is None:
                    await self._store.ensure(path.rpartition("/")[0])
                    await self._store.create(path, encode_mark(Mark(tuple(replicas), now_ms)))
                else:
                    before = self._read(node.data)
                    missing = tuple(dict.fromkeys((*before.replicas, *replicas)))
                    # Stored even if unchanged: by the new version, a worker sees that it was set again.
                    await self._store.set(
                        path, encode_mark(Mark(missing, before.ctime or now_ms)), node.version
                    )
                return

    async def get(self, ledger_id: int) -> Mark | None:
        """Return the mark of a ledger; None if it has none."""
        node = await self._store.get(self._path(ledger_id))
        return None if node is None else self._read(node.data)

    async def ids(self) -> AsyncIterator[int]:
        """Yield the ids of all marked ledgers, ascending."""
        async for ledger_id in self._walk(sorted):
            yield ledger_id

    # --- taking

    async def take(self, holder: str, shuffle: Shuffle, passed: Collection[int] = ()) -> LockedLedger | None:
        """Lock any marked ledger; None if there is none, or all are locked.

        Args:
            holder: Name of the worker, for operators.
            shuffle: Shuffles a list, so that workers rarely try the same ledger.
            passed: Ledgers to skip.
        """
        try:
            locked = set(await self._store.children(f"{self._root}/{LOCKS}"))
        except NoNodeError:
            return None

        def shuffled(names: Collection[str]) -> list[str]:
            order = sorted(names)
            shuffle(order)
            return order

        async for ledger_id in self._walk(shuffled):
            if ledger_id in passed or lock_name(ledger_id) in locked:
                continue
            try:
                await self._store.create(self._lock(ledger_id), encode_lock(holder), ephemeral=True)
            except NodeExistsError:
                continue
            node = await self._store.get(self._path(ledger_id))
            if node is not None:
                return LockedLedger(ledger_id, self._read(node.data), node.version)
            await self.release(ledger_id)
        return None

    async def finish(self, taken: LockedLedger) -> bool:
        """Remove a mark and its lock. Return False if the mark was set again, so that it stays."""
        path, removed = self._path(taken.ledger_id), True
        try:
            await self._store.delete(path, taken.version)
        except NodeVersionError:
            removed = False
        except NoNodeError:
            pass  # another worker has removed it
        await self.release(taken.ledger_id)
        with contextlib.suppress(NodeNotEmptyError, NoNodeError):
            for _ in range(LEVELS):
                path = path.rpartition("/")[0]
                await self._store.delete(path)
        return removed

    async def release(self, ledger_id: int) -> None:
        """Release a lock; the mark stays."""
        with contextlib.suppress(NoNodeError):
            await self._store.delete(self._lock(ledger_id))

    async def changes(self, folder: str) -> AsyncGenerator[tuple[str, ...], None]:
        """Yield the names in `LEDGERS` or `LOCKS` now, then after changes: a ledger may be free.

        A mark below an existing folder does not change these names, so callers must also poll.
        """
        states = self._store.watch_children(f"{self._root}/{folder}")
        async with contextlib.aclosing(states):
            async for names in states:
                yield names or ()

    # --- the switch, the delay, the last check

    async def enabled(self) -> bool:
        """Return True if autorecovery is enabled."""
        return await self._store.get(f"{self._root}/{DISABLED}") is None

    async def set_enabled(self, enabled: bool) -> bool:
        """Enable or disable autorecovery for the whole cluster; return True if that is a change."""
        if not enabled:
            await self.prepare()
        try:
            if enabled:
                await self._store.delete(f"{self._root}/{DISABLED}")
            else:
                await self._store.create(f"{self._root}/{DISABLED}")
        except (NodeExistsError, NoNodeError):
            return False
        return True

    async def watch_enabled(self) -> AsyncGenerator[bool, None]:
        """Yield whether autorecovery is enabled, now and after each change."""
        states = self._store.watch(f"{self._root}/{DISABLED}")
        async with contextlib.aclosing(states):
            async for node in states:
                yield node is None

    async def delay_s(self, default_s: int) -> int:
        """Return the recovery delay of a lost bookie in seconds; store the default if none is stored."""
        path = f"{self._root}/{DELAY}"
        with contextlib.suppress(NodeExistsError):
            if await self._store.get(path) is None:
                await self._store.create(path, b"%d" % default_s)
        node = await self._store.get(path)
        return default_s if node is None else self._seconds(node.data)

    async def set_delay_s(self, delay_s: int) -> None:
        """Set the recovery delay of lost bookies in seconds. It also applies to bookies already lost."""
        await self.prepare()
        await self.delay_s(delay_s)
        await self._store.set(f"{self._root}/{DELAY}", b"%d" % delay_s)

    async def watch_delay(self) -> AsyncGenerator[tuple[int, int], None]:
        """Yield the stored delay in seconds and its version, now and after each write."""
        states = self._store.watch(f"{self._root}/{DELAY}")
        async with contextlib.aclosing(states):
            async for node in states:
                if node is not None:
                    yield self._seconds(node.data), node.version

    async def last_check_ms(self) -> int | None:
        """Return the time of the last check of all ledgers (ms since 1970); None if there was none."""
        node = await self._store.get(f"{self._root}/{LAST_CHECK}")
        return None if node is None or not node.data else decode_check_time(node.data)

    async def set_last_check_ms(self, time_ms: int) -> None:
        """Store the time of the last check of all ledgers, in milliseconds since 1970."""
        path, data = f"{self._root}/{LAST_CHECK}", encode_check_time(time_ms)
        try:
            await self._store.create(path, data)
        except NodeExistsError:
            await self._store.set(path, data)

    # --- inside

    def _path(self, ledger_id: int) -> str:
        return f"{self._root}/{LEDGERS}/{mark_path(ledger_id)}"

    def _lock(self, ledger_id: int) -> str:
        return f"{self._root}/{LOCKS}/{lock_name(ledger_id)}"

    @staticmethod
    def _read(data: bytes) -> Mark:
        """Decode a mark; a malformed mark still marks its ledger."""
        try:
            return decode_mark(data)
        except LedgerMetadataError:
            return Mark(())

    @staticmethod
    def _seconds(data: bytes) -> int:
        text = data.strip()
        return int(text) if text.isdigit() else 0

    async def _walk(self, order: Callable[[Collection[str]], list[str]]) -> AsyncIterator[int]:
        async for path in self._below("", LEVELS, order):
            if (ledger_id := marked_ledger(path)) is not None:
                yield ledger_id

    async def _below(
        self, part: str, levels: int, order: Callable[[Collection[str]], list[str]]
    ) -> AsyncIterator[str]:
        try:
            names = await self._store.children(f"{self._root}/{LEDGERS}/{part}".rstrip("/"))
        except NoNodeError:
            return  # the last mark there was deleted
        for name in order(names):
            if levels == 0:
                yield f"{part}{name}"
            else:
                async for path in self._below(f"{part}{name}/", levels - 1, order):
                    yield path


def lock_name(ledger_id: int) -> str:
    """Return the name of a ledger's lock."""
    return mark_path(ledger_id).rpartition("/")[2]
