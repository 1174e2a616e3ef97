"""The flights as a report: a stream follows a store while it is written, and Spark says who departs late.

Like a notebook, the report shows each step: why, the code, and what came out. `make demo-report` writes it as
one HTML file that needs nothing else.
"""

import argparse
import html
import inspect
import io
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console

from examples.flights import LOG_FILE_BYTES, ROW_SCHEMA, TOPIC, start_spark, write_store
from pyledger import Message, MessageStore
from pyledger.spark import rows_behind

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_TRIGGER = 20_000
WAITING = "Waiting for data to arrive"
"""What a query says that has read all there is."""
SLOW_START = "failed to connect back"
"""What Spark says when a Python process took more than ten seconds to start."""
STARTS = 6
"""Attempts at that."""
CARRIERS = {"UA": "United", "B6": "JetBlue", "EV": "ExpressJet", "DL": "Delta", "AA": "American"}
INK, ACCENT, QUIET = "#1b2a41", "#c8553d", "#8da9c4"
PURPOSE = (
    "The departures from New York in 2013 go into a RocketMQ store, one message each. A Structured Streaming "
    f"query follows, {ROWS_PER_TRIGGER:,} rows a trigger at most; then a batch query asks who is late."
)
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1b2a41; background: #fff;
  max-width: 54rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin-top: 2.5rem; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; }
