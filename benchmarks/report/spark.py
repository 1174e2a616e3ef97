"""Lines of the report on Spark and on cold segments, and the table that sets sources side by side."""

from collections.abc import Callable

from benchmarks.report.results import Results, Row, Verdict, rate

COLD_SCAN = "cold.scan[log={}-blocks=256KiB-crc=on]"
COLD_POINT = "cold.point_read[log={}-blocks=256KiB]"
LOGS = ("typical", "flights", "random")
SPARK_STREAM = "stream_and_write.stream[columns=no-properties]"
QUERIES = {
    "count": "`count()`",
    "sum": "`sum(queueOffset)`",
    "length": "`sum(length(body))`",
    "noop": "all columns to `noop`",
}
CEILING = "≥ 0.9 of the ceiling"


def queries(store: str) -> Callable[[Results], Verdict]:
    """All four queries over one store, by what Spark allows a Python source."""

    def judge(r: Results) -> Verdict:
        names = {query: f"batch_read.read[store={store}-columns=default-query={query}]" for query in QUERIES}
        shares = {query: r.middle(name, "ratio_to_ceiling") for query, name in names.items()}
        parts = [f"{query} {share:.2f} ({rate(r.best(names[query]))})" for query, share in shares.items()]
        return min(shares.values()) >= 0.9, ", ".join(parts)

    return judge


def by_ceiling(case: str, beside: Callable[[Results], str]) -> Callable[[Results], Verdict]:
    """By what Spark allows a Python source, and what stands beside that."""

    def judge(r: Results) -> Verdict:
        ratio = r.middle(case, "ratio_to_ceiling")
        return ratio >= 0.9, f"{ratio:.2f} of the ceiling{beside(r)}"

    return judge


def columns(name: str) -> Callable[[Results], Verdict]:
    case = f"batch_read.read[store=fixed-columns={name}-query=noop]"

    def beside(r: Results) -> str:
        return f", {r.middle(case, 'ratio_to_parquet'):.2f} of parquet ({rate(r.best(case))} rows)"

    return by_ceiling(case, beside)


def copied(r: Results) -> Verdict:
    """By a source that finds the rows ready made in an Arrow file and copies them from there."""
    named = {what: f"columns={what}-query=noop" for what in ("default", "no-properties", "queueOffset")}
    named |= {query: f"columns=default-query={query}" for query in QUERIES if query != "noop"}
    cases = {what: f"batch_read.read[store=fixed-{case}]" for what, case in named.items()}
    shares = {what: r.middle(case, "ratio_to_copying") for what, case in cases.items()}
    return None, ", ".join(f"{what} {share:.2f}" for what, share in shares.items())


def stream(r: Results) -> Verdict:
    best, middle = r.best(SPARK_STREAM), r.middle(SPARK_STREAM, "middle_per_second")
    return best >= 1e6, f"{rate(best)} rows, the middle trigger {rate(middle)}"


def stream_share(name: str) -> Callable[[Results], Verdict]:
    """Of what a Python source streams that has nothing to do."""
    case = f"stream_and_write.stream[columns={name}]"
    return by_ceiling(
        case, lambda r: f" ({rate(r.best(case))} rows by {rate(r.best(case, 'ceiling_per_second'))})"
    )


def write(place: str) -> Callable[[Results], Verdict]:
    """By a sink that discards, and beside one that writes rows to files and flushes those."""

    def judge(r: Results) -> Verdict:
        name = f"stream_and_write.write[on={place}-columns=body]"
        ratio, kept = r.middle(name, "ratio_to_discard"), r.middle(name, "ratio_to_keep")
        text = (
            f"{ratio:.2f} of it ({rate(r.best(name))} rows by {rate(r.best(name, 'discard_per_second'))}); "
            f"{kept:.2f} of one that writes them to files, once"
        )
        if place == "disk":
            text += f", flushed as ours are; the disk takes {r.best(name, 'disk_per_second') / 1e6:.0f} MB/s"
        return ratio >= 0.8, text

    return judge


