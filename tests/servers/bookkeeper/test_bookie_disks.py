"""Bookies on disks that are soon full: one is left out; with all full they only read, and say so."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyledger.config.bookie import BookieConfig
from pyledger.errors import BookieCookieError
from pyledger.metadata.bookies import RegisteredBookies
from pyledger.metadata.cluster import Cluster, locate
from pyledger.protocol.bookkeeper.messages import PRIORITY_HIGH, Status
from pyledger.servers.bookkeeper import server
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.store.bookkeeper.folder import BookiePaths
from tests.interop.bookkeeper_peers import zookeeper
from tests.servers.bookkeeper.bookie_peer import Peer, entry_of
from tests.support.small_disk import small_disk

LOOK_AGAIN_S = 0.01
MIB = 1 << 20
BODY = bytes(10_000)


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=[pytest.mark.java, pytest.mark.slow])])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a metadata store."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'metadata.db'}"
    else:
        with zookeeper(tmp_path) as hosts:
            yield f"zk://{hosts}/ledgers"


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A disk of 1 MiB, one of 16 MiB."""
    with small_disk(tmp_path / "small", 1) as small, small_disk(tmp_path / "large", 16) as large:
        yield small, large


def on(address: str, folder: Path, disks: tuple[Path, ...], **settings: int) -> BookieServer:
    paths = BookiePaths((str(folder / "journal"),), tuple(map(str, disks)))
    quick = {"disk_check_interval_ms": 10, "flush_interval_ms": 10, "log_size_limit_bytes": 1 << 18}
    config = BookieConfig(**(quick | settings))
    return BookieServer(paths, config=config, cluster=locate(address), bookie_id="b1")


async def until_registered(cluster: Cluster, *, read_only: bool) -> RegisteredBookies:
    while True:
        found = await cluster.bookies.registered()
        if set(found.read_only) == ({"b1"} if read_only else set()) and (
            set(found.writable) == (set() if read_only else {"b1"})
        ):
            return found
        await asyncio.sleep(LOOK_AGAIN_S)


def test_read_only_when_all_disks_are_full_and_back(
    address: str, tmp_path: Path, disks: tuple[Path, Path]
) -> None:
    async def play() -> None:
        async with locate(address) as cluster:
            await cluster.format()
            small, large = disks
            settings = {
                "disk_usage_threshold_percent": 80,
                "disk_usage_lwm_threshold_percent": 60,
                "min_usable_size_for_high_priority_writes_bytes": MIB,
            }
            bookie = on(address, tmp_path, disks, **settings)
            await bookie.start()
            peer = await Peer.connect(bookie.address)
            before = await until_registered(cluster, read_only=False)
            assert (await peer.add(1, 0)).status is Status.EOK
            (small / "ballast").write_bytes(bytes(900 << 10))
            while not bookie.disks.full:
                await asyncio.sleep(LOOK_AGAIN_S)
            assert bookie.disks.full == {str(small / "current")}
            await until_registered(cluster, read_only=False)  # one of two is full
            assert (await peer.add(1, 1)).status is Status.EOK
            (large / "ballast").write_bytes(bytes(14 * MIB))
            after = await until_registered(cluster, read_only=True)
            assert after.address("b1") == before.address("b1")
            assert (await peer.add(1, 2)).status is Status.EREADONLY
            assert (await peer.read(1, 1)).entry == entry_of(1, 1)
            recovery = {"recovery": True, "priority": PRIORITY_HIGH}
            assert (await peer.add(1, 2, **recovery)).status is Status.EOK, "there is room for recoveries"
            (large / "ballast").write_bytes(bytes(11 * MIB))  # below the threshold, not the low-water mark
            while bookie.disks.space().free_bytes < 4 * MIB:
                await asyncio.sleep(LOOK_AGAIN_S)
            assert (await peer.add(1, 3)).status is Status.EREADONLY
            (large / "ballast").unlink()
            await until_registered(cluster, read_only=False)
            assert (await peer.add(1, 3)).status is Status.EOK
            await peer.close()
            await bookie.close()
            assert not (await cluster.bookies.registered()).writable

    asyncio.run(play())


def test_any_full_disk_where_that_is_wanted(tmp_path: Path, disks: tuple[Path, Path]) -> None:
    async def play() -> None:
        address = f"sqlite:{tmp_path / 'metadata.db'}"
        async with locate(address) as cluster:
            await cluster.format()
            (disks[0] / "ballast").write_bytes(bytes(1000 << 10))
            bookie = on(address, tmp_path, disks, read_only_mode_on_any_disk_full_enabled=True)
            await bookie.start()
            await until_registered(cluster, read_only=True)
            await bookie.close()

    asyncio.run(play())


