"""Measures everything that docs/design/benchmarking.md states, and writes its table.

    python -m benchmarks.report [--runs 3] [--keep FOLDER] [-- pytest options]
    python -m benchmarks.report --from FOLDER      the table of runs that were kept

Runs go through all cases one after another, peers included, so that ours and theirs take turns. A rate is the
best of all runs, for every side; a latency is the median of the runs. A line of which the runs say nothing
(no Java, no peer package, other cases chosen) stays as it was, with its day.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks.report.bookkeeper import LEDGER_ROWS
from benchmarks.report.results import Results
from benchmarks.report.servers import SERVER_ROWS
from benchmarks.report.spark import SPARK_ROWS, source_lines
from benchmarks.report.store import START_ROWS, STORE_ROWS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "design" / "benchmarking.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
SOURCES_BEGIN, SOURCES_END = "<!-- sources: begin -->", "<!-- sources: end -->"
CASES = (
    "benchmarks/system",
    "benchmarks/spark",
    "benchmarks/micro/bench_quorum.py",
    "benchmarks/micro/bench_dledger.py",
)
PACKAGES = ("numpy", "pyarrow", "pyspark", "lmdb", "rocksdict")
ROWS = (*STORE_ROWS, *SPARK_ROWS, *SERVER_ROWS, *LEDGER_ROWS, *START_ROWS)

Place = tuple[str, str]
"""A line of the table: the last question that is not a part of another, and the line itself."""


def measure(runs: int, folder: Path, options: list[str]) -> None:
    """Run all cases so many times; each run leaves a file."""
    for number in range(runs):
        saved = folder / f"run-{number}.json"
        command = [sys.executable, "-m", "pytest", "-q", "--scale=full", f"--benchmark-json={saved}"]
        command += ["--timeout=1800", "--benchmark-columns=min,rounds", *CASES, *options]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if not saved.exists():
            sys.exit(f"run {number} ended with {done.returncode} and left no results")


def versions() -> str:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def placed(questions: list[str]) -> list[Place]:
    """Places of lines by their questions, in the table's order."""
    found, whole = [], ""
    for question in questions:
        whole = whole if question.startswith("—") else question
        found.append((whole, question))
    return found


def known_lines(text: str) -> dict[Place, str]:
    """Lines of a table that state something."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    places = placed([line.split("|")[1].strip() for line in lines])
    return {place: line for place, line in zip(places, lines, strict=True) if "not measured" not in line}


def lines(results: Results, measured_at: str, known: dict[Place, str]) -> Iterator[str]:
    """The table's lines: of these runs, or as they are known."""
    for place, row in zip(placed([row.what for row in ROWS]), ROWS, strict=True):
        verdict = row.verdict(results)
        if verdict is not None:
            yield row.line(*verdict, measured_at)
        else:
            yield known.get(place) or row.line(None, "not measured", "")


def table(results: Results, runs: int, measured_at: str, known: dict[Place, str]) -> str:
    facts = results.facts
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    machine = (
        f"{facts['cpu']}, {facts['cores']} cores, {memory_gib:.0f} GiB, {facts['file_system']}, "
        f"Linux {facts['kernel']}, Python {facts['python']}, digests by {facts['digests']}; {versions()}"
    )
    loads = f"median {statistics.median(results.loads):.1f}, highest {max(results.loads):.1f}"
    head = [
        f"Last measured on {measured_at}, {runs} runs: {machine}. Load before a case: {loads}.",
        "",
        "| what | to reach | met | measured | on |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *lines(results, measured_at, known)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="leave the results of the runs here")
    parser.add_argument("--from", dest="source", type=Path, help="do not measure: take kept results")
    parser.add_argument("options", nargs="*", help="for pytest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.source or options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if options.source is None:
            measure(options.runs, folder, options.options)
        files = sorted(folder.glob("run-*.json"))
        runs = [json.loads(file.read_text()) for file in files]
    measured_at = datetime.fromisoformat(runs[-1]["datetime"]).astimezone(UTC).date().isoformat()
    results = Results(runs)
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    text = table(results, len(runs), measured_at, known_lines(old))
    if sources := source_lines(results, measured_at):
        between, _, rest = after.partition(SOURCES_BEGIN)
        after = f"{between}{SOURCES_BEGIN}\n{sources}\n{SOURCES_END}{rest.partition(SOURCES_END)[2]}"
        print(sources)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    print(text)


if __name__ == "__main__":
    main()