def plan(r: Results) -> Verdict:
    """Of all topics, and of one."""
    names = {what: f"plan.plan[topic={what}]" for what in ("all", "one")}
    seconds = {what: r.middle(name, "seconds") for what, name in names.items()}
    peak_bytes = max(r.middle(name, "peak_bytes") for name in names.values())
    files = r.only(names["all"])["files"]
    text = ", ".join(f"topic {what} {taken_s:.1f} s" for what, taken_s in seconds.items())
    text = f"{files:,} files: {text}; {peak_bytes / (1 << 20):.0f} MiB"
    return max(seconds.values()) < 30 and peak_bytes < 1 << 30, text


def cold_scan(r: Results) -> Verdict:
    found = {log: r.best(COLD_SCAN.format(log), "per_cpu_second") for log in LOGS}
    text = ", ".join(f"{log} {value / 1e9:.1f} GB/s" for log, value in found.items())
    return min(found.values()) >= 1.5e9, text


def cold_ratio(r: Results) -> Verdict:
    return None, ", ".join(f"{log} {r.only(COLD_SCAN.format(log))['ratio']:.1f} to 1" for log in LOGS)


def cold_point(r: Results) -> Verdict:
    found = {log: r.only(COLD_POINT.format(log))["blocks_each"] for log in LOGS}
    taken_us = ", ".join(f"{log} {1e6 / r.best(COLD_POINT.format(log)):.0f}" for log in LOGS)
    return max(found.values()) <= 1, f"{max(found.values())} block; with decompression, µs: {taken_us}"


SOURCES = {
    "pyledger": "this source, all columns",
    "pyledger-columns": "this source, `columns` of the query",
    "parquet": "parquet",
    "kafka": "Kafka",
}


def source_lines(r: Results, day: str) -> str:
    """The table of sources, rows a second; empty where the runs did not measure it."""
    try:
        found = {query: r.only(f"sources.sources[query={query}]") for query in QUERIES}
    except KeyError:
        return ""
    lines = [
        f"Measured on {day}, {found['count']['rows']:,} messages; load before: {found['count']['load']:.1f}.",
        "",
        f"| rows a second | {' | '.join(SOURCES.values())} |",
        f"|---|{'---|' * len(SOURCES)}",
    ]
    for query, facts in found.items():
        rates = [rate(facts[f"{source}_per_second"]) for source in SOURCES]
        lines.append(f"| {QUERIES[query]} | {' | '.join(rates)} |")
    return "\n".join(lines)


SPARK_ROWS = (
    Row("Spark batch read, default columns", CEILING, columns("default")),
    Row("— without properties", CEILING, columns("no-properties")),
    Row("— one narrow column", CEILING, columns("queueOffset")),
    Row("Spark batch read, four queries, default columns", CEILING, queries("fixed")),
    Row("— bodies of varying length", CEILING, queries("varying")),
    Row("— 512 files of 1 MiB", CEILING, queries("small-files")),
    Row("— one topic in a hundred", CEILING, queries("rare-topic")),
    Row("— by a source that copies the rows from an Arrow file", "", copied),
    Row("Spark stream, a million rows a trigger", "≥ 1 M rows/s", stream),
    Row("— by a source that has nothing to do", CEILING, stream_share("no-properties")),
    Row("— the same with properties", CEILING, stream_share("default")),
    Row("Spark write, by a sink that discards", "≥ 0.8", write("disk")),
    Row("— in memory, without a disk", "≥ 0.8", write("memory")),
    Row("Spark plan over a million files", "< 30 s, < 1 GiB", plan),
    Row("cold segments: decompress and walk, one core", "≥ 1.5 GB/s of original bytes", cold_scan),
    Row("— how much smaller", "", cold_ratio),
    Row("— read one message", "≤ 1 block", cold_point),
)
