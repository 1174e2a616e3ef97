"""Build known bugs into the machines and count the runs until each is found.

    python -m tests.simulator.bug_table [SEEDS] [dledger|ledger|ha]

rewrites the tables in docs/design/simulation.md.
"""

import re
import sys
from collections.abc import Callable, Iterable
from functools import partial

from pyledger.simulator.dledger.cluster import DLedgerGroup
from tests.simulator import dledger_bugs, ha_bugs, ledger_bugs, test_dledger, test_ledgers, test_replication
from tests.simulator.found_bugs import TABLE

Bug = Callable[..., None]
Play = Callable[[int, Bug], object]


def play_dledger(seed: int, bug: Bug) -> object:
    return DLedgerGroup(seed, 5 if seed % 2 else 3, fault=bug).run(test_dledger.TICKS)


def search(play: Play, bug: Bug, seeds: int) -> tuple[str, str]:
    """Return the number of runs until the bug is found, and the rule that was broken."""
    for seed in range(seeds):
        try:
            play(seed, bug)
        except AssertionError as error:
            return str(seed + 1), str(error).split(":")[0]
    return f"more than {seeds}", ""


def rows(play: Play, bugs: Iterable[Bug], seeds: int) -> Iterable[str]:
    yield "| bug | what it does | found in run | rule that was broken |"
    yield "|---|---|---|---|"
    for bug in bugs:
        what = " ".join((bug.__doc__ or "").split()).rstrip(".")
        yield f"| `{bug.__name__}` | {what} | {' | '.join(search(play, bug, seeds))} |"


TABLES = {
    "dledger": partial(rows, play_dledger, dledger_bugs.BUGS),
    "ledger": partial(rows, test_ledgers.play_bug, ledger_bugs.BUGS),
    "ha": partial(rows, test_replication.play, ha_bugs.BUGS),
}


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    for name in sys.argv[2:] or TABLES:
        start, end = f"<!-- {name} bugs -->\n", f"<!-- end of {name} bugs -->"
        lines = []
        for line in TABLES[name](seeds):
            print(line, flush=True)
            lines.append(line)
        table = start + "\n".join(lines) + "\n" + end
        text = TABLE.read_text()
        TABLE.write_text(re.sub(f"{start}.*?{end}", lambda _, table=table: table, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
