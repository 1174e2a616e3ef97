"""What a broker leaves of its timer messages for upstream's, and which of both has written last."""

import errno
import os
import struct
from pathlib import Path

import pytest

from pyledger.errors import StoreFormatError, StoreFullError, StoreIOError
from pyledger.protocol.broker.timer_messages import Timed, TimerProgress
from pyledger.store.maintenance.dump import dump_file
from pyledger.store.messages.timer_files import TIMER_LOG_FILE_BYTES, RecordPlace, TimerFile, hand_over
from pyledger.wire.remoting.bodies.timer_checkpoint import NUMBERS, TimerCheckpoint

STEP_MS = 1000
NOW_MS = 1_700_000_000_000
PROGRESS = TimerProgress(2, 9, NOW_MS + 5 * STEP_MS, 4)
WAITING = [
    Timed(NOW_MS + 5 * STEP_MS, 4, "d", "T", 400, 40),
    Timed(NOW_MS + 60 * STEP_MS, 2, "b", "T", 200, 20),
    Timed(NOW_MS + 5 * STEP_MS, 6, "f", "U", 600, 60),
    Timed(NOW_MS - 5 * STEP_MS, 5, "e", "T", 500, 50),
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    return folder


def upstream_reads(folder: Path) -> tuple[int, int, dict[int, list[int]]]:
    """What upstream's broker finds: the time it goes on at, the offset it reads on from, the slots ahead.

    Its recovery in short: units from the start of the log set the last place of their slots; slots are
    walked back from there.
    """
    check = TimerCheckpoint.decode((folder / "timercheck").read_bytes())
    log = folder.parent / "timerlog" / "00000000000000000000"
    units = [line for line in dump_file(str(log)) if line["kind"] == "timerUnit"] if log.exists() else []
    slots = {(unit["enqueueTime"] + unit["delayMs"]) // STEP_MS: unit["position"] for unit in units}
    by_place = {unit["position"]: unit for unit in units}
    found: dict[int, list[int]] = {}
    for slot, last_place in slots.items():
        place = last_place
        while slot >= check.last_read_time_ms // STEP_MS and place != -1:
            found.setdefault(slot, []).insert(0, by_place[place]["physicalOffset"])
            place = by_place[place]["previousPosition"]
    last = units[-1]["physicalOffset"] if units else None
    return check.last_read_time_ms, check.master_timer_queue_offset, found | ({-1: [last]} if last else {})


def test_upstream_finds_what_waits(config: Path) -> None:
    TimerFile(PROGRESS, NOW_MS).write(config)
    assert hand_over(config, PROGRESS, NOW_MS, WAITING, RecordPlace(800, 80), STEP_MS)
    log = config.parent / "timerlog" / "00000000000000000000"
    assert log.stat().st_size == TIMER_LOG_FILE_BYTES
    now = NOW_MS // STEP_MS
    read_ms, next_offset, slots = upstream_reads(config)
    assert (read_ms, next_offset) == (NOW_MS, 9)
    assert slots == {now: [500], now + 5: [400, 600], now + 60: [200], -1: [800]}
    assert TimerFile.read(config).progress == PROGRESS


def test_the_last_message_may_wait_itself(config: Path) -> None:
    assert hand_over(config, PROGRESS, NOW_MS, WAITING, RecordPlace(600, 60), STEP_MS)
    assert upstream_reads(config)[2][-1] == [600]


def test_nothing_waits(config: Path) -> None:
    done = TimerProgress(9, 9)
    assert hand_over(config, done, NOW_MS, [], RecordPlace(800, 80), STEP_MS)
    assert upstream_reads(config) == (NOW_MS, 9, {-1: [800]})


def test_unknown_offsets_leave_a_start_before_all_that_waits(config: Path) -> None:
    TimerFile(PROGRESS, NOW_MS).write(config)
    assert not hand_over(config, PROGRESS, NOW_MS, [Timed(NOW_MS, 4, "d")], RecordPlace(800, 80), STEP_MS)
    assert not hand_over(config, PROGRESS, NOW_MS, WAITING, None, STEP_MS)
    assert upstream_reads(config) == (NOW_MS, 2, {})


def test_far_times_leave_a_start_before_all_that_waits(config: Path) -> None:
    TimerFile(PROGRESS, NOW_MS).write(config)
    far = [*WAITING, Timed(NOW_MS + (1 << 31), 7, "g", "T", 700, 70)]
    assert not hand_over(config, PROGRESS, NOW_MS, far, RecordPlace(800, 80), STEP_MS)
    assert upstream_reads(config) == (NOW_MS, 2, {})


def test_going_on_removes_what_is_true_no_more(config: Path) -> None:
    assert hand_over(config, PROGRESS, NOW_MS, WAITING, RecordPlace(800, 80), STEP_MS)
    (config.parent / "timerwheel").write_bytes(b"upstream's")
    TimerFile(PROGRESS, NOW_MS).write(config)
    assert sorted(path.name for path in config.parent.iterdir()) == ["config"]
    assert upstream_reads(config) == (NOW_MS, 2, {})


def test_the_last_writer_counts(config: Path) -> None:
    TimerFile(PROGRESS, NOW_MS).write(config)
    assert TimerFile.read(config).progress == PROGRESS
    check = config / "timercheck"
    upstream = TimerCheckpoint(NOW_MS + 7, 0, 11, 11).encode()
    check.write_bytes(upstream + check.read_bytes()[len(upstream) :])
    taken = TimerProgress(0, 11, NOW_MS + 7, foreign=True)
    assert TimerFile.read(config).progress == taken
    TimerFile(taken, NOW_MS + 8).write(config)
    assert TimerFile.read(config).progress == taken


def test_upstreams_file_alone(config: Path) -> None:
    assert TimerFile.read(config).progress == TimerProgress()
    numbers = struct.pack(">7q", NOW_MS, 520, 5, 5, 0, 0, 0)
    (config / "timercheck").write_bytes(numbers.ljust(4096, b"\0"))
    assert TimerFile.read(config).progress == TimerProgress(0, 5, NOW_MS, foreign=True)
    (config / "timercheck").write_bytes(numbers[: NUMBERS.size - 1])
    with pytest.raises(StoreFormatError, match="too short"):
        TimerFile.read(config)


def test_what_blocks_a_log_is_named(config: Path) -> None:
    root = config.parent
    (root / "timerlog.tmp").mkdir()
    with pytest.raises(StoreIOError, match=rf"write {root}/timerlog.tmp: Is a directory"):
        hand_over(config, PROGRESS, NOW_MS, WAITING, RecordPlace(800, 80), STEP_MS)
    with pytest.raises(StoreIOError, match=rf"remove {root}/timerlog.tmp: Is a directory"):
        TimerFile(PROGRESS, NOW_MS).write(config)
    assert TimerFile.read(config).progress == PROGRESS, "it is written before what is old goes"


def test_a_log_without_space_leaves_none(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    TimerFile(PROGRESS, NOW_MS).write(config)
    before = (config / "timercheck").read_bytes()
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreFullError, match=r"timerlog.tmp"):
        hand_over(config, PROGRESS, NOW_MS, WAITING, RecordPlace(800, 80), STEP_MS)
    assert sorted(path.name for path in config.parent.iterdir()) == ["config"]
    assert (config / "timercheck").read_bytes() == before
