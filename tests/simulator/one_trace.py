"""Check that `pyledger sim` prints the same trace for every seed of Python's hashes."""

import os
import subprocess
import sys


def assert_one_trace(*options: str) -> None:
    command = [sys.executable, "-m", "pyledger", "sim", *options, "--json"]
    outputs = {
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert b'"trace":"' in outputs.pop()