details { margin: .75rem 0; } summary { cursor: pointer; color: #53687e; }
pre { background: #f4f6f8; border-radius: 6px; padding: .8rem 1rem; overflow-x: auto; font-size: .82rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 1px solid #8da9c4; }
.facts { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; padding: 0; list-style: none; }
.facts b { display: block; font-size: 1.5rem; }
"""


@dataclass
class Followed:
    """What a stream reported while the store was written."""

    starts: list[float] = field(default_factory=list)
    """Starts of the triggers that read rows, in seconds after the writer began."""
    seconds: list[float] = field(default_factory=list)
    """Their ends."""
    rows: list[int] = field(default_factory=list)
    rows_per_second: list[float] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)


def follow(session: "SparkSession", store: Path, count: int | None) -> Followed:
    """Follow a store with a stream; write flights in one thread; keep what each trigger reports."""
    with MessageStore.open(store, mapped_file_size_bytes=LOG_FILE_BYTES) as opened:
        opened.put(Message("warm-up", b"starts Spark's Python workers before the first flight"))
    query = start_stream(session, store)
    query.processAllAvailable()
    began = datetime.now(UTC)
    writer = threading.Thread(target=write_store, args=(store, Console(quiet=True), count))
    writer.start()
    writer.join()
    query.processAllAvailable()
    reports = query.recentProgress
    query.stop()
    found = Followed()
    for report in reports:
        start = (datetime.fromisoformat(report["timestamp"]) - began).total_seconds()
        if not report["numInputRows"] or start < 0:
            continue
        took = max(1, report["durationMs"]["triggerExecution"]) / 1000
        found.starts.append(start)
        found.seconds.append(start + took)
        found.rows.append(report["numInputRows"])
        found.rows_per_second.append(report["numInputRows"] / took)
        found.behind.append(rows_behind(report))
    return found


def start_stream(session: "SparkSession", store: Path) -> Any:
    """The query, once it waits for data. Spark gives its Python process ten seconds to start: then again."""
    stream = session.readStream.format("pyledger").option("startingOffsets", "earliest")
    rows = stream.option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER).load(str(store))
    for left in reversed(range(STARTS)):
        query = rows.writeStream.format("noop").trigger(processingTime="0 seconds").start()
        try:
            while query.isActive and query.status["message"] != WAITING:
                query.awaitTermination(0.05)
        except Exception as error:
            if not left or SLOW_START not in str(error):
                raise
            print("this machine is busy, and Spark gave up on its Python process; starting the stream again")
        else:
            break
    return query


def ask_who_is_late(session: "SparkSession", store: Path) -> "DataFrame":
    """The share of departures more than 15 minutes late, by carrier and hour of the schedule."""
    messages = session.read.format("pyledger").option("topic", TOPIC).option("columns", "tags,body")
    flights = messages.load(str(store)).selectExpr(
        "tags AS carrier", f"from_json(cast(body AS string), '{ROW_SCHEMA}') AS f"
    )
    flights.where("f.dep_delay IS NOT NULL").createOrReplaceTempView("departures")
    return session.sql("""
        SELECT carrier, f.hour AS hour, count(*) AS flights,
               100 * avg(CASE WHEN f.dep_delay > 15 THEN 1.0 ELSE 0.0 END) AS late_percent
        FROM departures GROUP BY carrier, f.hour ORDER BY carrier, hour""")


def draw_throughput(found: Followed) -> "Figure":
    """Rows a second of every trigger, over time, and their median."""
    figure, axes = chart("seconds since the writer began", "rows a second")
    widths = [end - start for start, end in zip(found.starts, found.seconds, strict=True)]
    axes.bar(found.starts, found.rows_per_second, widths, align="edge", color=QUIET, edgecolor=INK)
    middle = median(found.rows_per_second)
    axes.axhline(middle, color=ACCENT, linestyle="--", label=f"median {middle:,.0f}")
    axes.legend(frameon=False, loc="upper left")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    return figure


def draw_lag(found: Followed) -> "Figure":
    """Messages that were stored and not yet read, at the end of every trigger."""
    figure, axes = chart("seconds since the writer began", "rows behind")
    seconds, behind = [0.0, *found.seconds], [0, *found.behind]
    axes.fill_between(seconds, behind, step="post", color=ACCENT, alpha=0.35)
    axes.step(seconds, behind, where="post", color=ACCENT)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    return figure


def draw_late_flights(answers: list[Any]) -> "Figure":
    """A line for each of the larger carriers."""
    figure, axes = chart("scheduled hour of departure", "late departures, %")
    for carrier, name in CARRIERS.items():
        points = [
            (row.hour, row.late_percent) for row in answers if row.carrier == carrier and row.flights > 9
        ]
        if points:
            hours, shares = zip(*points, strict=True)
            axes.plot(hours, shares, marker="o", markersize=3, label=name)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(5, 24, 2))
    axes.legend(frameon=False)
    return figure


def chart(below: str, beside: str) -> tuple["Figure", Any]:
    """An empty chart with its axes named."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=below, ylabel=beside)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def as_svg(figure: "Figure", title: str) -> str:
    """The picture as an element of a page, with letters as text, named for who cannot see it."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    element = out.getvalue()
    return element[element.index("<svg") :].replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(title)}"', 1
    )


def step(title: str, why: str, code: list[Callable[..., Any]], output: str) -> str:
    """One step of the report: why, how, and what came out."""
    shown = html.escape("\n\n".join(inspect.getsource(function) for function in code).strip())
    return (
        f"<section><h2>{html.escape(title)}</h2><p>{html.escape(why)}</p>"
        f"<details><summary>the code</summary><pre><code>{shown}</code></pre></details>"
        f"<figure>{output}</figure></section>"
    )


def late_table(answers: list[Any]) -> str:
    """The larger carriers, the latest first."""
    totals = {
        carrier: (
            sum(row.flights for row in answers if row.carrier == carrier),
            sum(row.flights * float(row.late_percent) for row in answers if row.carrier == carrier),
        )
        for carrier in CARRIERS
    }
    shares = sorted(
        ((late / flights, carrier, flights) for carrier, (flights, late) in totals.items() if flights),
        reverse=True,
    )
    lines = "".join(
        f"<tr><td>{CARRIERS[carrier]}</td><td>{flights:,}</td><td>{share:.1f} %</td></tr>"
        for share, carrier, flights in shares
    )
    return f"<table><tr><th>carrier</th><th>departures</th><th>late</th></tr>{lines}</table>"


def render(found: Followed, answers: list[Any]) -> str:
    """The whole page."""
    facts = {
        "messages": f"{sum(found.rows):,}",
        "triggers": f"{len(found.rows):,}",
        "rows a second, median trigger": f"{median(found.rows_per_second):,.0f}",
        "rows behind, at most": f"{max(found.behind):,}",
    }
    listed = "".join(f"<li><b>{value}</b>{name}</li>" for name, value in facts.items())
    throughput, lag, late = "Throughput over time", "Lag over time", "Who departs late, and when"
    body = [
        "<h1>A year of flights, followed while it is written</h1>",
        f"<p>{PURPOSE}</p>",
        f'<ul class="facts">{listed}</ul>',
        step(
            throughput,
            "Each bar is a trigger, as wide as it lasted; the dashed line is their median. One message "
            "was read before, which started Spark's Python workers. The first bars may be lower: Java has "
            "not compiled all of its code yet.",
            [follow, start_stream],
            as_svg(draw_throughput(found), throughput),
        ),
        step(
            lag,
            "How many messages waited at the end of each trigger, by what the query itself reports. It grows "
            "while the writer is the faster one, and falls to nothing when it is done.",
            [draw_lag],
            as_svg(draw_lag(found), lag),
        ),
        step(
            late,
            "A delay in the morning makes the next flight of the same aircraft late: the share of departures "
            "more than 15 minutes late grows through the day.",
            [ask_who_is_late],
            as_svg(draw_late_flights(answers), late) + late_table(answers),
        ),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Flights, followed</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def build(session: "SparkSession", out: Path, count: int | None = None) -> Path:
    """Do all of it; the path of the report."""
    store, report = out / "report-store", out / "flights.html"
    shutil.rmtree(store, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    print("following the store with a stream while the flights are written", flush=True)
    found = follow(session, store, count)
    print(f"read {sum(found.rows):,} flights in {len(found.rows)} triggers; asking who is late", flush=True)
    answers = ask_who_is_late(session, store).collect()
    print("drawing the report", flush=True)
    report.write_text(render(found, answers), encoding="utf-8")
    return report


def main() -> None:
    """Write the report, and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="folder for the store and the report"
    )
    parser.add_argument("--flights", type=int, help="only so many of them")
    options = parser.parse_args()
    print("starting Spark: some seconds, on a busy machine a minute", flush=True)
    session = start_spark()
    try:
        print(f"report  {build(session, options.out, options.flights)}")
    finally:
        session.stop()


if __name__ == "__main__":
    main()
