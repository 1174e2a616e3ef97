"""How fast are digests? Each kernel against `zlib.crc32` on the same bytes, in the same run."""

import random
import zlib
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pyledger import _core
from pyledger.model import digest

SIZES = {"64B": 64, "256B": 256, "1KiB": 1024, "4KiB": 4096, "1MiB": 1 << 20}
# A body is a few hundred bytes: one call a body would measure the call. A case digests many bodies.
CALLS = 100

IMPLEMENTATIONS: dict[str, Callable[[bytes], int]] = {
    "zlib": zlib.crc32,
    "crc32": digest.crc32,
    "body_crc": digest.body_crc,
    "crc32c": digest.crc32c,
    "crc32-portable": _core.crc32_portable,
}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids="impl={}".format)
@pytest.mark.parametrize("size", SIZES, ids="body={}".format)
def bench_digest(measured: BenchmarkFixture, size: str, implementation: str) -> None:
    """The baseline is `zlib`."""
    measured.group = f"digest body={size}"
    data = random.Random(1).randbytes(SIZES[size])
    function = IMPLEMENTATIONS[implementation]
    calls = CALLS if len(data) <= 4096 else 1

    def run() -> int:
        total = 0
        for _ in range(calls):
            total += function(data)
        return total

    measured.extra_info["bytes"] = len(data) * calls
    expected = {
        "crc32c": _core.crc32c_portable(data),
        "body_crc": zlib.crc32(data) & 0x7FFFFFFF,
    }.get(implementation, zlib.crc32(data))
    assert measured(run) == expected * calls
