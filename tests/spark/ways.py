"""The ways to the same messages, as tables or as dictionaries, by place: without a JVM."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark_pyledger.batch_reader import read_batches
from pyspark_pyledger.options import ReadOptions, parse_read_options
from pyspark_pyledger.partitions import AnyPartition, LedgerPartition
from pyspark_pyledger.planning import plan_folders
from pyspark_pyledger.schema import schema_of
from pyspark_pyledger.stream_reader import StreamReader
from pyspark_pyledger.stream_source import plan_brokers

from pyledger import arrow
from tests.cli.command_line import pyledger

Row = dict[str, Any]

COLUMNS = ",".join(arrow.COLUMNS)
DIGEST = "bodySha256"
PLACE = ("topic", "queueId", "queueOffset", "physicalOffset")
IN_CAT = [name for name in arrow.COLUMNS if name not in ("body", "msgId")] + [DIGEST]


def place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def as_rows(table: pa.Table) -> list[Row]:
    """Times as ms, bodies as digests."""
    rows = []
    for row in table.to_pylist():
        for name in ("storeTimestamp", "bornTimestamp"):
            row[name] = round(row[name].timestamp() * 1000)
        row["properties"] = dict(row["properties"])
        row[DIGEST] = hashlib.sha256(row.pop("body")).hexdigest()
        del row["msgId"]
        rows.append(row)
    return rows


def in_order(batches: Iterable[pa.RecordBatch], options: ReadOptions) -> pa.Table:
    """Batches joined, by place, as they come to Spark."""
    schema = to_arrow_schema(schema_of(options.columns), timezone="UTC")
    return pa.Table.from_batches(batches, schema).sort_by([(name, "ascending") for name in PLACE])


def read_parts(parts: Iterable[AnyPartition], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """What the tasks of a read give to Spark."""
    for part in parts:
        yield from read_batches(LedgerPartition(part), schema_of(options.columns), options)


def batch_table(**options: str) -> pa.Table:
    """`spark.read` of a `path`, or of a `namesrv`."""
    parsed = parse_read_options({"columns": COLUMNS, **options})
    parts = plan_folders(parsed) if parsed.name_servers is None else plan_brokers(parsed)
    return in_order(read_parts(parts, parsed), parsed)


def stream_table(**options: str) -> pa.Table:
    """`spark.readStream` of the same, trigger after trigger until nothing is left."""
    parsed = parse_read_options({"columns": COLUMNS, "startingOffsets": "earliest", **options})
    stream = StreamReader(schema_of(parsed.columns), parsed)
    found: list[pa.RecordBatch] = []
    try:
        start = stream.initialOffset()
        while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
            for part in stream.partitions(start, end):
                found += stream.read(part)
            start = end
    finally:
        stream.stop()
    return in_order(found, parsed)


def cat_rows(folder: Path, *options: str) -> list[Row]:
    """`pyledger cat`."""
    done = pyledger("cat", folder, "--json", "--body", "sha256", "--order", "queue", *options)
    assert done.code == 0 or "the log ends at physical offset" in done.error["message"], done.err
    return sorted(({name: line.get(name) for name in IN_CAT} for line in done.json), key=place)


def java_rows(lines: Iterable[Row]) -> list[Row]:
    """What RocketMQ's own store found, line by line."""
    return sorted(({name: line.get(name) for name in IN_CAT} for line in lines), key=place)
