"""Measures everything that docs/benchmarking.md states, and writes its table.

    python benchmarks/report.py [--runs 3] [--keep FOLDER] [-- pytest options]
    python benchmarks/report.py --from FOLDER      the table of runs that were kept

Runs go through all cases one after another, peers included, so that ours and theirs take turns. A rate is the
best of all runs, for every side; a latency is the median of the runs. What cannot run here (no Java, no
peer package) is told as not measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "benchmarking.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
FOLDERS = ("benchmarks/system", "benchmarks/spark")
PACKAGES = ("numpy", "pyarrow", "pyspark", "lmdb", "rocksdict")
JAVA_VERSIONS = ("5.3.3", "4.9.8")
SPARK_STREAM = "stream_and_write.stream[columns=no-properties]"


class Results:
    """The cases of all runs, by their short names."""

    def __init__(self, runs: list[dict[str, Any]]) -> None:
        self.facts: dict[str, Any] = {}
        self._cases: dict[str, list[dict[str, Any]]] = {}
        for case in (case for run in runs for case in run["benchmarks"]):
            name = case["fullname"].rpartition("/")[2].replace("bench_", "").replace(".py::", ".")
            self._cases.setdefault(name, []).append(case["extra_info"])
            self.facts = case["extra_info"]
        self.loads = [case["load"] for cases in self._cases.values() for case in cases if "load" in case]

    def best(self, name: str, fact: str = "per_second") -> float:
        return float(max(case[fact] for case in self._cases[name]))

    def middle(self, name: str, fact: str) -> float:
        return float(statistics.median(case[fact] for case in self._cases[name]))

    def least(self, name: str, fact: str) -> float:
        return float(min(case[fact] for case in self._cases[name]))

    def java(self, name: str, fact: str = "per_second") -> dict[str, float]:
        """By version; `name` has a gap for it."""
        named = {version: name.format(version) for version in JAVA_VERSIONS}
        return {v: self.best(n, fact) for v, n in named.items() if n in self._cases}


Verdict = tuple[bool | None, str]


@dataclass(frozen=True)
class Row:
    """One line of the table: a question, its goal, and what the runs say."""

    what: str
    goal: str
    judge: Callable[[Results], Verdict]

    def line(self, results: Results) -> str:
        try:
            met, text = self.judge(results)
        except KeyError as error:
            met, text = None, f"not measured here: {error}"
        mark = "" if met is None else "yes" if met else "**no**"
        return f"| {self.what} | {self.goal} | {mark} | {text} |"


def rate(value: float) -> str:
    """So many a second, in three digits."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}/s"
    return f"{value:.3g}/s"


def single(r: Results) -> Verdict:
    ours = r.best("produce.pyledger[pages=resident]")
    return (
        ours >= 5e6,
        f"{rate(ours)}; sustained over 1 GiB {rate(r.best('produce.pyledger[pages=sustained]'))}",
    )


