"""Bookies of a cluster: cookies, registration, ledgers that are gone, a bookie that is killed."""

import asyncio
import errno
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pyledger.config.bookie import BookieConfig
from pyledger.errors import (
    BookieCookieError,
    LedgerFileError,
    LedgerMetadataError,
    ListenError,
    StoreIOError,
)
from pyledger.metadata.cluster import Cluster, locate
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.servers.local.bookies import AsyncLocalBookies
from pyledger.store.bookkeeper.folder import LIST_FILE, BookiePaths
from tests.servers.bookkeeper.bookie_peer import Peer, entry_of

LOOK_AGAIN_S = 0.02


async def formatted(folder: Path) -> Cluster:
    cluster = locate(f"sqlite:{folder / 'metadata.db'}")
    await cluster.start()
    await cluster.format()
    return cluster


def member(folder: Path, name: str = "b1", **settings: int) -> BookieServer:
    home = folder / name
    return BookieServer(
        BookiePaths.below(home),
        config=BookieConfig(**settings),
        cluster=locate(f"sqlite:{folder / 'metadata.db'}"),
        bookie_id=name,
    )


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(LOOK_AGAIN_S)


def test_a_group_registers_and_leaves(tmp_path: Path) -> None:
    async def play() -> None:
        group = AsyncLocalBookies(tmp_path, 3)
        await group.start()
        async with locate(group.address) as cluster:
            found = await cluster.bookies.registered()
            assert set(found.writable) == {"bookie-1", "bookie-2", "bookie-3"}
            for bookie in group.bookies:
                peer = await Peer.connect(bookie.address)
                assert (await peer.add(1, 0)).status is Status.EOK
                await peer.close()
            assert {f"{h}:{p}" for h, p in filter(None, map(found.address, found.writable))} == {
                bookie.address for bookie in group.bookies
            }
            await group.close()
            assert not (await cluster.bookies.registered()).writable
            assert await cluster.bookies.known() == ("bookie-1", "bookie-2", "bookie-3")
        again = AsyncLocalBookies(tmp_path, 3)
        await again.start()
        await again.close()

    asyncio.run(play())


def wipe_journal(home: Path) -> None:
    shutil.rmtree(home / "journal")


def wipe_cookie(home: Path) -> None:
    (home / "ledgers/current/VERSION").unlink()


def swap_cookie(home: Path) -> None:
    cookie = home / "ledgers/current/VERSION"
    cookie.write_bytes(cookie.read_bytes().replace(b"b1", b"b2"))


