"""`pyledger export`: copy messages to JSON lines, CSV, Arrow or Parquet."""

import csv
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from pyledger.atomic_file import flush_folder
from pyledger.cli.messages import BODY_CHOICES, BODY_HELP, message_fields
from pyledger.cli.output import Advance, counted, emit, print_status, progress
from pyledger.cli.parameters import (
    NonEmptyPath,
    corrupt_option,
    json_option,
    order_option,
    report_skipped,
    selected_messages,
    selection_options,
    store_argument,
)
from pyledger.cli.store.rows import first_repeated
from pyledger.errors import StoreIOError
from pyledger.system_calls import flush_file

EXAMPLES = """\b
Examples:
  pyledger export store flights.jsonl --format jsonl --topic flights
  pyledger export store flights.csv --format csv --columns topic,queueOffset,tags,body --limit 10
"""

FORMATS = ("jsonl", "csv", "arrow", "parquet")
_STEP = 4096


@click.command("export", epilog=EXAMPLES)
@store_argument
@click.argument("out", type=NonEmptyPath())
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Default: by the ending of OUT.")
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--body", type=click.Choice(BODY_CHOICES), default="auto", show_default=True, help=BODY_HELP)
@click.option("--compressed", is_flag=True, help="Arrow and Parquet: do not decompress bodies.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@selection_options
@order_option("queue")
@corrupt_option
@json_option
def command(
    store: str,
    out: str,
    kind: str | None,
    columns: str | None,
    body: str,
    compressed: bool,
    force: bool,
    order: str,
    on_corrupt: Any,
    as_json: bool,
    **selection: Any,
) -> None:
    """Copy messages of STORE to the file OUT, which is created only when it is complete and on disk.

    Arrow and Parquet files have the columns of `pyledger.arrow` and Spark, with bodies as bytes. JSON lines
    and CSV have those of `pyledger cat --json`.
    """
    kind = kind or os.path.splitext(out)[1].lstrip(".").lower()
    if kind not in FORMATS:
        raise click.UsageError(f"the ending of {out} names no format; give --format {'|'.join(FORMATS)}")
    _check_target(out, store, force=force)
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if twice := first_repeated(names or ()):
        raise click.UsageError(f"--columns names {twice!r} twice")
    if kind in ("arrow", "parquet") and body != "auto":
        raise click.UsageError("--body is for jsonl and csv; Arrow and Parquet hold bodies as bytes")
    write: Callable[[Any, str, Advance], int]
    if kind in ("arrow", "parquet"):
        import pyledger.arrow  # noqa: F401 - before the store is read: pyarrow may be missing
        from pyledger.cli.store.export_columns import write_columns

        def write(reader: Any, draft: str, advance: Advance) -> int:
            return write_columns(
                reader, draft, kind, names, order, selection, decompress=not compressed, advance=advance
            )
    else:

        def write(reader: Any, draft: str, advance: Advance) -> int:
            messages = selected_messages(reader, order, selection)
            rows = (message_fields(message, body) for message in messages)
            return _write_rows(rows, draft, kind, names, advance)

    from pyledger.store.reading.reader import StoreReader

    with (
        StoreReader.open(store, on_corrupt=on_corrupt) as reader,
        _complete_file(out) as draft,
        progress("exporting", None, unit="messages") as advance,
    ):
        count = write(reader, draft, advance)
    if as_json:
        emit(
            {
                "kind": "exported",
                "file": out,
                "format": kind,
                "messages": count,
                "sizeBytes": os.path.getsize(out),
            }
        )
    else:
        print_status(f"{counted(count, 'message')} written to {out}")
    report_skipped(reader)


def _check_target(out: str, store: str, *, force: bool) -> None:
    """Raise for a file that must not be written, before anything is read."""
    if os.path.exists(out) and not os.path.isfile(out):
        raise click.UsageError(f"{out} is not a regular file; name a file")
    if os.path.lexists(out) and not force:
        raise click.UsageError(f"{out} already exists; --force replaces it")
    folder = os.path.realpath(store)
    if os.path.commonpath([folder, os.path.realpath(os.path.dirname(out) or ".")]) == folder:
        raise click.UsageError(f"{out} would be in the folder of the store; name a file outside {store}")


@contextmanager
def _complete_file(out: str) -> Iterator[str]:
    """Yield the path of a draft. It is renamed to `out` when it is complete and on disk, and else removed."""
    draft = f"{out}.{os.getpid()}.part"
    try:
        yield draft
        with open(draft, "rb") as file:
            flush_file(file.fileno())
        os.replace(draft, out)
        flush_folder(os.path.dirname(os.path.abspath(out)))
    except OSError as error:
        raise StoreIOError(out, "write", error.strerror or str(error)) from error
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def _write_rows(
    rows: Iterator[dict[str, Any]], draft: str, kind: str, columns: list[str] | None, advance: Advance
) -> int:
    """Write JSON lines or CSV; return the number of messages."""
    count = 0
    with open(draft, "w", encoding="utf-8", errors="backslashreplace", newline="") as target:
        table: Any = None
        for fields in rows:
            chosen = fields if columns is None else _choose(fields, columns)
            if kind == "jsonl":
                target.write(json.dumps(chosen, ensure_ascii=False, separators=(",", ":")) + "\n")
            else:
                if table is None:
                    table = csv.DictWriter(
                        target, columns or _csv_columns(fields), restval="", extrasaction="ignore"
                    )
                    table.writeheader()
                table.writerow(_csv_row(chosen))
            count += 1
            if count % _STEP == 0:
                advance(count)
        if kind == "csv" and table is None:
            csv.writer(target).writerow(columns or ["topic", "queueId", "queueOffset"])
    return count


def _choose(fields: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    known = {*fields, "tagsCode", "bodyProblem"}
    for name in columns:
        if name not in known:
            raise click.UsageError(f"no column {name!r}; the columns are {', '.join(fields)}")
    return {name: fields.get(name) for name in columns}


def _csv_columns(fields: dict[str, Any]) -> list[str]:
    """Columns of the whole CSV file, with those that only some messages have."""
    names = list(fields)
    if "tagsCode" not in names:
        names.insert(names.index("layout") + 1, "tagsCode")
    return names if "bodyProblem" in names else [*names, "bodyProblem"]


def _csv_row(fields: dict[str, Any]) -> dict[str, Any]:
    properties = fields.get("properties")
    return (
        fields if properties is None else {**fields, "properties": json.dumps(properties, ensure_ascii=False)}
    )
