"""Lines of the report on the store, Arrow and the start of programs."""

from collections.abc import Callable

from benchmarks.report.results import JAVA_VERSIONS, Results, Row, Verdict, at_least, rate


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
    parts = [
        f"{version}: {ours / plain[version]:.1f}× ({rate(plain[version])}), "
        f"with key and tag {ours / keyed[version]:.1f}× ({rate(keyed[version])})"
        for version in plain
    ]
    if not parts:
        raise KeyError("Java")
    return min(ours / value for value in plain.values()) >= 10, "; ".join(parts)


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
    parts = [
        f"{version}: p99.9 {r.middle(name, 'p999_us'):.1f} µs, max {r.middle(name, 'max_us') / 1e3:.0f} ms"
        for version, name in ((v, f"latency.java[impl=java-{v}]") for v in JAVA_VERSIONS)
    ]
    return None, "; ".join(parts)


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


def arrow(columns: str, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        found = {p: r.best(f"arrow.scan[columns={columns}-plan={p}]") for p in ("log", "queue")}
        return max(found.values()) >= goal, ", ".join(f"plan {p}: {rate(v)}" for p, v in found.items())

    return judge


def startup(program: str, goal_ms: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        over = r.least("startup.startup", f"{program}_over_ms")
        return over < goal_ms, f"{over:.0f} ms over {r.least('startup.startup', 'pass_ms'):.0f} ms"

    return judge


STORE_ROWS = (
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
)
START_ROWS = (
    Row("`import pyledger`", "< 60 ms over `pass`", startup("import", 60)),
    Row("`pyledger --version`", "< 100 ms over `pass`", startup("version", 100)),
)
