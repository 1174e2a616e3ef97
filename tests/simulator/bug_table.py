"""Builds known bugs into the machine and counts the histories until each is found.

    python -m tests.simulator.bug_table [SEEDS]

rewrites the table in docs/simulation.md.
"""

import re
import sys
from collections.abc import Callable

from pyledger.simulator.raft_group import RaftGroup
from pyledger.simulator.raft_member import RaftMember
from tests.simulator.raft_bugs import BUGS
from tests.simulator.test_raft import TABLE, TICKS

START, END = "<!-- bugs -->\n", "<!-- end of bugs -->"


def search(bug: Callable[[RaftMember], None], seeds: int) -> tuple[str, str]:
    """How many histories it took, and the rule that was broken."""
    for seed in range(seeds):
        try:
            RaftGroup(seed, 5 if seed % 2 else 3, fault=bug).run(TICKS)
        except AssertionError as error:
            return str(seed + 1), str(error).split(":")[0]
    return f"more than {seeds}", ""


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    lines = ["| bug | what it does | found in history | rule that was broken |", "|---|---|---|---|"]
    for bug in BUGS:
        what = " ".join((bug.__doc__ or "").split()).rstrip(".")
        lines.append(f"| `{bug.__name__}` | {what} | {' | '.join(search(bug, seeds))} |")
        print(lines[-1], flush=True)
    text = TABLE.read_text()
    table = START + "\n".join(lines) + "\n" + END
    TABLE.write_text(re.sub(f"{START}.*?{END}", lambda _: table, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
