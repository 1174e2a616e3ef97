"""Two saved runs side by side: `compare.py BEFORE.json AFTER.json [--bound 1.2]`.

The ratio is time after by time before, of the best rounds: above 1 is slower. With a bound the exit code is 1
when any case got slower than that. Runs of different machines, builds or scales are reported, not compared.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

MUST_AGREE = ("cpu", "cores", "python", "file_system", "build", "scale")


def seconds_of(case: dict[str, Any]) -> float:
    """Time of one unit where the case counts units, else of its best round."""
    rate = case["extra_info"].get("per_second")
    return 1 / rate if rate else float(case["stats"]["min"])


def load(path: Path) -> dict[str, dict[str, Any]]:
    return {case["fullname"]: case for case in json.loads(path.read_text())["benchmarks"]}


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What makes two runs of a case incomparable."""
    old, new = before["extra_info"], after["extra_info"]
    return [
        f"{name}: {old.get(name)} -> {new.get(name)}" for name in MUST_AGREE if old.get(name) != new.get(name)
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--bound", type=float, help="fail when a case takes more than so many times as long")
    options = parser.parse_args(arguments)
    before, after = load(options.before), load(options.after)
    both = [name for name in before if name in after]
    changes = {line for name in both for line in differences(before[name], after[name])}
    for line in sorted(changes):
        print(f"not comparable: {line}", file=sys.stderr)
    if changes or not both:
        print("nothing compared", file=sys.stderr)
        return 2
    beyond = 0
    for name in both:
        ratio = seconds_of(after[name]) / seconds_of(before[name])
        slower = options.bound is not None and ratio > options.bound
        beyond += slower
        print(f"{ratio:7.2f} {'SLOWER' if slower else '      '} {name}")
    for name in sorted(before.keys() ^ after.keys()):
        print(f"{'   gone' if name in before else '    new'}        {name}")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
