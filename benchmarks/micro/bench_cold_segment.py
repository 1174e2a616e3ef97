"""Cold segments: how fast blocks are unpacked and walked, one message is read, and how small they are.

Three logs: typical messages, messages with random bodies, and real flights. Baseline: the same walk
over the file that is not packed, resident. `extra_info` holds GB/s of original bytes and the ratio. Each
round starts with nothing unpacked.
"""

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.micro.typical_log import typical_log
from pyledger._core import LogView, MappedFile, limit_unpacked_bytes, read_message, scan
from pyledger.store.cold_segment import write_segment
from tests.core.log_files import RecordFields
from tests.golden.archive import golden_case

ROUNDS = 7
BUDGET_BYTES = 128 << 20
BLOCKS = {"64KiB": 64 << 10, "256KiB": 256 << 10, "1MiB": 1 << 20}


@pytest.fixture(scope="module")
def messages(request: pytest.FixtureRequest) -> int:
    return 500_000 if request.config.getoption("--scale", "smoke") == "full" else 2_000


@pytest.fixture(scope="module", params=["typical", "random", "flights"])
def log(messages: int, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LogView:
    folder = tmp_path_factory.mktemp("log")
    make = {"typical": typical_log, "random": random_log, "flights": flights_log}[request.param]
    return make(folder, messages)


@pytest.fixture(scope="module", params=BLOCKS)
def packed(log: LogView, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LogView:
    target = tmp_path_factory.mktemp("cold") / f"{0:020d}.lz4"
    write_segment(log.files[0], str(target), block_bytes=BLOCKS[request.param])
    return LogView([MappedFile.open(str(target))], log.end_offset)


def random_log(folder: Path, messages: int) -> LogView:
    """Bodies of 256 random bytes."""
    chance = random.Random(1)
    path = folder / f"{0:020d}"
    at = 0
    with path.open("wb") as file:
        for n in range(messages):
            fields = RecordFields(topic=b"orders", body=chance.randbytes(256), queue_offset=n)
            at += file.write(fields.encode(at))
    return LogView([MappedFile.open(str(path))], at)


def flights_log(folder: Path, _messages: int) -> LogView:
    """The first sealed file of what `examples/flights.py` writes."""
    store = golden_case("flights-5").unpack(folder / "store")
    path = folder / f"{0:020d}"
    shutil.copy(store / "commitlog" / path.name, path)
    file = MappedFile.open(str(path))
    return LogView([file], file.size_bytes)


def measure(
    benchmark: Any, act: Callable[[], object], wanted: object, size_bytes: int, packed: LogView
) -> None:
    assert benchmark.pedantic(act, setup=forget, rounds=ROUNDS, warmup_rounds=1) == wanted
    file = packed.files[0]
    benchmark.extra_info["ratio"] = file.size_bytes / Path(file.path).stat().st_size
    if benchmark.stats:
        benchmark.extra_info["gb_per_s"] = size_bytes / benchmark.stats.stats.min / 1e9


def forget() -> None:
    """Give back what is unpacked."""
    limit_unpacked_bytes(0)
    limit_unpacked_bytes(BUDGET_BYTES)


@pytest.mark.benchmark(group="cold scan")
@pytest.mark.parametrize("check", [True, False], ids=["crc=on", "crc=off"])
def test_scan(benchmark: Any, log: LogView, packed: LogView, check: bool) -> None:
    count, size = scan(log, 0).record_count, packed.end_offset
    measure(benchmark, lambda: scan(packed, 0, check=check).record_count, count, size, packed)


@pytest.mark.benchmark(group="cold scan")
@pytest.mark.parametrize("check", [True, False], ids=["crc=on", "crc=off"])
def test_baseline_scan_of_the_plain_file(benchmark: Any, log: LogView, check: bool) -> None:
    count, size = scan(log, 0).record_count, log.end_offset
    measure(benchmark, lambda: scan(log, 0, check=check).record_count, count, size, log)


@pytest.mark.benchmark(group="cold point read")
def test_point_read(benchmark: Any, packed: LogView) -> None:
    """One message, its block not unpacked before."""
    body = struct.unpack_from(">i", packed.read(0, 4))[0]
    measure(benchmark, lambda: read_message(packed, 0).store_size, body, body, packed)
