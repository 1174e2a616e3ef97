"""Groups of our members over sockets and disks: what is acknowledged is in every folder."""

import asyncio
import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from pyledger.cli.dledger.network import _request_status
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.config.net import NetConfig
from pyledger.errors import DLedgerRejectedError, ListenError, NoLeaderError, StoreLockedError
from pyledger.log_events import logger
from pyledger.net.event_limiter import ALARM_INTERVAL_MS, ALARMS_MAX, Alarms
from pyledger.protocol.dledger.messages import AppendEntryRequest, Entry, PushEntryRequest, Request
from pyledger.servers.dledger import server
from pyledger.servers.dledger.server import DLedgerServer
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.verify import verify_dledger
from pyledger.store.files.lock import StoreLock
from pyledger.wire.dledger import codec
from pyledger.wire.dledger.bodies import decode_json_request
from tests.servers.dledger.group import (
    CALM,
    Group,
    append_surely,
    client,
    group_of,
    hand_over,
    on_a_loop,
    until,
)

IN_MEMORY = DLedgerStoreConfig(store_type="memory")


def entries_of(path: Path) -> list[Entry]:
    with DLedgerReader.open(path) as reader:
        assert [found for found in verify_dledger(reader) if found.severity == "error"] == []
        return list(reader.entries())


async def same_end(group: Group) -> None:
    """Wait until all members that run hold and have committed the same entries."""

    def ends() -> set[tuple[int, int]]:
        return {(m.store.end_index, m.store.committed_index) for m in group.members.values()}

    await until(lambda: len(found := ends()) == 1 and len(set(next(iter(found)))) == 1)


def test_what_three_members_acknowledge_is_in_every_folder(tmp_path: Path) -> None:
    async def work() -> None:
        async with group_of(tmp_path, 3, CALM) as group, client(group) as asking:
            answers = await asyncio.gather(*(asking.append(b"body %d" % n) for n in range(200)))
            last = await asking.append_many([b"x" * n for n in range(300)])
            for n in (0, 7, 199):
                entry = await asking.get(answers[n].index)
                assert entry is not None
                assert entry.body == b"body %d" % n
            assert await asking.get(last.index + 1) is None
            assert await asking.read_index() >= last.index
            await same_end(group)
        found = [entries_of(group.path(one)) for one in ("n0", "n1", "n2")]
        assert found[0] == found[1] == found[2]
        bodies = [entry.body for entry in found[0] if entry.body]
        assert sorted(bodies) == sorted(
            [b"body %d" % n for n in range(200)] + [b"x" * n for n in range(1, 300)]
        )

    on_a_loop(work)


def test_bodies_and_entries_go_as_they_are_however_much_waits_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []

    def watched(code: int, body: memoryview) -> Request:
        decoded.append(decode_json_request(code, body))
        return decoded[-1]

    monkeypatch.setattr(codec, "decode_json_request", watched)
    net = NetConfig(write_high_water_mark_bytes=1, write_low_water_mark_bytes=1)

    async def work() -> None:
        async with group_of(tmp_path, 3, CALM, net=net) as group, client(group, net=net) as asking:
            await append_surely(asking, b"all members know what the others take")
            await same_end(group)
            decoded.clear()
            await asyncio.gather(*(asking.append_many([bytes(300)] * 50) for _ in range(20)))
            await asking.append(b"one alone")
            await same_end(group)
        assert not [one for one in decoded if isinstance(one, PushEntryRequest) and one.entries]
        assert not [one for one in decoded if isinstance(one, AppendEntryRequest)]

    on_a_loop(work)


