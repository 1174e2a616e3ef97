"""Damaged folders never crash the interpreter, hang it, or yield a record whose bytes are not its CRC's.

`pytest tests/store/test_fuzz.py --fuzz-seconds 600` looks longer.
"""

import os
import subprocess
import sys
import time

import pytest

from tests.golden.archive import GoldenCase, golden_case

CASES = (
    "clean-5",
    "rolled-5",
    "deleted-head-5",
    "crash-4",
    "cq-ext-5",
    "inner-batch-5",
    "index-5",
    "compressed-5",
)
DEFAULT_S = 6.0


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CASES)
def test_damaged_folders_are_survived(name: str, request: pytest.FixtureRequest) -> None:
    seconds = request.config.getoption("--fuzz-seconds")
    case: GoldenCase = golden_case(name)
    if not case.folder.exists():
        pytest.skip("no such case in this set of folders")
    share = (seconds or DEFAULT_S) / len(CASES)
    # A short run tries the same seeds every time, a long one others.
    first_seed = int(time.time()) << 20 if seconds else 1
    command = [sys.executable, "-m", "tests.store.fuzz_worker", name, str(first_seed), str(share)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=share + 120, check=False, env=environment
    )
    assert done.returncode == 0, f"exit {done.returncode} after\n{done.stdout[-1500:]}\n{done.stderr[-4000:]}"
