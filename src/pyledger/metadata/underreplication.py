"""Ledgers that lack copies, as the whole cluster knows them: marks, locks, the switch, the delay.

Whoever finds a ledger that lacks copies marks it; a worker takes a marked ledger by a lock, which ends with
its session, and removes the mark when nothing is missing any more. A mark that was set again meanwhile stays.

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
"""Folders above a mark."""
Shuffle = Callable[[MutableSequence[str]], None]


@dataclass(frozen=True, slots=True)
class LockedLedger:
    """A marked ledger whose lock is ours, and the version of its mark as it was taken."""

    ledger_id: int
    mark: Mark
    version: int


class UnderreplicatedLedgers:
    """The marked ledgers of one cluster."""

    def __init__(self, store: MetadataStore, root: str) -> None:
        """Of a store that is started.

        Args:
            store: Where they are.
            root: Path of the cluster.
        """
        self._store, self._root = store, f"{root}/{FOLDER}"

    async def prepare(self) -> None:
        """Make what is missing of the folders.

        Raises:
            LedgerMetadataError: Marks are laid out in another way.
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
        """Say that a ledger lacks copies.

        Args:
            ledger_id: Which.
            replicas: Bookies whose copies are missing.
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
                    told = tuple(dict.fromkeys((*before.replicas, *replicas)))
                    # Stored although it may say the same: a worker that has it must see that it is set again.
                    await self._store.set(path, encode_mark(Mark(told, before.ctime or now_ms)), node.version)
                return

    async def get(self, ledger_id: int) -> Mark | None:
        """The mark of a ledger; None: it has none."""
        node = await self._store.get(self._path(ledger_id))
        return None if node is None else self._read(node.data)

    async def ids(self) -> AsyncIterator[int]:
        """Ids of all marked ledgers, ascending."""
        async for ledger_id in self._walk(sorted):
            yield ledger_id

    # --- taking

    async def take(self, holder: str, shuffle: Shuffle, passed: Collection[int] = ()) -> LockedLedger | None:
        """Lock any marked ledger; None: there is none, or others have them.

        Args:
            holder: Who locks it, for people.
            shuffle: Brings a list into an order by chance, so that workers seldom meet.
            passed: Ledgers that are not wanted.
        """
        try:
            locked = set(await self._store.children(f"{self._root}/{LOCKS}"))
        except NoNodeError:
            return None

        def by_chance(names: Collection[str]) -> list[str]:
            order = sorted(names)
            shuffle(order)
            return order

        async for ledger_id in self._walk(by_chance):
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
        """Remove a mark and its lock; False: it was set again meanwhile, so it stays."""
        path, removed = self._path(taken.ledger_id), True
        try:
            await self._store.delete(path, taken.version)
        except NodeVersionError:
            removed = False
        except NoNodeError:
            pass  # somebody else was as far
        await self.release(taken.ledger_id)
        with contextlib.suppress(NodeNotEmptyError, NoNodeError):
            for _ in range(LEVELS):
                path = path.rpartition("/")[0]
                await self._store.delete(path)
        return removed

    async def release(self, ledger_id: int) -> None:
        """Give a lock back; the mark stays."""
        with contextlib.suppress(NoNodeError):
            await self._store.delete(self._lock(ledger_id))

    async def changes(self, folder: str) -> AsyncGenerator[tuple[str, ...], None]:
        """Names in `LEDGERS` or `LOCKS` now, then when they change: there may be something to take.

        A mark below a folder that exists changes nothing there: whoever waits looks from time to time too.
        """
        states = self._store.watch_children(f"{self._root}/{folder}")
        async with contextlib.aclosing(states):
            async for names in states:
                yield names or ()

    # --- the switch, the delay, the last check

    async def enabled(self) -> bool:
        """Whether copies are made at all."""
        return await self._store.get(f"{self._root}/{DISABLED}") is None

    async def set_enabled(self, enabled: bool) -> bool:
        """Switch it on or off for the whole cluster; whether that is a change."""
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
        """Whether copies are made now, then whenever that changes."""
        states = self._store.watch(f"{self._root}/{DISABLED}")
        async with contextlib.aclosing(states):
            async for node in states:
                yield node is None

    async def delay_s(self, default_s: int) -> int:
        """How many seconds a lost bookie is waited for; stores the default where nothing is stored yet."""
        path = f"{self._root}/{DELAY}"
        with contextlib.suppress(NodeExistsError):
            if await self._store.get(path) is None:
                await self._store.create(path, b"%d" % default_s)
        node = await self._store.get(path)
        return default_s if node is None else self._seconds(node.data)

    async def set_delay_s(self, delay_s: int) -> None:
        """Let lost bookies be waited for so many seconds; the auditor also acts on those that are lost."""
        await self.prepare()
        await self.delay_s(delay_s)
        await self._store.set(f"{self._root}/{DELAY}", b"%d" % delay_s)

    async def watch_delay(self) -> AsyncGenerator[tuple[int, int], None]:
        """The stored delay in seconds and its version, now, then after each change, to whatever value."""
        states = self._store.watch(f"{self._root}/{DELAY}")
        async with contextlib.aclosing(states):
            async for node in states:
                if node is not None:
                    yield self._seconds(node.data), node.version

    async def last_check_ms(self) -> int | None:
        """When all ledgers were checked, in milliseconds since 1970; None: never."""
        node = await self._store.get(f"{self._root}/{LAST_CHECK}")
        return None if node is None or not node.data else decode_check_time(node.data)

    async def set_last_check_ms(self, time_ms: int) -> None:
        """All ledgers were checked, at a time in milliseconds since 1970."""
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
        """A mark that cannot be read still marks its ledger."""
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
            return  # the last mark there is gone
        for name in order(names):
            if levels == 0:
                yield f"{part}{name}"
            else:
                async for path in self._below(f"{part}{name}/", levels - 1, order):
                    yield path


def lock_name(ledger_id: int) -> str:
    """Name of a ledger's lock."""
    return mark_path(ledger_id).rpartition("/")[2]