def test_a_member_that_cannot_begin_lets_go_of_its_log(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            member = DLedgerServer("g", "n0", f"n0-127.0.0.1:{taken.getsockname()[1]}", str(tmp_path))
            with pytest.raises(ListenError):
                await member.start()
            with StoreLock(str(tmp_path / "dledger-n0")):
                second = DLedgerServer("g", "n0", "n0-127.0.0.1:1", str(tmp_path))
                with pytest.raises(StoreLockedError):
                    await second.start()
        assert not [one for one in threading.enumerate() if one.name == "dledger-disk"]

    on_a_loop(work)


def test_members_in_memory_replicate_and_lose_their_log_with_the_process(tmp_path: Path) -> None:
    async def work() -> None:
        async with group_of(tmp_path, 3, CALM, store=IN_MEMORY) as group, client(group) as asking:
            answers = await asyncio.gather(*(asking.append(b"body %d" % n) for n in range(50)))
            last = await asking.append_many([b"x" * n for n in range(100)])
            assert len({answer.index for answer in answers}) == 50
            entry = await asking.get(last.index)
            assert entry is not None
            assert entry.body == b"x" * 99
            away = next(one for one in group.members if one != asking.leader)
            await group.stop(away)
            left = {path.name for path in group.path(away).iterdir()}
            assert left <= {"currterm", "currterm.bak", "lock"}
            await asking.append(b"without one")
            await group.start(away)
            assert (group.members[away].store.end_index, group.members[away].store.lost_tail) == (-1, True)
            await asking.append(b"with all again")
            await same_end(group)
            await until(lambda: not group.members[away].store.lost_tail)
            logs = [m.store.entries(0, 1 << 20, 1 << 30) for m in group.members.values()]
            assert logs[0] == logs[1] == logs[2]

    on_a_loop(work)


def test_a_member_that_was_away_is_filled_and_the_leader_may_go(tmp_path: Path) -> None:
    async def work() -> None:
        acknowledged = []
        async with group_of(tmp_path, 3) as group, client(group) as asking:
            acknowledged.append(await append_surely(asking, b"first"))
            for round_ in range(3):
                gone = await group.leader()
                await group.stop(gone)
                acknowledged += [await append_surely(asking, b"%d %d" % (round_, n)) for n in range(20)]
                await group.start(gone)
            await same_end(group)
        found = [entries_of(group.path(one)) for one in ("n0", "n1", "n2")]
        assert found[0] == found[1] == found[2]
        assert {entry.index for entry in found[0] if entry.body} >= set(acknowledged)
        assert len(set(acknowledged)) == 61

    on_a_loop(work)


def test_leadership_is_handed_over(tmp_path: Path) -> None:
    async def work() -> None:
        async with group_of(tmp_path, 3, CALM) as group, client(group) as asking:
            await asking.append(b"before")
            old = await group.leader()
            new = next(one for one in ("n0", "n1", "n2") if one != old)
            await same_end(group)
            await hand_over(asking, new)
            assert (await asking.append(b"after")).leader_id == new
            with pytest.raises(DLedgerRejectedError):
                await asking.transfer("nobody")

    on_a_loop(work)


def test_one_member_alone_is_a_group_and_two_of_three_missing_are_none(tmp_path: Path) -> None:
    async def work() -> None:
        async with group_of(tmp_path / "one", 1) as group, client(group) as asking:
            assert (await asking.append(b"alone")).index >= 0
        group = Group(tmp_path / "three", 3)
        await group.start("n0")
        async with client(group) as asking:
            asking.timeout_ms = 300
            with pytest.raises(NoLeaderError):
                await asking.append(b"rejected")
        await group.stop("n0")

    on_a_loop(work)


def failing_term_file(number: int, times: int, patch: pytest.MonkeyPatch) -> list[str]:
    """Let the flush of a term file fail, some times after the first one; returns what was flushed."""
    flush, flushed = os.fsync, list[str]()

    def fails(handle: int) -> None:
        name = os.readlink(f"/proc/self/fd/{handle}")
        if name.endswith("currterm.tmp"):
            flushed.append(name)
            if 1 < len(flushed) <= 1 + times:
                raise OSError(number, os.strerror(number))
        flush(handle)

    patch.setattr(os, "fsync", fails)
    return flushed


def test_a_vote_waits_for_room_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "RETRY_MS", 10)
    flushed = failing_term_file(errno.ENOSPC, 3, monkeypatch)

    async def work() -> None:
        async with group_of(tmp_path, 1) as group, client(group) as asking:
            assert (await asking.append(b"after room was made")).term == 1
            assert not group.members["n0"].node.failed

    on_a_loop(work)
    assert len(flushed) >= 5
    assert "no space left" in caplog.text


def test_a_member_with_a_full_disk_still_reports_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "RETRY_MS", 10)
    flushed = failing_term_file(errno.ENOSPC, 1 << 30, monkeypatch)

    async def work() -> None:
        async with group_of(tmp_path, 1) as group, client(group) as asking:
            await until(lambda: len(flushed) > 5)
            found: dict[str, Any] = {"term": None}
            while found["term"] is None:  # asked again where a slow machine was late
                found = await _request_status(asking, "n0", group.peers)
            assert (found["role"], found["term"] > 0) == ("candidate", True)

    on_a_loop(work)
    assert caplog.text.count("no space left") == 1, "one line, however often it is tried"


def test_a_vote_that_cannot_be_written_ends_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flushed = failing_term_file(errno.EIO, 1, monkeypatch)

    async def work() -> None:
        async with group_of(tmp_path, 1) as group, client(group) as asking:
            member = group.members["n0"]
            assert member.ended is not None
            await member.ended.wait()
            asking.timeout_ms = 100
            with pytest.raises(NoLeaderError):
                await asking.append(b"rejected")
            assert member.node.state.role.value == "candidate"

    on_a_loop(work)
    assert len(flushed) == 2, "a flush that failed is not tried again"
    assert "member leaves its group" in caplog.text


def test_alarms_that_come_with_every_request_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    alarms = Alarms(logger("dledger"))
    for now_ms in range(1000):
        alarms.warn("no room", now_ms)
        alarms.warn(f"entry {now_ms} does not fit", now_ms)
    alarms.warn("no room", ALARM_INTERVAL_MS)
    assert caplog.text.count("no room") == 2
    assert caplog.text.count("does not fit") == ALARMS_MAX - 1
    assert f"count={2000 - ALARMS_MAX}" in caplog.text
