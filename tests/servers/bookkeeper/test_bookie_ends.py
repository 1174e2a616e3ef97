"""A bookie that cannot go on ends, whatever else fails at the same time, and takes nothing back meanwhile."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookie import BookieConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.config.net import TlsConfig
from pyledger.errors import MetadataUnreachableError, StoreIOError
from pyledger.metadata.cluster import Cluster, locate
from pyledger.metadata.sqlite import SqliteStore
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.servers.autorecovery import in_bookie, service
from pyledger.servers.autorecovery.in_bookie import BookiesWithAutoRecovery
from pyledger.servers.autorecovery.service import AutoRecovery
from pyledger.servers.bookkeeper.registration import BookieRegistration
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.store.bookkeeper.folder import BookiePaths, read_mark
from pyledger.store.bookkeeper.store import BookieStore, Checkpoint
from tests.servers.bookkeeper.bookie_peer import Peer, entry_of

ENDS_S = 20
"""Far longer than it takes; what is tested would wait for ever."""


class BrokenStore(SqliteStore):
    """A store whose file cannot be written once a test sets `broken`."""

    broken = False

    async def delete(self, path: str, version: int | None = None) -> None:
        if self.broken:
            raise MetadataUnreachableError("here", "disk I/O error")
        await super().delete(path, version)


class StuckStore(SqliteStore):
    """A store that does not answer, and raises only when it is cancelled."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.stuck, self.called = False, asyncio.Event()

    async def create(self, *arguments: Any, **options: Any) -> str:
        if self.stuck:
            await no_answer(self.called)
        return await super().create(*arguments, **options)


async def no_answer(called: asyncio.Event) -> None:
    called.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise MetadataUnreachableError("here", "disk I/O error") from None


async def formatted(folder: Path) -> None:
    async with locate(f"sqlite:{folder / 'metadata.db'}") as cluster:
        await cluster.format()


def test_autorecovery_ends_though_its_vote_cannot_be_taken_back(tmp_path: Path) -> None:
    async def play() -> None:
        await formatted(tmp_path)
        store = BrokenStore(tmp_path / "metadata.db")
        cluster = Cluster(store)
        candidate = AutoRecovery(cluster, "one")
        await candidate.start()
        async for _ in store.watch_children("/ledgers/underreplication/auditorelection"):
            if await cluster.election.auditor() == "one":
                break
        store.broken = True
        await asyncio.wait_for(candidate.close(), ENDS_S)

    asyncio.run(play())


def test_a_bookie_leaves_though_its_registration_fails(tmp_path: Path) -> None:
    async def play() -> None:
        await formatted(tmp_path)
        store = StuckStore(tmp_path / "metadata.db")
        bookie = BookieRegistration(Cluster(store), "b1", BookiePaths.below(tmp_path / "b1"), lambda: None)
        await bookie.start()
        await bookie.register("127.0.0.1", 3181, read_only=False)
        store.stuck = True
        changing = asyncio.create_task(bookie.set_read_only(True))
        await store.called.wait()
        changing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(changing, ENDS_S)
        await bookie.close()

    asyncio.run(play())


class IdleBookies:
    """Bookies that do nothing."""

    address = "here"

    def __init__(self) -> None:
        self.ended, self.is_closed = asyncio.Event(), False

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


def beside(bookies: IdleBookies) -> BookiesWithAutoRecovery:
    return BookiesWithAutoRecovery(
        bookies, "sqlite:nowhere", "one", AutoRecoveryConfig(), BookkeeperConfig(), TlsConfig()
    )


def test_autorecovery_that_cannot_start_does_not_restart_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> None:
        called = asyncio.Event()

        async def start(_self: AutoRecovery) -> None:
            await no_answer(called)

        monkeypatch.setattr(service.AutoRecovery, "start", start)
        monkeypatch.setattr(in_bookie, "CLOSE_S", ENDS_S)
        bookies = IdleBookies()
        both = beside(bookies)
        await both.start()
        await called.wait()
        await both.close()
        assert both._autorecovery is not None
        assert both._autorecovery.cancelled()
        assert bookies.is_closed

    asyncio.run(play())


def test_bookies_end_though_autorecovery_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        called, answer = asyncio.Event(), asyncio.Event()

        async def start(_self: AutoRecovery) -> None:
            called.set()
            while not answer.is_set():
                try:
                    await answer.wait()
                except asyncio.CancelledError:
                    continue

        monkeypatch.setattr(service.AutoRecovery, "start", start)
        monkeypatch.setattr(in_bookie, "CLOSE_S", 0.01)
        bookies = IdleBookies()
        both = beside(bookies)
        await both.start()
        await called.wait()
        await both.close()
        assert bookies.is_closed
        answer.set()

    asyncio.run(play())


@contextmanager
def failing_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Checkpoint]]:
    tried: list[Checkpoint] = []

    def fail(_store: BookieStore, checkpoint: Checkpoint) -> None:
        tried.append(checkpoint)
        raise StoreIOError("0.log", "sync", "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(BookieStore, "write_checkpoint", fail)
        yield tried


def test_a_bookie_that_has_ended_starts_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed sync is not retried, and no disk check makes the bookie writable."""

    async def play() -> None:
        await formatted(tmp_path)
        cluster = locate(f"sqlite:{tmp_path / 'metadata.db'}")
        config = BookieConfig(flush_interval_ms=10)
        paths = BookiePaths.below(tmp_path / "b1")
        bookie = BookieServer(paths, config=config, cluster=cluster, bookie_id="b1")
        await bookie.start()
        folders = [str(tmp_path / "b1/ledgers/current")]
        mark = read_mark(folders, "lastMark")
        peer = await Peer.connect(bookie.address)
        with failing_checkpoints(monkeypatch) as tried:
            assert (await peer.add(1, 0)).status is Status.EOK
            await asyncio.wait_for(bookie.ended.wait(), ENDS_S)
            count = len(tried)
            assert all(timer.cancelled() for timer in bookie._timers.values())
            bookie._checkpoint()
            bookie._arm("disk", 0, bookie._check_disks)
            assert all(timer.cancelled() for timer in bookie._timers.values())
            assert (await peer.add(1, 1)).status is Status.EREADONLY
            await peer.close()
            await asyncio.wait_for(bookie.close(), ENDS_S)
            assert len(tried) == count
        assert read_mark(folders, "lastMark") == mark
        again = BookieServer(paths, config=config, bookie_id="b1")
        await again.start()
        peer = await Peer.connect(again.address)
        assert (await peer.read(1, 0)).entry == entry_of(1, 0)
        await peer.close()
        await again.close()

    asyncio.run(play())
