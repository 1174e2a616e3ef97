"""How benchmarks run: `--scale=smoke` proves that they work, `--scale=full` measures."""

import gc
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pyledger import _core

# Full runs give each case this long; smoke runs give it a blink.
SMOKE = {"min_rounds": 1, "max_time": 0.01, "min_time": 0.0001, "warmup": False, "calibration_precision": 1}
FULL = {"min_rounds": 20, "max_time": 1.0, "min_time": 0.001, "warmup": True}


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
        "load": round(os.getloadavg()[0], 2),
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
    benchmark.extra_info.update(machine, scale=scale)
    gc.collect()
    gc.disable()
    try:
        yield benchmark
    finally:
        gc.enable()
