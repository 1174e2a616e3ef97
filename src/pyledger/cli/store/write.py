"""`pyledger write`: append messages from JSON lines or CSV."""

import os
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, cast

import click

from pyledger.cli.output import CannotReachError, counted, emit, print_status, progress
from pyledger.cli.parameters import NonEmptyPath, Number, json_option, parse_size
from pyledger.cli.store.rows import Row, field_text, queue_of_key, read_csv, read_json_lines

EXAMPLES = """\b
Examples:
  pyledger write store --topic flights --key tailnum --tag carrier flights.jsonl
  pyledger write new --topic flights --set mappedFileSizeCommitLog=64MiB flights.csv
"""

_STEP = 2048


@click.command("write", epilog=EXAMPLES)
@click.argument("store", type=NonEmptyPath())
@click.argument("file", type=NonEmptyPath(allow_dash=True), default="-")
@click.option("--topic", required=True, help="Topic of all messages.")
@click.option("--queues", type=Number(1, 1 << 16), default=4, show_default=True, help="Number of queues.")
@click.option("--key", "key_field", metavar="FIELD", help="Field with the key; equal keys go to one queue.")
@click.option("--tag", "tag_field", metavar="FIELD", help="Field with the tag.")
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "csv"]), help="Default: by the name of FILE, else jsonl."
)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the store (docs/reference/config.md); repeatable.",
)
@json_option
def command(
    store: str,
    file: str,
    topic: str,
    queues: int,
    key_field: str | None,
    tag_field: str | None,
    kind: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Append one message for each line of FILE, or of stdin, to STORE, which is created if it does not exist.

    A JSON line is stored unchanged; a CSV row is stored as a JSON object of strings. Without --key the queues
    are used round robin; with --key the queue is chosen as by RocketMQ's SelectMessageQueueByHash. All
    messages are on disk when the command ends. It ends at a line that it cannot read; the messages before are
    stored.
    """
    from pyledger.config.store import StoreConfig

    kind = kind or ("csv" if file.endswith(".csv") else "jsonl")
    options = dict(_setting(text) for text in settings)
    StoreConfig.from_properties(options)
    try:
        source = cast("BinaryIO", click.open_file(file, "rb"))
        total = None if file == "-" else os.path.getsize(file)
    except OSError as error:
        raise CannotReachError(f"cannot read {file}: {error.strerror}") from error
    with source as lines:
        rows = (read_csv if kind == "csv" else read_json_lines)(lines)
        first = list(_take_first(rows))
        count = _append(store, chain(first, rows), topic, queues, key_field, tag_field, options, total)
    if as_json:
        emit({"kind": "written", "store": store, "topic": topic, "messages": count})
    else:
        print_status(f"{counted(count, 'message')} appended to topic {topic} in {store}")


def _take_first(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield at most one row: input without a valid first row must not create a store."""
    row = next(rows, None)
    if row is not None:
        yield row


def _append(
    store: str,
    rows: Iterator[Row],
    topic: str,
    queues: int,
    key_field: str | None,
    tag_field: str | None,
    options: dict[str, Any],
    total: int | None,
) -> int:
    """Append all rows and return their number. On an error or Ctrl-C, print how many are stored."""
    from pyledger.errors import IllegalMessageError, RecordTooLargeError
    from pyledger.store.messages.message_store import MessageStore

    count = before = 0
    appenders: list[Any] = []
    chosen_queues: dict[str, int] = {}
    try:
        with MessageStore.open(store, **options) as opened, progress("writing", total) as advance:
            appenders = [opened.appender(topic, queue_id) for queue_id in range(queues)]
            before = sum(appender.next_queue_offset for appender in appenders)
            puts = [appender.put for appender in appenders]
            for number, fields, body, done in rows:
                key = tag = None
                chosen = count % queues
                if key_field is not None and (key := field_text(fields, key_field, number)):
                    chosen = chosen_queues.get(key, -1)
                    if chosen < 0:
                        chosen = queue_of_key(key, queues)
                        if len(chosen_queues) < _KEYS_REMEMBERED:
                            chosen_queues[key] = chosen
                if tag_field is not None:
                    tag = field_text(fields, tag_field, number)
                try:
                    puts[chosen](body, tag, key)
                except (RecordTooLargeError, IllegalMessageError) as error:
                    raise click.ClickException(f"line {number}: {error}") from error
                count += 1
                if not count % _STEP:
                    advance(done)
    except BaseException:
        # Ctrl-C may come between a put and its count, so the queues are counted.
        stored = sum(appender.next_queue_offset for appender in appenders) - before
        if stored:
            print_status(f"{counted(stored, 'message')} appended before this; kept in {store}")
        raise
    return count


_KEYS_REMEMBERED = 100_000


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    return name.strip(), _plain_size(value.strip())


def _plain_size(value: str) -> str:
    """Convert a size with a unit to bytes; return anything else unchanged."""
    if not value[:1].isdigit() or value.isdigit():
        return value
    try:
        return str(parse_size(value))
    except click.BadParameter:
        return value