@pytest.mark.parametrize("damage", [wipe_journal, wipe_cookie, swap_cookie], ids=lambda one: one.__name__)
def test_a_bookie_without_its_disks_does_not_start(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        bookie = member(tmp_path)
        await bookie.start()
        await bookie.close()
        damage(tmp_path / "b1")
        with pytest.raises(BookieCookieError):
            await member(tmp_path).start()
        await cluster.close()

    asyncio.run(play())


def test_a_bookie_that_its_cluster_does_not_know_does_not_start(tmp_path: Path) -> None:
    async def play() -> None:
        with pytest.raises(LedgerMetadataError, match="no cluster"):
            await member(tmp_path).start()
        cluster = await formatted(tmp_path)
        bookie = member(tmp_path)
        await bookie.start()
        await bookie.close()
        await cluster.bookies.delete_cookie("b1")
        with pytest.raises(BookieCookieError, match="has no cookie of it"):
            await member(tmp_path).start()
        await cluster.close()

    asyncio.run(play())


def test_folders_of_another_bookie_are_rejected_with_its_name(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        bookie = member(tmp_path)
        await bookie.start()
        await bookie.close()
        (tmp_path / "elsewhere").mkdir()
        paths = BookiePaths.below(tmp_path / "elsewhere")
        moved = BookieServer(paths, cluster=locate(f"sqlite:{tmp_path}/metadata.db"), bookie_id="b1")
        with pytest.raises(BookieCookieError) as error:
            await moved.start()
        before = f"its journal was {tmp_path}/b1/journal, and is {tmp_path}/elsewhere/journal; the folder"
        assert before in str(error.value)
        await cluster.close()

    asyncio.run(play())


def test_a_new_bookie_that_cannot_listen_does_not_join(tmp_path: Path) -> None:
    """It would count as lost until somebody takes it out."""

    async def play() -> None:
        cluster = await formatted(tmp_path)
        other = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        paths = BookiePaths.below(tmp_path / "b1")
        bookie = BookieServer(paths, port=port, cluster=locate(f"sqlite:{tmp_path}/metadata.db"))
        with pytest.raises(ListenError, match=str(port)):
            await bookie.start()
        assert await cluster.bookies.known() == ()
        assert not (tmp_path / "b1").exists()
        other.close()
        await cluster.close()

    asyncio.run(play())


def test_a_bookie_answers_no_request_before_it_has_replayed(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        bookie = member(tmp_path)
        starting = asyncio.create_task(bookie.start())
        while not bookie._server.port:
            await asyncio.sleep(0)
        assert not hasattr(bookie, "_store")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", bookie._server.port)
        await starting
        peer = await Peer.connect(bookie.address)
        await peer.close()
        await bookie.close()
        await cluster.close()

    asyncio.run(play())


async def two_ledgers(cluster: Cluster) -> None:
    made = LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        segments=(Segment(0, ("b1",)),),
        digest=DigestType.CRC32C,
        password=b"",
    )
    for ledger_id in (1, 2):
        await cluster.ledgers.create(made, ledger_id)


def logs_in(folder: Path) -> set[str]:
    return {path.name for path in (folder / "b1/ledgers/current").glob("*.log")}


def test_deleted_ledgers_and_their_logs_are_removed(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        await two_ledgers(cluster)
        small = {"write_cache_bytes": 1 << 12, "log_size_limit_bytes": 1 << 14}
        bookie = member(tmp_path, gc_wait_time_ms=100, flush_interval_ms=10, **small)
        await bookie.start()
        peer = await Peer.connect(bookie.address)
        for ledger_id in (1, 2):
            for entry_id in range(40):
                assert (await peer.add(ledger_id, entry_id, bytes(1000))).status is Status.EOK
        current = tmp_path / "b1/ledgers/current"
        await until((current / "0/2/2.idx").exists)
        await until(lambda: len(logs_in(tmp_path)) > 3)
        before = logs_in(tmp_path)
        await cluster.ledgers.delete(1)
        await until(lambda: not (current / "0/1/1.idx").exists())
        await until(lambda: bool(before - logs_in(tmp_path)))
        assert (await peer.read(1, 0)).status is Status.ENOLEDGER
        for entry_id in range(40):
            assert (await peer.read(2, entry_id)).entry == entry_of(2, entry_id, bytes(1000))
        await peer.close()
        await bookie.close()
        await cluster.close()

    asyncio.run(play())


def test_a_log_stays_while_the_metadata_has_a_ledger_that_it_holds(tmp_path: Path) -> None:
    """Whatever made the bookie forget ledger 1: its entries are not garbage before it is deleted."""

    async def play() -> None:
        cluster = await formatted(tmp_path)
        await two_ledgers(cluster)
        bookie = member(tmp_path, gc_wait_time_ms=100, flush_interval_ms=10, log_size_limit_bytes=1 << 12)
        await bookie.start()
        peer = await Peer.connect(bookie.address)
        for entry_id in range(20):
            assert (await peer.add(1, entry_id, bytes(1000))).status is Status.EOK
        store, rounds = bookie._store, 0
        await until(lambda: not store.cache and not store._moving)
        before = logs_in(tmp_path)
        assert len(before) > 3
        dead_logs = store.dead_logs

        def counting() -> list[int]:
            nonlocal rounds
            rounds += 1
            return dead_logs()

        store.dead_logs = counting  # type: ignore[method-assign]
        del store.ledgers[1]
        await until(lambda: rounds > 4)
        assert logs_in(tmp_path) == before
        await cluster.ledgers.delete(1)
        await until(lambda: bool(before - logs_in(tmp_path)))
        await peer.close()
        await bookie.close()
        await cluster.close()

    asyncio.run(play())


@pytest.mark.parametrize("deleted", [False, True])
def test_folders_without_a_list_have_an_index_of_every_ledger(tmp_path: Path, deleted: bool) -> None:
    """Those of Java's bookies, and of ours before there was a list: the metadata decides."""

    async def play() -> None:
        cluster = await formatted(tmp_path)
        await two_ledgers(cluster)
        bookie = member(tmp_path)
        await bookie.start()
        peer = await Peer.connect(bookie.address)
        assert (await peer.add(1, 0)).status is Status.EOK
        await peer.close()
        await bookie.close()
        current = tmp_path / "b1/ledgers/current"
        (current / "0/1/1.idx").unlink()
        (current / LIST_FILE).unlink()
        if deleted:
            await cluster.ledgers.delete(1)
        for _ in range(2):
            bookie = member(tmp_path)
            if not deleted:
                with pytest.raises(LedgerFileError, match=r"no index names ledgers \[1\]"):
                    await bookie.start()
            else:
                await bookie.start()
                await bookie.close()
        await cluster.close()

    asyncio.run(play())


def test_a_disk_that_fails_while_garbage_is_collected_ends_the_bookie(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        bookie = member(tmp_path, gc_wait_time_ms=100)
        await bookie.start()

        def dead_logs() -> list[int]:
            raise OSError(errno.EIO, "the disk fails")

        bookie._store.dead_logs = dead_logs  # type: ignore[method-assign]
        await bookie.ended.wait()
        await bookie.close()
        await cluster.close()

    asyncio.run(play())


def test_garbage_is_collected_again_whatever_ended_it(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        bookie = member(tmp_path, gc_wait_time_ms=100)
        await bookie.start()
        again, looks = asyncio.Event(), 0

        def dead_logs() -> list[int]:
            nonlocal looks
            looks += 1
            if looks > 1:
                bookie._loop.call_soon_threadsafe(again.set)
                return []
            raise ValueError("what nobody has thought of")

        bookie._store.dead_logs = dead_logs  # type: ignore[method-assign]
        await again.wait()
        assert not bookie.ended.is_set()
        await bookie.close()
        await cluster.close()

    asyncio.run(play())


def test_a_bookie_whose_disk_fails_at_the_end_leaves_no_thread(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        before = threading.enumerate()
        bookie = member(tmp_path)
        await bookie.start()
        close = bookie._store.close

        def fail() -> None:
            close()
            raise StoreIOError("0.log", "write", "the disk fails")

        bookie._store.close = fail  # type: ignore[method-assign]
        with pytest.raises(StoreIOError):
            await bookie.close()
        left = [one.name for one in threading.enumerate() if one not in before]
        assert not [name for name in left if name.startswith("bookie")]
        await cluster.close()

    asyncio.run(play())


def test_logs_that_are_mostly_garbage_are_compacted_while_they_are_read(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        await two_ledgers(cluster)
        bookie = member(
            tmp_path,
            gc_wait_time_ms=100,
            flush_interval_ms=10,
            write_cache_bytes=1 << 12,
            log_size_limit_bytes=1 << 14,
            minor_compaction_interval_ms=1,
            minor_compaction_threshold_percent=60,
        )
        await bookie.start()
        peer = await Peer.connect(bookie.address)
        for entry_id in range(60):  # entries of both stand in every log
            for ledger_id in (1, 2):
                assert (await peer.add(ledger_id, entry_id, bytes(1000))).status is Status.EOK
        await until(lambda: len(logs_in(tmp_path)) > 4)
        before = logs_in(tmp_path)
        await cluster.ledgers.delete(1)
        entry_id = 0
        while len(before & logs_in(tmp_path)) > 2:  # but the one that is written, or not worth it
            assert (await peer.read(2, entry_id)).entry == entry_of(2, entry_id, bytes(1000))
            entry_id = (entry_id + 1) % 60
        for entry_id in range(60):
            assert (await peer.read(2, entry_id)).entry == entry_of(2, entry_id, bytes(1000))
        await peer.close()
        await bookie.close()
        await cluster.close()
        again = member(tmp_path)
        await again.start()
        peer = await Peer.connect(again.address)
        for entry_id in range(60):
            assert (await peer.read(2, entry_id)).entry == entry_of(2, entry_id, bytes(1000))
        await peer.close()
        await again.close()

    asyncio.run(play())


def test_a_read_only_bookie_registers_as_such(tmp_path: Path) -> None:
    async def play() -> None:
        cluster = await formatted(tmp_path)
        bookie = member(tmp_path, force_read_only_bookie=True)
        await bookie.start()
        found = await cluster.bookies.registered()
        assert (set(found.writable), set(found.read_only)) == (set(), {"b1"})
        await bookie.close()
        await cluster.close()

    asyncio.run(play())


def test_a_killed_bookie_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyledger", "bookie", "serve", str(tmp_path), "--dev", "1"]

    def started() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("READY bookies sqlite:")
        for line in process.stderr:
            if found := re.search(r"bookie serves address=(\S+)", line):
                return process, found[1]
        raise AssertionError("it does not say where it listens")

    async def load(process: subprocess.Popen[str], address: str, ledger_id: int) -> int:
        peer = await Peer.connect(address)
        sent = [peer.send_add(ledger_id, entry_id, bytes(300)) for entry_id in range(3000)]
        for done, txn_id in enumerate(sent):
            if done == 1000:
                process.kill()
            try:
                assert (await peer.answer(txn_id)).status is Status.EOK
            except ConnectionError:
                break
        await peer.close()
        return done

    async def look(address: str, acknowledged: list[int]) -> None:
        peer = await Peer.connect(address)
        for ledger_id, count in enumerate(acknowledged):
            sent = [peer.send(m.ReadRequest, ledger_id=ledger_id, entry_id=at) for at in range(count)]
            for at, txn_id in enumerate(sent):
                assert (await peer.answer(txn_id)).entry == entry_of(ledger_id, at, bytes(300))
        await peer.close()

    acknowledged: list[int] = []
    for ledger_id in range(3):
        process, address = started()
        with process:
            asyncio.run(look(address, acknowledged))
            acknowledged.append(asyncio.run(load(process, address, ledger_id)))
            process.kill()
    process, address = started()
    with process:
        asyncio.run(look(address, acknowledged))
        process.send_signal(signal.SIGTERM)
        process.communicate()
        assert process.returncode == 0
    assert min(acknowledged) >= 1000
