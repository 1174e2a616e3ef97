"""Lines of the report on ledgers: clients, bookies, autorecovery."""

from collections.abc import Callable

from benchmarks.report.results import Results, Row, Verdict, rate

Met = Callable[[float], bool]
SIZES = (1, 3)


def pairs(r: Results, bookies: int) -> dict[str, dict[str, float]]:
    """Clients on bookies, each of ours and Java's."""
    return r.only(f"ledgers.clients[bookies={bookies}]")


def lone_add(r: Results) -> Verdict:
    found = pairs(r, 1)
    ours, java = found["ours_on_ours"]["p50_us"], found["java_on_java"]["p50Us"]
    return ours <= 0.8 * java, f"{ours / java:.2f}× ({ours:.0f} by {java:.0f} µs)"


def many_adds(bookies: int, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        found = pairs(r, bookies)
        ours, java = found["ours_on_ours"]["adds_per_second"], found["java_on_java"]["addsPerSecond"]
        return ours >= goal * java, f"{ours / java:.1f}× ({rate(ours)} by {rate(java)})"

    return judge


def java_client(r: Results) -> Verdict:
    parts, ratios = [], []
    for bookies in SIZES:
        found = pairs(r, bookies)
        ours, java = (found[f"java_on_{whose}"]["addsPerSecond"] for whose in ("ours", "java"))
        ratios.append(ours / java)
        parts.append(f"{bookies}: {ours / java:.1f}× ({rate(ours)} by {rate(java)})")
    return min(ratios) >= 1, ", ".join(parts)


def bookies_time(r: Results) -> Verdict:
    """Of all bookies, for the same work of Java's client: adds, reads, lone adds."""
    ratios = []
    for bookies in SIZES:
        ours, java = (pairs(r, bookies)[f"java_on_{whose}"]["bookies_cpu_s"] for whose in ("ours", "java"))
        ratios.append(ours / java)
    text = ", ".join(f"{bookies}: {ratio:.2f}×" for bookies, ratio in zip(SIZES, ratios, strict=True))
    return max(ratios) <= 0.7, text


def reads(r: Results) -> Verdict:
    parts, ratios = [], []
    for bookies in SIZES:
        found = pairs(r, bookies)
        java = max(found["java_on_java"][name] for name in ("readsPerSecond", "batchReadsPerSecond"))
        ours = found["ours_on_ours"]["reads_per_second"]
        ratios.append(ours / java)
        parts.append(f"{bookies}: {ours / java:.1f}× ({rate(ours)} by {rate(java)})")
    return min(ratios) >= 2, ", ".join(parts)


def killed(r: Results) -> Verdict:
    again, pause, calm = (
        r.middle("ledgers.kill", fact) for fact in ("again_ms", "pause_ms", "calm_pause_ms")
    )
    return (
        again < 50 and pause < 100,
        f"{again:.0f} ms; {pause:.0f} ms, before the kill {calm:.0f} ms (medians of 5)",
    )


def recovery(fact: str, goal_ms: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        taken_ms = r.middle("ledgers.recovery", fact)
        return taken_ms < goal_ms, f"{taken_ms / 1e3:.2f} s" if goal_ms > 1e3 else f"{taken_ms:.1f} ms"

    return judge


def digest(r: Results) -> Verdict:
    speeds = {kind: r.best(f"ledgers.digest[digest={kind}]") / 1e9 for kind in ("CRC32C", "CRC32")}
    return min(speeds.values()) >= 10, ", ".join(f"{kind} {speed:.0f} GB/s" for kind, speed in speeds.items())


def start(r: Results) -> Verdict:
    ready_s, rss_mib = (r.least("ledgers.start", fact) for fact in ("ready_s", "rss_mib"))
    return ready_s < 0.4 and rss_mib * 1.048576 < 70, f"{ready_s:.2f} s, {rss_mib:.0f} MiB"


def bookie(fact: str, met: Met, unit: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        run = r.only("bookie.add")
        ours, java = run["ours"][fact], run["java"][fact]
        text = f"{rate(ours)} by {rate(java)}" if unit == "/s" else f"{ours:.1f} by {java:.1f} {unit}"
        return met(ours / java), f"{ours / java:.2f}× ({text})"

    return judge


def lost_bookie(case: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        taken_s = r.middle(f"autorecovery.{case}", "seconds")
        return taken_s <= 25, f"{taken_s:.1f} s"

    return judge


def copies(r: Results) -> Verdict:
    run = r.best("autorecovery.copies", "mb_per_second")
    return run >= 100, f"{run:.0f} MB/s (median of its ledgers)"


LEDGER_ROWS = (
    Row("ledgers: an add, 1 in flight, p50, our pair by Java's", "≤ 0.8×", lone_add),
    Row("— 1,000 in flight, 1 bookie", "≥ 1.2×", many_adds(1, 1.2)),
    Row("— 1,000 in flight, 3 bookies, 3/3/2", "≥ 2×", many_adds(3, 2)),
    Row("— Java's client on 1 and 3 bookies of ours, by Java's", "≥ 1×", java_client),
    Row("— processor time of those bookies, by Java's", "≤ 0.7×", bookies_time),
    Row("— a closed ledger read, by Java's reads or batched reads", "≥ 2×", reads),
    Row(
        "— kill -9 of a bookie until adds succeed; longest pause", "< 50 ms; < 100 ms, no add failed", killed
    ),
    Row("— recovery open, 1 M entries", "< 2 s", recovery("many_ms", 2000)),
    Row("— recovery open, 5 unconfirmed entries", "< 50 ms", recovery("unconfirmed_ms", 50)),
    Row("— digests of entries of 1 KiB", "≥ 10 GB/s", digest),
    Row("bookie: an add, 1 in flight, p50", "≤ 0.8× Java's", bookie("p50_us", lambda x: x <= 0.8, "µs")),
    Row("— 1,000 in flight", "≥ 1.2× Java's", bookie("per_second", lambda x: x >= 1.2, "/s")),
    Row("— the bookie's CPU for an add", "≤ 0.7× Java's", bookie("cpu_us", lambda x: x <= 0.7, "µs")),
    Row("— start, memory while idle", "< 0.4 s, < 70 MB", start),
    Row("— one lost until 20,000 × 1 KiB have all replicas", "≤ 25 s", lost_bookie("lost_bookie")),
    Row("— the same, cluster in ZooKeeper", "≤ 25 s", lost_bookie("lost_bookie_of_zookeeper")),
    Row("— how fast those copies are made", "≥ 100 MB/s", copies),
)
