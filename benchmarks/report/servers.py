"""Lines of the report on brokers, clients, replication and DLedger groups."""

import math
from collections.abc import Callable

from benchmarks.report.results import JAVA_VERSIONS, Results, Row, Verdict, rate

BY_THREAD = "send_in_turn_with_threads"
OURS, JAVA = "pyledger", f"java-{JAVA_VERSIONS[0]}"


def java_client(mode: str, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = f"broker_clients.java_client[mode={mode}]"
        ours, theirs = r.best(name), r.best(name, "java_per_second")
        return ours >= goal * theirs, f"{ours / theirs:.1f}× ({rate(ours)} by {rate(theirs)})"

    return judge


def broker_rates(r: Results) -> Verdict:
    ratios, parts = [], []
    for kind in ("async", "batch", "pull"):
        ours, theirs = (r.best(f"broker.load[impl={impl}-kind={kind}]") for impl in (OURS, JAVA))
        ratios.append(ours / theirs)
        parts.append(f"{kind} {ours / theirs:.1f}× ({rate(ours)} by {rate(theirs)})")
    return min(ratios) >= 2, ", ".join(parts)


def broker_cpu(r: Results) -> Verdict:
    ratios, parts = [], []
    for kind in ("sync", "async", "batch", "pull"):
        ours, theirs = (
            r.least(f"broker.load[impl={impl}-kind={kind}]", "broker_cpu_us") for impl in (OURS, JAVA)
        )
        ratios.append(ours / theirs)
        parts.append(f"{kind} {ours / theirs:.2f}× ({ours:.2f} by {theirs:.2f} µs)")
    return max(ratios[:3]) <= 0.5, ", ".join(parts)


def pull_copies(r: Results) -> Verdict:
    parts, met = [], True
    for size in (1 << 10, 64 << 10):
        names = [f"broker.pull_copies[heap={by_heap}-body={size}B]" for by_heap in ("false", "true")]
        mapped, heap = (r.best(name) for name in names)
        mapped_us, heap_us = (r.least(name, "broker_cpu_us") for name in names)
        met &= mapped_us <= heap_us
        parts.append(
            f"{size >> 10} KiB: {rate(mapped)} and {mapped_us:.2f} µs of CPU from the log, "
            f"{rate(heap)} and {heap_us:.2f} µs by a copy"
        )
    return met, "; ".join(parts)


def sync_over_async(senders: int, goal: float) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        name = "replicate.sync_over_async"
        ratio = r.best(name, f"sync_over_async_{senders}")
        parts = [
            f"{rate(r.best(name, f'{role}_{senders}_per_second'))}"
            for role in ("SYNC_MASTER", "ASYNC_MASTER")
        ]
        return ratio >= goal, f"{ratio:.2f} ({parts[0]} by {parts[1]})"

    return judge


def catch_up(r: Results) -> Verdict:
    speed, sends = (r.best("replicate.catch_up", fact) for fact in ("gb_per_second", "meanwhile_over_alone"))
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
        text = ", ".join(
            f"{mode} {ours:.1f}× with {cost:.2f}× the CPU"
            for mode, ours, cost in zip(("sync", "async"), rates, costs, strict=True)
        )
        return min(rates) >= 1.2 and max(costs) <= 0.5, text

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
    return max(node, broker) < 300, f"`serve` {node:.0f} ms, `broker` {broker:.0f} ms"


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


def group_by_java(ours: str, ratio: str, goals: tuple[float, float, float]) -> Callable[[Results], Verdict]:
    """By the better of Java's two ways to push; goals: ratio, rate (a second), and CPU by Java's."""

    def judge(r: Results) -> Verdict:
        run = r.only("dledger.append_java")
        java = max((run[f"java_client_java_group_{way}_push"] for way in ("single", "batch")), key=per_second)
        cpu = run[ours]["nodes_cpu_us"] / java["nodes_cpu_us"]
        met = run[ratio] >= goals[0] and per_second(run[ours]) >= goals[1] and cpu <= goals[2]
        rates = f"{rate(per_second(run[ours]))} by {rate(per_second(java))}"
        return met, f"{run[ratio]:.1f}× ({rates}), {cpu:.2f}× the members' CPU"

    return judge


def group_batches(r: Results) -> Verdict:
    """The rate is the best of all turns, as everywhere; the ratio is of those with Java's group beside."""
    name = "our_client_our_group_batches"
    met, text = group_by_java(name, "ratio_our_batches", (5.0, 0.0, math.inf))(r)
    best = max(
        per_second(r.only("dledger.append")["three_batches"]), per_second(r.only("dledger.append_java")[name])
    )
    return bool(met) and best >= 300_000, f"{rate(best)}; beside Java's group {text}"


def per_second(found: dict[str, float]) -> float:
    return found["per_second"]


def group_ratio(case: str, ratio: str, goal: float, one: str, other: str) -> Callable[[Results], Verdict]:
    def judge(r: Results) -> Verdict:
        run = r.only(f"dledger.{case}")
        rates = f"{rate(per_second(run[one]))} by {rate(per_second(run[other]))}"
        return run[ratio] >= goal, f"{run[ratio]:.2f} ({rates})"

    return judge


def group_fail_over(r: Results) -> Verdict:
    run = r.only("dledger.fail_over")
    met = run["median_s"] < 1 and run["worst_s"] < 3
    return met, f"median {run['median_s']:.2f} s, worst {run['worst_s']:.2f} s"


def group_idle(r: Results) -> Verdict:
    run = r.only("dledger.idle")
    ready, cpu, rss = run["ready_s"], run["cpu_percent_of_three"], run["resident_mib_most"]
    text = f"ready in {ready:.2f} s; CPU of three {cpu:.1f} %; RSS {rss:.0f} MiB"
    return ready < 1 and round(cpu, 1) < 1.5 and rss < 60, text


def group_commit(r: Results) -> Verdict:
    """The machine alone, in memory."""
    each_us = 1e6 / r.best("dledger.commit[peers=5]")
    return each_us <= 1, f"{each_us:.2f} µs"


def group_quorum(r: Results) -> Verdict:
    """The slowest of three sizes, and the least ratio."""
    run = r.only("quorum.quorum_of_groups")
    most_ns, ratio = run["most_ns"], run["least_ratio"]
    return most_ns < 60 and ratio >= 2, f"{most_ns:.0f} ns, {ratio:.1f}×"


def group_reopen(r: Results) -> Verdict:
    run = r.only("dledger.reopen")
    seconds = run["units"] / run["per_second"]
    return seconds < 1.5, f"{seconds:.2f} s"


SERVER_ROWS = (
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
    Row("— lag of a slave, async load", "p99 < 10 ms", lag),
    Row("— ASYNC_MASTER, Java's client, by Java's pair", "≥ 1.2×, CPU ≤ 0.5×", java_pair("ASYNC_MASTER")),
    Row("— SYNC_MASTER, the same", "≥ 1.2×, CPU ≤ 0.5×", java_pair("SYNC_MASTER")),
    Row(
        "DLedger, 3 members: our client, 1,024 in flight, by Java's group",
        "≥ 3×",
        group_by_java("our_client_our_group_many", "ratio_our_client", (3, 0, 9)),
    ),
    Row(
        "— batches of 256",
        "≥ 300 k/s, ≥ 5×",
        group_batches,
    ),
    Row(
        "— Java's client, 1,024 in flight",
        "≥ 1.2×, CPU ≤ 0.5×",
        group_by_java("java_client_our_group", "ratio_java_client", (1.2, 0, 0.5)),
    ),
    Row(
        "— flushed before the answer, by not",
        "≥ 0.7",
        group_ratio("append", "ratio_flushed_many", 0.7, "three_many", "unflushed_many"),
    ),
    Row(
        "— three members by one, batches",
        "≥ 0.5",
        group_ratio("append", "ratio_three_to_one_batches", 0.5, "three_batches", "single_batches"),
    ),
    Row(
        "— links that take 2 ms, by none",
        "≥ 0.8",
        group_ratio("delay", "ratio_delayed", 0.8, "delay_2_ms", "delay_0_ms"),
    ),
    Row("— kill -9 of the leader until an append succeeds", "median < 1 s, worst < 3 s", group_fail_over),
    Row("— start, and three members with nothing to do", "< 1 s, CPU < 1.5 %, RSS < 60 MB", group_idle),
    Row("— a log of 1 GiB reopened, checksums verified", "< 1.5 s", group_reopen),
    Row("— an entry's commit in the leader, 5 peers, 1,000 a batch", "≤ 1 µs", group_commit),
    Row("— `quorum_index` of 3 to 7 peers", "< 60 ns, ≥ 2× `sorted`", group_quorum),
)
