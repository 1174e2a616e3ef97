"""Walking the log: records found and digested, and messages made of them.

Pages are resident. Baselines: `zlib.crc32` over the same bytes, a copy of them, and the plain model over far
fewer records, so compare nanoseconds per message. `extra_info` holds those and gigabytes per second.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.micro.typical_log import typical_log
from pyledger._core import LogView, MessageScan, find_next_record, read_messages, scan
from tests.models.commit_log import Record

ROUNDS = 7
MODEL_RECORDS = 2_000


@pytest.fixture(scope="module")
def messages(request: pytest.FixtureRequest) -> int:
    return 500_000 if request.config.getoption("--scale", "smoke") == "full" else 2_000


@pytest.fixture(scope="module")
def log(messages: int, tmp_path_factory: pytest.TempPathFactory) -> LogView:
    return typical_log(tmp_path_factory.mktemp("log"), messages)


def measure(
    benchmark: Any, act: Callable[[], object], wanted: object, messages: int, size_bytes: int
) -> None:
    """Run a case, check what it found, note the rates."""
    assert benchmark.pedantic(act, rounds=ROUNDS, warmup_rounds=1) == wanted
    benchmark.extra_info["messages"] = messages
    if benchmark.stats:
        best = benchmark.stats.stats.min
        benchmark.extra_info["ns_per_message"] = best / messages * 1e9
        benchmark.extra_info["gb_per_s"] = size_bytes / best / 1e9


@pytest.mark.benchmark(group="scan")
@pytest.mark.parametrize("check", [True, False], ids=["crc=on", "crc=off"])
def test_scan(benchmark: Any, log: LogView, messages: int, check: bool) -> None:
    measure(benchmark, lambda: scan(log, 0, check=check).record_count, messages, messages, log.end_offset)


@pytest.mark.benchmark(group="scan")
def test_baseline_zlib_crc32_of_all_bytes(benchmark: Any, log: LogView, messages: int) -> None:
    whole = log.view(0, log.end_offset)
    measure(benchmark, lambda: zlib.crc32(whole), zlib.crc32(bytes(whole)), messages, log.end_offset)


@pytest.mark.benchmark(group="scan")
def test_baseline_copy_of_all_bytes(benchmark: Any, log: LogView, messages: int) -> None:
    whole, target = log.view(0, log.end_offset), bytearray(log.end_offset)

    def act() -> int:
        memoryview(target)[:] = whole
        return len(target)

    measure(benchmark, act, log.end_offset, messages, log.end_offset)


@pytest.mark.benchmark(group="scan")
def test_baseline_model(benchmark: Any, log: LogView, messages: int) -> None:
    count = min(messages, MODEL_RECORDS)
    data = log.read(0, log.end_offset // messages * count)

    def act() -> int:
        at = found = 0
        while at < len(data):
            record = Record.parse(data[at : at + struct.unpack_from(">i", data, at)[0]])
            at, found = at + record.store_size, found + 1
        return found

    measure(benchmark, act, count, count, len(data))


@pytest.mark.benchmark(group="search for the next record")
def test_find_next_record_behind_nothing(benchmark: Any, log: LogView, messages: int) -> None:
    """Over the whole log from its second byte on, up to the second record: each byte is a candidate."""
    second = log.end_offset // messages
    measure(benchmark, lambda: find_next_record(log, 1), second, 1, second)


@pytest.mark.benchmark(group="messages")
@pytest.mark.parametrize("touch", ["none", "two", "body", "properties"])
def test_messages(benchmark: Any, log: LogView, messages: int, touch: str) -> None:
    """Message objects in log order, some attributes read of each."""

    def act() -> int:
        walk = MessageScan(log, 0)
        if touch == "none":
            return sum(1 for _ in walk)
        if touch == "two":
            return sum(m.queue_offset >= 0 and m.store_timestamp > 0 for m in walk)
        if touch == "body":
            return sum(len(m.body) == 256 for m in walk)
        return sum("KEYS" in m.properties for m in walk)

    measure(benchmark, act, messages, messages, log.end_offset)


@pytest.mark.benchmark(group="messages")
def test_messages_by_units(benchmark: Any, log: LogView, messages: int) -> None:
    """32 units a call, as a consumer pulls."""
    size = log.end_offset // messages
    units = [
        b"".join(struct.pack(">qiq", i * size, size, 0) for i in range(at, min(at + 32, messages)))
        for at in range(0, messages, 32)
    ]
    measure(
        benchmark, lambda: sum(len(read_messages(log, u)) for u in units), messages, messages, log.end_offset
    )
