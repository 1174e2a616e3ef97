"""A seed is one history: `pyledger sim` tells the same trace whatever the seed of Python's hashes."""

import os
import subprocess
import sys


def assert_one_trace(*options: str) -> None:
    command = [sys.executable, "-m", "pyledger", "sim", *options, "--json"]
    told = {
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(told) == 1
    assert b'"trace":"' in told.pop()
