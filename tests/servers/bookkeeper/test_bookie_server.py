"""A bookie behind its port: odd requests, restarts, readers that wait."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.store.bookkeeper.reader import BookieReader
from pyledger.store.bookkeeper.verify import BookieCheck
from pyledger.wire.bookkeeper import version3
from pyledger.wire.bookkeeper.entry import pack_lac
from pyledger.wire.bookkeeper.schema import message
from tests.golden.ledger_recordings import STRICTER, lines
from tests.servers.bookkeeper.bookie_peer import DIGEST, KEY, Peer, bookie, entry_of

CUT = "…"
HERE_ONLY = {"getBookieInfoResponse"}
"""Says how full this machine's disk is."""


def whole(request: str) -> bytes:
    """A recorded request; a long one was shortened, and continues with its last byte."""
    if not request.endswith(CUT):
        return bytes.fromhex(request)
    start = bytes.fromhex(request.removesuffix(CUT))
    return start.ljust(4 + int.from_bytes(start[:4], "big"), b"\0")


def meaning(frame: bytes) -> Any:
    response = message("Response").FromString(frame[4:])
    for field in HERE_ONLY:
        if response.HasField(field):
            response.ClearField(field)
    if response.readResponse.HasField("lacUpdateTimestamp"):
        response.readResponse.lacUpdateTimestamp = 1
    return response


def test_it_answers_odd_requests_as_a_real_bookie_does(tmp_path: Path) -> None:
    async def converse() -> None:
        peers: dict[str, Peer] = {}
        async with bookie(tmp_path) as server:
            for one in lines("frames/raw-client.jsonl"):
                name = one["connection"]
                if name not in peers:
                    peers[name] = await Peer.connect(server.address)
                peer, request = peers[name], whole(one["request"])
                peer.writer.write(request)
                answer = await peer.frame()
                if not one.get("response"):
                    assert not answer, one["what"]
                    continue
                ours = len(answer).to_bytes(4, "big") + answer
                theirs = bytes.fromhex(one["response"])
                if one["what"] in STRICTER:
                    assert version3.decode_response(memoryview(answer)).status.name == STRICTER[one["what"]]
                    continue
                if request[4] == 0x0A:
                    assert meaning(ours) == meaning(theirs), one["what"]
                else:
                    assert ours == theirs, one["what"]
            for peer in peers.values():
                await peer.close()

    asyncio.run(converse())


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async def fill() -> None:
        async with bookie(tmp_path) as server:
            peer = await Peer.connect(server.address)
            sent = [peer.send_add(7, entry_id, b"%d" % entry_id) for entry_id in range(100)]
            sent.append(peer.send_add(8, 3))
            for txn_id in sent:
                assert (await peer.answer(txn_id)).status is Status.EOK
            packet = pack_lac(DIGEST, 7, 99)
            stored = await peer.ask(m.WriteLacRequest, ledger_id=7, lac=99, master_key=KEY, packet=packet)
            assert stored.status is Status.EOK
            fenced = await peer.read(8, -1, fence=True, master_key=KEY)
            assert fenced.entry == entry_of(8, 3)
            await peer.close()

    async def look() -> None:
        async with bookie(tmp_path) as server:
            peer = await Peer.connect(server.address)
            for entry_id in range(100):
                found = await peer.read(7, entry_id)
                assert found.entry == entry_of(7, entry_id, b"%d" % entry_id)
            assert found.max_lac == 99
            assert (await peer.read(7, 100)).status is Status.ENOENTRY
            assert (await peer.read(9, 0)).status is Status.ENOLEDGER
            assert (await peer.add(8, 4)).status is Status.EFENCED
            listed = await peer.ask(m.ListEntriesRequest, ledger_id=8)
            assert listed.ranges == (range(3, 4),)
            await peer.close()

    asyncio.run(fill())
    assert [p for p in BookieCheck(str(tmp_path)).findings() if p.severity != "note"] == []
    held = [(one.ledger_id, one.entry_id) for one in BookieReader.open(tmp_path).entries()]
    assert held == [(7, entry_id) for entry_id in range(100)] + [(8, 3)]
    asyncio.run(look())
    asyncio.run(look())


