"""How benchmarks run: `--scale=smoke` proves that they work, `--scale=full` measures."""

import gc
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.load.broker_load import program
from benchmarks.load.filling import Filled, close_cleanly, fill_and_die
from benchmarks.load.rounds import Rounds
from benchmarks.peers.java_bench import JavaBench
from pyledger import _core
from tests.interop.java import VERSIONS, built

# Full runs give each case this long; smoke runs give it a blink.
SMOKE = {"min_rounds": 1, "max_time": 0.01, "min_time": 0.0001, "warmup": False, "calibration_precision": 1}
FULL = {"min_rounds": 20, "max_time": 1.0, "min_time": 0.001, "warmup": True}

# The log of the store that is read: one file of the default size, nearly full.
FULL_LOG_BYTES = (1 << 30) - 1_000_000
SMOKE_LOG_BYTES = 1_000_000
SMOKE_OPTIONS = {"mapped_file_size_bytes": 1 << 20, "index_slots": 1_000, "index_entries": 4_000}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--scale` for all benchmarks."""
    parser.addoption("--scale", choices=("smoke", "full"), default="smoke", help="how long benchmarks run")


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> str:
    """`smoke` or `full`."""
    return str(pytestconfig.getoption("--scale"))


def cpu_model() -> str:
    """The processor's name, as the kernel knows it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(path: Path) -> str:
    """Type of the file system that holds `path`."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if path.resolve().is_relative_to(where) and len(where) >= len(best[0]):
            best = (where, kind)
    return best[1]


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a figure depends on beside the code."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "file_system": file_system(tmp_path_factory.getbasetemp()),
        "build": _core.build_kind(),
        "digests": _core.digest_backend(),
    }


@pytest.fixture
def measured(
    request: pytest.FixtureRequest, scale: str, machine: dict[str, object]
) -> Iterator[BenchmarkFixture]:
    """A benchmark of this scale, with the machine's facts, and no garbage collection while it runs."""
    request.node.add_marker(pytest.mark.benchmark(**(SMOKE if scale == "smoke" else FULL)))
    benchmark: BenchmarkFixture = request.getfixturevalue("benchmark")
    benchmark.extra_info.update(machine, scale=scale, load=os.getloadavg()[0])
    gc.collect()
    gc.disable()
    try:
        yield benchmark
    finally:
        gc.enable()


@pytest.fixture
def full(scale: str) -> bool:
    """Whether this run measures, rather than prove that the case works."""
    return scale == "full"


@pytest.fixture
def rounds(
    benchmark: BenchmarkFixture, machine: dict[str, object], scale: str, full: bool
) -> Iterator[Rounds]:
    """Rounds over fresh state, with the machine's facts, and no garbage collection while they run."""
    benchmark.extra_info.update(machine, scale=scale, load=os.getloadavg()[0])
    gc.collect()
    gc.disable()
    try:
        yield Rounds(benchmark, full)
    finally:
        gc.enable()


@pytest.fixture(scope="session")
def native_load() -> Path:
    """The program that `BrokerLoad` runs; skips cases that cannot have it."""
    try:
        return program()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def store_options(scale: str) -> dict[str, int]:
    """Settings of a store: the defaults when it counts, small files when it must only work."""
    return {} if scale == "full" else SMOKE_OPTIONS


@pytest.fixture(scope="session")
def crashed(scale: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A store of one full log file whose writer died without closing it; copy before use."""
    folder = tmp_path_factory.mktemp("crashed") / "store"
    yield fill_and_die(folder, FULL_LOG_BYTES if scale == "full" else SMOKE_LOG_BYTES)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def filled(crashed: Filled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """The same store after a recovery and a clean close; only for reading."""
    store = close_cleanly(crashed, tmp_path_factory.mktemp("filled") / "store")
    yield store
    shutil.rmtree(store.path)


@pytest.fixture(params=VERSIONS, ids="impl=java-{}".format)
def java_bench(request: pytest.FixtureRequest, rounds: Rounds) -> JavaBench:
    """Each version of upstream's store in turn."""
    return JavaBench(built(request.param), rounds)