def against(peer: str, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        theirs = r.best(f"produce.{peer}")
        ratio = r.best("produce.pyledger[pages=resident]") / theirs
        return ratio >= goal, f"{ratio:.1f}× ({rate(theirs)})"

    return judge


def single_java(r: Results) -> Verdict:
    ours = r.best("produce.pyledger[pages=resident]")
    plain = r.java("produce.java[impl=java-{}-properties=none]")
    keyed = r.java("produce.java[impl=java-{}-properties=key+tag]")
    told = [
        f"{version}: {ours / plain[version]:.1f}× ({rate(plain[version])}), "
        f"with key and tag {ours / keyed[version]:.1f}× ({rate(keyed[version])})"
        for version in plain
    ]
    if not told:
        raise KeyError("Java")
    return min(ours / value for value in plain.values()) >= 10, "; ".join(told)


def batches(r: Results) -> Verdict:
    small = {b: r.best(f"produce.batch[body=64B-batch={b}]") for b in (32, 1000)}
    return min(small.values()) >= 30e6, ", ".join(f"{b}: {rate(v)}" for b, v in small.items())


def batch_floor(r: Results) -> Verdict:
    shares = {
        b: r.best(f"produce.batch[body=1024B-batch={b}]") / r.best(f"produce.floor[body=1024B-batch={b}]")
        for b in (32, 1000)
    }
    rates = {b: r.best(f"produce.batch[body=1024B-batch={b}]") for b in shares}
    return min(shares.values()) >= 0.6, ", ".join(
        f"{b}: {v:.2f} ({rate(rates[b])})" for b, v in shares.items()
    )


def latency(loop: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"latency.pyledger[loop={loop}]"
        p50, p99, p999, worst = (r.middle(name, f) for f in ("p50_us", "p99_us", "p999_us", "max_us"))
        text = f"p50 {p50:.2f}, p99 {p99:.2f}, p99.9 {p999:.2f} µs; max {worst / 1e3:.2f} ms"
        if loop == "closed":
            worst = r.middle(name, "max_with_core_us")
            text += f", {worst / 1e3:.2f} ms without the caller's waits for a core"
        text += f" ({r.middle(name, 'involuntary_switches'):.0f} involuntary switches)"
        return p999 < 10 and worst < 2_000, text

    return judge


def latency_java(r: Results) -> Verdict:
    told = [
        f"{version}: p99.9 {r.middle(name, 'p999_us'):.1f} µs, max {r.middle(name, 'max_us') / 1e3:.0f} ms"
        for version, name in ((v, f"latency.java[impl=java-{v}]") for v in JAVA_VERSIONS)
    ]
    return None, "; ".join(told)


def one_caller(r: Results) -> Verdict:
    name = "sync_flush.one_caller"
    ratio = r.middle(name, "ratio")
    text = f"{ratio:.2f} ({rate(r.middle(name, 'per_second'))} of {rate(r.middle(name, 'bare_per_second'))})"
    return ratio >= 0.9, text


def many_callers(kind: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"sync_flush.many_callers[callers={kind}]"
        ours = r.best(name)
        java = r.java("sync_flush.java[impl=java-{}-callers=64]")
        bare = r.best(f"sync_flush.bare_callers[callers={kind}]")
        text = f"{rate(ours)}; {ours / bare:.2f} of bare {kind} ({rate(bare)})"
        text += f"; {r.best(name, 'ratio_to_64_flushes'):.2f} of 64 ÷ one flush"
        text += "".join(f"; {ours / value:.1f}× Java {v} ({rate(value)})" for v, value in java.items())
        return (ours >= 2 * max(java.values()) if java else None), text

    return judge


def scan(r: Results) -> Verdict:
    ours = r.best("recover.scan")
    return (
        ours >= 2e9,
        f"{ours / 1e9:.1f} GB/s; zlib's CRC alone {r.best('recover.zlib_crc32') / 1e9:.1f} GB/s",
    )


def reopen(r: Results) -> Verdict:
    ours = r.best("recover.open")
    java = r.java("recover.java[impl=java-{}-case=recover]")
    size = r.best("recover.open", "log_bytes")
    text = f"{size / ours:.2f} s for 1 GiB, queues and index included"
    return size / ours < 1, text + "".join(f"; Java {v} {size / value:.1f} s" for v, value in java.items())


def rebuild(r: Results) -> Verdict:
    ours, native = r.best("recover.rebuild"), r.best("recover.dispatch")
    java = r.java("recover.java[impl=java-{}-case=rebuild]")
    text = f"{rate(native)}; from opening the folder on {rate(ours)}"
    return native >= 5e6, text + "".join(f"; Java {v} {rate(value)}" for v, value in java.items())


def ranges(r: Results) -> Verdict:
    ours = r.best("consume.ranges")
    java = r.java("consume.java[impl=java-{}]")
    text = rate(ours) + "".join(
        f"; {ours / value:.1f}× Java {v} ({rate(value)})" for v, value in java.items()
    )
    return ours >= max(java.values(), default=8e6), text


def at_least(name: str, goal: float) -> Callable[[Results], Verdict]:
    return lambda r: (r.best(name) >= goal, rate(r.best(name)))


def arrow(columns: str, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        found = {p: r.best(f"arrow.scan[columns={columns}-plan={p}]") for p in ("log", "queue")}
        return max(found.values()) >= goal, ", ".join(f"plan {p}: {rate(v)}" for p, v in found.items())

    return judge


def spark(columns: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"batch_read.read[columns={columns}]"
        ceiling, parquet = r.middle(name, "ratio_to_ceiling"), r.middle(name, "ratio_to_parquet")
        text = f"{ceiling:.2f} of the ceiling, {parquet:.2f} of parquet ({rate(r.best(name))} rows)"
        return ceiling >= 0.85, text

    return judge


def spark_write(r: Results) -> Verdict:
    name = "stream_and_write.write[columns=body]"
    ratio = r.middle(name, "ratio_to_discard")
    return ratio >= 0.8, f"{ratio:.2f} of it ({rate(r.best(name))} rows), flushed to disk twice"


def startup(program: str, goal_ms: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        over = r.least("startup.startup", f"{program}_over_ms")
        return over < goal_ms, f"{over:.0f} ms over {r.least('startup.startup', 'pass_ms'):.0f} ms"

    return judge


BY_THREAD = "send_in_turn_with_threads"
OURS, JAVA = "pyledger", f"java-{JAVA_VERSIONS[0]}"


def java_client(mode: str, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"broker_clients.java_client[mode={mode}]"
        ours, theirs = r.best(name), r.best(name, "java_per_second")
        return ours >= goal * theirs, f"{ours / theirs:.1f}× ({rate(ours)} by {rate(theirs)})"

    return judge


def broker_rates(r: Results) -> Verdict:
    ratios, told = [], []
    for kind in ("async", "batch", "pull"):
        ours, theirs = (r.best(f"broker.load[impl={impl}-kind={kind}]") for impl in (OURS, JAVA))
        ratios.append(ours / theirs)
        told.append(f"{kind} {ours / theirs:.1f}× ({rate(ours)} by {rate(theirs)})")
    return min(ratios) >= 2, ", ".join(told)


def broker_cpu(r: Results) -> Verdict:
    ratios, told = [], []
    for kind in ("sync", "async", "batch", "pull"):
        ours, theirs = (
            r.least(f"broker.load[impl={impl}-kind={kind}]", "broker_cpu_us") for impl in (OURS, JAVA)
        )
        ratios.append(ours / theirs)
        told.append(f"{kind} {ours / theirs:.2f}× ({ours:.2f} by {theirs:.2f} µs)")
    return max(ratios[:3]) <= 0.5, ", ".join(told)


def pull_copies(r: Results) -> Verdict:
    told, met = [], True
    for size in (1 << 10, 64 << 10):
        names = [f"broker.pull_copies[heap={by_heap}-body={size}B]" for by_heap in ("false", "true")]
        mapped, heap = (r.best(name) for name in names)
        mapped_us, heap_us = (r.least(name, "broker_cpu_us") for name in names)
        met &= mapped_us <= heap_us
        told.append(
            f"{size >> 10} KiB: {rate(mapped)} and {mapped_us:.2f} µs of CPU from the log, "
            f"{rate(heap)} and {heap_us:.2f} µs by a copy"
        )
    return met, "; ".join(told)


def sync_over_async(senders: int, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = "replicate.sync_over_async"
        ratio = r.best(name, f"sync_over_async_{senders}")
        told = [
            f"{rate(r.best(name, f'{role}_{senders}_per_second'))}"
            for role in ("SYNC_MASTER", "ASYNC_MASTER")
        ]
        return ratio >= goal, f"{ratio:.2f} ({told[0]} by {told[1]})"

    return judge


def catch_up(r: Results) -> Verdict:
    speed, sends = (
        r.best("replicate.catch_up", fact) for fact in ("gb_per_second", "sends_meanwhile_over_alone")
    )
    return speed >= 1 and sends >= 0.9, f"{speed:.2f} GB/s; sends at {sends:.2f} of their rate meanwhile"


def lag(r: Results) -> Verdict:
    name = "replicate.lag"
    p50, p99 = (r.least(name, f"lag_p{p}_ms") for p in (50, 99))
    return p99 < 10, f"p50 {p50:.1f}, p99 {p99:.1f} ms at {rate(r.best(name, 'per_second'))}"


def java_pair(role: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"replicate.java_client[role={role}]"
        rates = [r.best(name, f"{mode}_over_java") for mode in ("sync", "async")]
        costs = [r.least(name, f"{mode}_cpu_over_java") for mode in ("sync", "async")]
        told = ", ".join(
            f"{mode} {ours:.1f}× with {cost:.2f}× the CPU"
            for mode, ours, cost in zip(("sync", "async"), rates, costs, strict=True)
        )
        return min(rates) >= 1.2 and max(costs) <= 0.5, told

    return judge


def broker_latency(impl: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"broker.latency[impl={impl}]"
        p50, p999, worst = (r.middle(name, fact) / 1e3 for fact in ("p50_us", "p999_us", "max_us"))
        text = f"at {rate(r.middle(name, 'rate'))}: p50 {p50:.2f}, p99.9 {p999:.1f}, max {worst:.0f} ms"
        return (p999 < 5 and worst <= 20) if impl == OURS else None, text

    return judge


def broker_ready(r: Results) -> Verdict:
    node, broker = (r.least(f"broker_idle.ready[kind={kind}]", "ready_ms") for kind in ("node", "broker"))
    return max(node, broker) < 300, f"`serve --dev` {node:.0f} ms, `broker` {broker:.0f} ms"


def broker_idle(r: Results) -> Verdict:
    name = "broker_idle.idle"
    cpu, rss, own, added = (
        r.least(name, fact) for fact in ("cpu_percent", "rss_mib", "anonymous_mib", "connections_added_mib")
    )
    text = f"CPU {cpu:.1f} %; RSS {rss:.0f} MiB, {own:.0f} of it the process's own; "
    text += f"{r.least(name, 'connections'):.0f} connections add {added:.1f} MiB"
    return cpu < 1 and rss < 60 and added < 30, text


def many_topics(r: Results) -> Verdict:
    name = "broker_topics.many_topics"
    ready, many, one = (r.least(name, fact) for fact in ("ready_s", "many_cpu_us", "one_cpu_us"))
    text = f"ready in {ready:.1f} s with {r.least(name, 'queues'):.0f} queues; "
    text += f"a message takes {many:.2f} µs of CPU, with one topic {one:.2f}"
    return ready < 5 and many < 1.25 * one, text


def own_client(case: str, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"clients.{case}"
        ours = r.best(name)
        text = f"{rate(ours)}; CPU of a message: client {r.least(name, 'client_cpu_us'):.2f} µs, "
        return ours >= goal, text + f"broker {r.least(name, 'broker_cpu_us'):.2f} µs"

    return judge


ROWS = (
    Row("append, one call a message, 256 B, resident pages", "≥ 5 M/s", single),
    Row("— by RocketMQ's store, same run", "≥ 10×", single_java),
    Row("— by lmdb, one transaction", "≥ 2×", against("lmdb", 2)),
    Row("— by rocksdict put", "≥ 10×", against("rocksdict", 10)),
    Row("— by Python's `file.write` of the bare body", "≥ 1×", against("file_write", 1)),
    Row("append in batches, 64 B", "≥ 30 M/s", batches),
    Row("append in batches, 1 KiB, by memcpy + CRC", "≥ 0.6", batch_floor),
    Row("latency while files roll, closed loop", "p99.9 < 10 µs, max < 2 ms", latency("closed")),
    Row("— 500,000 offered a second", "p99.9 < 10 µs, max < 2 ms", latency("open")),
    Row("— Java, closed loop", "", latency_java),
    Row("sync flush, 1 caller, by the bare flush rate", "≥ 0.9", one_caller),
    Row("sync flush, 64 threads", "≥ 2× Java", many_callers("threads")),
    Row("sync flush, 64 tasks", "≥ 2× Java", many_callers("tasks")),
    Row("recovery scan, every CRC", "≥ 2 GB/s", scan),
    Row("open after a kill", "< 1 s", reopen),
    Row("rebuild queues and index", "≥ 5 M/s", rebuild),
    Row("consume 32 a call, as ranges", "≥ 1× Java's getMessage", ranges),
    Row("— as message objects", "≥ 1 M/s", at_least("consume.objects", 1e6)),
    Row("consume by key", "≥ 200 k/s", at_least("consume.query", 200e3)),
    Row("Arrow scan, default columns", "≥ 3 M rows/s", arrow("default", 3e6)),
    Row("Arrow scan, one narrow column", "≥ 20 M rows/s", arrow("queueOffset", 20e6)),
    Row("Spark batch read, default columns", "≥ 0.85 of the ceiling", spark("default")),
    Row("— without properties", "≥ 0.85 of the ceiling", spark("no-properties")),
    Row("— one narrow column", "≥ 0.85 of the ceiling", spark("queueOffset")),
    Row("Spark stream, a million rows a trigger", "≥ 1 M rows/s", at_least(SPARK_STREAM, 1e6)),
    Row("Spark write, by a sink that discards", "≥ 0.8", spark_write),
    Row("broker: RocketMQ's Java client, sync", "≥ 1.2× Java's broker", java_client("sync", 1.2)),
    Row("— async, 1,024 in flight", "≥ 1.2×", java_client("async", 1.2)),
    Row("— batches of 32", "≥ 1.5×", java_client("batch", 1.5)),
    Row("— a push consumer drains a topic", "≥ 1.5×", java_client("drain", 1.5)),
    Row("broker: a light load, the same frames", "≥ 2× Java's broker", broker_rates),
    Row("— the broker's CPU for one message", "≤ 0.5× Java's", broker_cpu),
    Row("broker: pulls", "the default is the faster", pull_copies),
    Row("broker: latency at half of the maximum rate", "p99.9 < 5 ms, max ≤ 20 ms", broker_latency(OURS)),
    Row("— Java", "", broker_latency(JAVA)),
    Row("our clients, our broker: blocking sends, one by one", "≥ 9.8 k/s", own_client(BY_THREAD, 9.8e3)),
    Row("— asyncio, one by one", "", own_client("send_in_turn", 0)),
    Row("— 1,024 in flight", "≥ 100 k/s", own_client("send_1024_in_flight", 100e3)),
    Row("— batches of 32", "≥ 1 M/s", own_client("send_batches_of_32", 1e6)),
    Row("— a push consumer drains a topic, 32 a pull", "≥ 1 M/s", own_client("drain[pull=32]", 1e6)),
    Row("— 1,024 a pull", "≥ 1 M/s", own_client("drain[pull=1024]", 1e6)),
    Row("broker: ready", "< 300 ms", broker_ready),
    Row("broker: idle", "CPU < 1 %, RSS < 60 MB, 1,000 connections < 30 MB", broker_idle),
    Row("broker: 10,000 topics of 8 queues", "ready in < 5 s, no cost for a message", many_topics),
    Row("replication: SYNC_MASTER by ASYNC_MASTER, 64 senders", "≥ 0.9", sync_over_async(64, 0.9)),
    Row("— 1 sender", "≥ 0.6", sync_over_async(1, 0.6)),
    Row("— an empty slave catches up", "≥ 1 GB/s, sends slowed < 10 %", catch_up),
    Row("— how far a slave is behind, async load", "p99 < 10 ms", lag),
    Row("— ASYNC_MASTER, Java's client, by Java's pair", "≥ 1.2×, CPU ≤ 0.5×", java_pair("ASYNC_MASTER")),
    Row("— SYNC_MASTER, the same", "≥ 1.2×, CPU ≤ 0.5×", java_pair("SYNC_MASTER")),
    Row("`import pyledger`", "< 60 ms over `pass`", startup("import", 60)),
    Row("`pyledger --version`", "< 100 ms over `pass`", startup("version", 100)),
)


def measure(runs: int, folder: Path, options: list[str]) -> None:
    """Run all cases so many times; each run leaves a file."""
    for number in range(runs):
        saved = folder / f"run-{number}.json"
        command = [sys.executable, "-m", "pytest", "-q", "--scale=full", f"--benchmark-json={saved}"]
        command += ["--timeout=1800", "--benchmark-columns=min,rounds", *FOLDERS, *options]
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


def table(results: Results, runs: int, measured_at: str) -> str:
    facts = results.facts
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    machine = (
        f"{facts['cpu']}, {facts['cores']} cores, {memory_gib:.0f} GiB, {facts['file_system']}, "
        f"Linux {facts['kernel']}, Python {facts['python']}, digests by {facts['digests']}; {versions()}"
    )
    loads = f"median {statistics.median(results.loads):.1f}, highest {max(results.loads):.1f}"
    head = [
        f"Measured on {measured_at}, {runs} runs: {machine}. Load of the machine before a case: {loads}.",
        "",
        "| what | to reach | met | measured |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *(row.line(results) for row in ROWS)])


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
    text = table(Results(runs), len(runs), measured_at)
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    print(text)


if __name__ == "__main__":
    main()