def test_entries_move_to_another_disk_when_one_is_full(tmp_path: Path, disks: tuple[Path, Path]) -> None:
    """No threshold says that the small disk is full: writes to it fail."""

    async def play() -> None:
        address = f"sqlite:{tmp_path / 'metadata.db'}"
        async with locate(address) as cluster:
            await cluster.format()
            never = {"disk_usage_threshold_percent": 100, "disk_usage_lwm_threshold_percent": 100}
            bookie = on(address, tmp_path, disks, disk_check_interval_ms=86_400_000, **never)
            await bookie.start()
            peer = await Peer.connect(bookie.address)
            for first in range(0, 300, 20):
                ids = range(first, first + 20)
                sent = [peer.send_add(ledger_id, at, BODY) for at in ids for ledger_id in (1, 2)]
                for txn_id in sent:
                    assert (await peer.answer(txn_id)).status is Status.EOK
            while not bookie.disks.full:
                await asyncio.sleep(LOOK_AGAIN_S)
            assert bookie.disks.full == {str(disks[0] / "current")}
            for entry_id in range(300):
                assert (await peer.read(1, entry_id)).entry == entry_of(1, entry_id, BODY)
            await until_registered(cluster, read_only=False)
            await peer.close()
            await bookie.close()
            again = on(address, tmp_path, disks)
            await again.start()
            peer = await Peer.connect(again.address)
            for entry_id in range(300):
                assert (await peer.read(2, entry_id)).entry == entry_of(2, entry_id, BODY)
            await peer.close()
            await again.close()

    asyncio.run(play())


async def all_read(bookie: BookieServer, count: int) -> None:
    """The first entries of a ledger are there."""
    peer = await Peer.connect(bookie.address)
    for entry_id in range(count):
        assert (await peer.read(1, entry_id)).entry == entry_of(1, entry_id, BODY), entry_id
    await peer.close()


def test_entries_without_free_space_are_not_lost(
    tmp_path: Path,
    disks: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever was acknowledged is in the journal until it is elsewhere, however often that is tried."""
    monkeypatch.setattr(server, "RETRY_S", 0.01)

    async def play() -> None:
        address = f"sqlite:{tmp_path / 'metadata.db'}"
        async with locate(address) as cluster:
            await cluster.format()
            never = {"disk_usage_threshold_percent": 100, "disk_usage_lwm_threshold_percent": 100}
            bookie = on(address, tmp_path, disks[:1], disk_check_interval_ms=86_400_000, **never)
            await bookie.start()
            peer = await Peer.connect(bookie.address)
            count = 0
            while (await peer.add(1, count, BODY)).status is Status.EOK:
                count += 1
            assert bookie.disks.all_full
            await until_registered(cluster, read_only=True)
            await peer.close()
            await bookie.close()
            again = on(address, tmp_path, disks[:1], disk_check_interval_ms=86_400_000, **never)
            await again.start()
            await until_registered(cluster, read_only=True)
            await all_read(again, count)  # those that no disk has space for, from memory
            await again.close()
            subprocess.run(["mount", "-o", "remount,size=8m", str(disks[0])], check=True)
            again = on(address, tmp_path, disks[:1])
            await again.start()
            await until_registered(cluster, read_only=False)
            await all_read(again, count)
            await again.close()
            alarms = caplog.text.count("alarm what=disk is full")
            assert 1 <= alarms <= 4, "not each time that it is tried"

    asyncio.run(play())


def test_a_disk_that_is_gone_ends_the_bookie(tmp_path: Path) -> None:
    async def play() -> None:
        address = f"sqlite:{tmp_path / 'metadata.db'}"
        async with locate(address) as cluster:
            await cluster.format()
            bookie = on(address, tmp_path, (tmp_path / "d0", tmp_path / "d1"))
            await bookie.start()
            peer = await Peer.connect(bookie.address)
            assert (await peer.add(1, 0)).status is Status.EOK
            (tmp_path / "d1").rename(tmp_path / "elsewhere")
            await bookie.ended.wait()
            assert (await peer.add(1, 1)).status is Status.EREADONLY, "nothing is acknowledged any more"
            (tmp_path / "elsewhere").rename(tmp_path / "d1")
            await peer.close()
            await bookie.close()

    asyncio.run(play())


def test_more_folders_than_before(tmp_path: Path) -> None:
    async def play() -> None:
        address = f"sqlite:{tmp_path / 'metadata.db'}"
        folders = tuple(tmp_path / name for name in ("d0", "d1", "d2"))
        async with locate(address) as cluster:
            await cluster.format()
            bookie = on(address, tmp_path, folders[:1])
            await bookie.start()
            await bookie.close()
            with pytest.raises(BookieCookieError):
                await on(address, tmp_path, folders).start()
            grown = on(address, tmp_path, folders, allow_storage_expansion=True)
            await grown.start()
            await grown.close()
            stored = await cluster.bookies.cookie("b1")
            assert stored is not None
            assert stored[0].ledger_dirs == tuple(map(str, folders))
            again = on(address, tmp_path, folders)
            await again.start()
            await again.close()
            with pytest.raises(BookieCookieError):
                await on(address, tmp_path, folders[:2], allow_storage_expansion=True).start()

    asyncio.run(play())