def test_entries_move_to_small_logs_and_are_read_from_there(tmp_path: Path) -> None:
    async def serve() -> None:
        small = {"write_cache_bytes": 1 << 14, "log_size_limit_bytes": 1 << 16}
        async with bookie(tmp_path, **small) as server:
            peer = await Peer.connect(server.address)
            for start in range(0, 600, 50):
                sent = [peer.send_add(at % 3, at // 3, bytes(1000)) for at in range(start, start + 50)]
                for txn_id in sent:
                    assert (await peer.answer(txn_id)).status is Status.EOK
            for at in range(600):
                assert (await peer.read(at % 3, at // 3)).entry == entry_of(at % 3, at // 3, bytes(1000))
            await peer.close()

    asyncio.run(serve())
    assert len(list(tmp_path.rglob("*.log"))) > 5
    assert [p for p in BookieCheck(str(tmp_path)).findings() if p.severity != "note"] == []


def test_a_fence_is_answered_whose_entry_is_on_disk_alone(tmp_path: Path) -> None:
    """The fence goes to the journal after the entry was fetched: nothing else has the journal write then."""

    async def fill() -> None:
        async with bookie(tmp_path) as server:
            peer = await Peer.connect(server.address)
            assert (await peer.add(8, 3, bytes(1 << 16))).status is Status.EOK
            await peer.close()

    async def recover() -> None:
        async with bookie(tmp_path) as server:
            peer = await Peer.connect(server.address)
            for path in tmp_path.rglob("*.log"):
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            fenced = await peer.read(8, -1, fence=True, master_key=KEY)
            assert fenced.entry == entry_of(8, 3, bytes(1 << 16))
            assert (await peer.add(8, 4)).status is Status.EFENCED
            await peer.close()

    asyncio.run(fill())
    asyncio.run(recover())


@pytest.mark.parametrize("known", [False, True], ids=["new ledger", "known ledger"])
@pytest.mark.parametrize("inside", [(7, 9), (7, 2), (1006, 9)])
def test_an_add_that_names_two_entries_is_rejected(
    tmp_path: Path, inside: tuple[int, int], known: bool
) -> None:
    """A known ledger's adds take the native path."""

    async def converse() -> None:
        async with bookie(tmp_path) as server:
            peer = await Peer.connect(server.address)
            if known:
                for ledger_id in (7, 1006):
                    assert (await peer.add(ledger_id, 0)).status is Status.EOK
            said = await peer.add(1006, 2, entry=entry_of(*inside))
            assert (said.status, said.ledger_id, said.entry_id) == (Status.EBADREQ, 1006, 2)
            absent = Status.ENOENTRY if known else Status.ENOLEDGER
            for ids in ((1006, 2), (1006, 9), (7, 9), (7, 2)):
                assert (await peer.read(*ids)).status is absent
            await peer.close()

    asyncio.run(converse())


def test_an_index_has_few_holes(tmp_path: Path) -> None:
    """An entry far beyond the others is rejected; one of a long ledger that the bookie joins is taken."""

    async def converse() -> None:
        async with bookie(tmp_path, index_holes_max_bytes=1 << 20) as server:
            peer = await Peer.connect(server.address)
            for ledger_id in (1, 2):
                assert (await peer.add(ledger_id, 100_000)).status is Status.EOK
                assert (await peer.add(ledger_id, 100_001)).status is Status.EOK
                for entry_id in (2**31 - 1, 2**31, 2**56):
                    assert (await peer.add(ledger_id, entry_id)).status is Status.EBADREQ
                    assert (await peer.read(ledger_id, entry_id)).status is Status.ENOENTRY
                # Steps that are small themselves add up.
                steps = range(110_000, 10**6, 10_000)
                taken = [at for at in steps if (await peer.add(ledger_id, at)).status is Status.EOK]
                assert taken == list(range(110_000, 140_000, 10_000))
                assert (await peer.read(ledger_id, 130_000)).status is Status.EOK
            await peer.close()

    asyncio.run(converse())
    assert all(path.stat().st_size < 2 << 20 for path in tmp_path.rglob("*.idx"))


def test_a_long_empty_index_costs_what_it_holds(tmp_path: Path) -> None:
    """As Java's bookies make them, and ours with other settings: opened, checked, read without its holes."""
    high = 2**31 - 1

    async def converse(*, fill: bool) -> None:
        async with bookie(tmp_path, index_holes_max_bytes=32 << 30) as server:
            peer = await Peer.connect(server.address)
            if fill:
                for entry_id in (3, high):
                    assert (await peer.add(1, entry_id)).status is Status.EOK
            assert (await peer.read(1, high)).status is Status.EOK
            assert (await peer.read(1, -1)).entry == entry_of(1, high)
            listed = await peer.ask(m.ListEntriesRequest, ledger_id=1)
            assert listed.ranges == (range(3, 4), range(high, high + 1))
            await peer.close()

    asyncio.run(converse(fill=True))
    (index,) = tmp_path.rglob("*.idx")
    assert index.stat().st_size > 8 * high
    # A part behind the last entry that was allocated and never written.
    os.truncate(index, index.stat().st_size + (1 << 32))
    asyncio.run(converse(fill=False))
    assert [p for p in BookieCheck(str(tmp_path)).findings() if p.severity != "note"] == []
    assert [one.entry_id for one in BookieReader.open(tmp_path).entries()] == [3, high]
    assert index.stat().st_blocks < 100


@pytest.mark.parametrize("piggyback", [True, False])
def test_a_reader_waits_for_what_is_confirmed_next(tmp_path: Path, piggyback: bool) -> None:
    async def wait() -> None:
        async with bookie(tmp_path) as server:
            reader, writer = await Peer.connect(server.address), await Peer.connect(server.address)
            await writer.add(1, 0)
            wanted = {"piggyback": True, "entry_id": -1} if piggyback else {"entry_id": 0}
            waiting = reader.send(m.ReadRequest, ledger_id=1, previous_lac=-1, time_out=3_600_000, **wanted)
            await reader.ask(m.ReadLacRequest, ledger_id=1)  # so the other one was taken
            await writer.add(1, 1)
            found = await reader.answer(waiting)
            assert (found.entry, found.max_lac) == (entry_of(1, 0), 0)
            await reader.close()
            await writer.close()

    asyncio.run(wait())


def test_an_add_answers_the_readers_that_know_less_and_no_others(tmp_path: Path) -> None:
    async def wait() -> None:
        async with bookie(tmp_path) as server:
            reader, other, writer = [await Peer.connect(server.address) for _ in range(3)]
            await writer.add(1, 0)
            wait = {"ledger_id": 1, "entry_id": -1, "piggyback": True, "time_out": 3_600_000}
            by_known: dict[int, list[int]] = {}
            for known in (5, 0, 3, 0, 9, 3):
                by_known.setdefault(known, []).append(reader.send(m.ReadRequest, previous_lac=known, **wait))
                other.send(m.ReadRequest, previous_lac=known, **wait)
            for peer in (reader, other):
                await peer.ask(m.ReadLacRequest, ledger_id=1)  # so those before were taken
            await other.close()
            for entry_id in range(1, 8):
                await writer.add(1, entry_id)
                for waiting in by_known.pop(entry_id - 2, []):
                    assert (await reader.answer(waiting)).max_lac == entry_id - 1
            assert list(by_known) == [9]
            early = reader.send(m.ReadRequest, previous_lac=9, **wait | {"time_out": 1})
            assert (await reader.answer(early)).max_lac == 6
            await writer.read(1, -1, fence=True, master_key=KEY)
            for waiting in by_known[9]:
                assert (await reader.answer(waiting)).status is Status.EOK
            await reader.close()
            await writer.close()

    asyncio.run(wait())


def test_bad_frames_of_many_connections_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def converse() -> None:
        async with bookie(tmp_path) as server:
            for _ in range(30):
                peer = await Peer.connect(server.address)
                peer.send_frame(b"\xff" * 20)
                assert await peer.frame() == b""
                await peer.close()

    asyncio.run(converse())
    lines = [line for line in caplog.messages if line.startswith("frame rejected")]
    assert len(lines) == 2
    assert lines[1].endswith("source=127.0.0.1 count=29")


def test_a_fence_answers_held_reads(tmp_path: Path) -> None:
    async def wait() -> None:
        async with bookie(tmp_path) as server:
            peer = await Peer.connect(server.address)
            await peer.add(1, 0)
            waiting = peer.send(
                m.ReadRequest, ledger_id=1, entry_id=-1, previous_lac=0, time_out=3_600_000, piggyback=True
            )
            await peer.read(1, -1, fence=True, master_key=KEY)
            found = await peer.answer(waiting)
            assert (found.status, found.entry, found.max_lac) == (Status.EOK, None, -1)
            await peer.close()

    asyncio.run(wait())


def test_a_full_bookie_takes_recoveries_only(tmp_path: Path) -> None:
    async def fill() -> None:
        always = {"force_read_only_bookie": True, "min_usable_size_for_high_priority_writes_bytes": 0}
        async with bookie(tmp_path, **always) as server:
            peer = await Peer.connect(server.address)
            assert (await peer.add(1, 0)).status is Status.EREADONLY
            assert (await peer.add(1, 0, priority=100, recovery=True)).status is Status.EOK
            assert (await peer.read(1, 0)).entry == entry_of(1, 0)
            await peer.close()

    asyncio.run(fill())


def test_lone_adds_are_answered_once_whatever_else_goes_on(tmp_path: Path) -> None:
    """The journal's thread may send an answer itself; reads and other adds cross it."""

    async def converse() -> None:
        async with bookie(tmp_path) as server:
            peer = await Peer.connect(server.address)
            for entry_id in range(40):
                added = peer.send_add(7, entry_id, b"%d" % entry_id)
                reads = [
                    peer.send(m.ReadRequest, ledger_id=7, entry_id=entry_id) for _ in range(entry_id % 4)
                ]
                others = [peer.send_add(8, entry_id) for _ in range(entry_id % 3)]
                assert (await peer.answer(added)).status is Status.EOK
                for txn_id in reads:
                    assert (await peer.answer(txn_id)).entry == entry_of(7, entry_id, b"%d" % entry_id)
                for txn_id in others:
                    assert (await peer.answer(txn_id)).status is Status.EOK
            # No response was sent twice: the next frame is the next response.
            assert (await peer.read(7, 39)).entry == entry_of(7, 39, b"39")
            assert not peer._answers
            await peer.close()

    asyncio.run(converse())


def test_a_connection_closed_before_its_response_affects_no_other(tmp_path: Path) -> None:
    async def converse() -> None:
        async with bookie(tmp_path) as server:
            stays = await Peer.connect(server.address)
            for entry_id in range(20):
                leaves = await Peer.connect(server.address)
                leaves.send_add(7, entry_id)
                await leaves.writer.drain()
                if entry_id % 2:
                    leaves.writer.transport.abort()
                else:
                    await leaves.close()
                assert (await stays.add(8, entry_id)).status is Status.EOK
            assert not stays._answers
            await stays.close()

    asyncio.run(converse())
