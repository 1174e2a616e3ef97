"""How long until Python has imported PyLedger, and until the command line answers?

Each round starts every program once, so that all run under the same conditions. The best round counts.
`over_ms` is the time beyond `python -c pass`.
"""

import subprocess
import sys
import time

import pytest

from benchmarks.load.rounds import Rounds

CLI = "import sys; from pyledger.cli.__main__ import main; sys.argv[0] = 'pyledger'; main()"
PROGRAMS = {
    "pass": ["-c", "pass"],
    "import": ["-c", "import pyledger"],
    "import-store": ["-c", "import pyledger.store.messages.message_store"],
    "version": ["-c", CLI, "--version"],
}


def seconds_of(options: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *options], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


@pytest.mark.benchmark(group="start-up")
def bench_startup(rounds: Rounds) -> None:
    best = dict.fromkeys(PROGRAMS, float("inf"))

    def act() -> int:
        for _ in range(30 if rounds.full else 1):
            for name, options in PROGRAMS.items():
                best[name] = min(best[name], seconds_of(options))
        return len(best)

    assert rounds.benchmark.pedantic(act, rounds=1) == len(PROGRAMS)
    for name, taken_s in best.items():
        rounds.note(**{f"{name}_ms": taken_s * 1e3, f"{name}_over_ms": (taken_s - best["pass"]) * 1e3})
