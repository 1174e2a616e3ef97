"""`pyledger grep`: print messages whose body or properties match a pattern."""

import re
from collections.abc import Iterator
from typing import Any

import click

from pyledger.cli.messages import print_message
from pyledger.cli.output import emit, write_line
from pyledger.cli.parameters import (
    body_option,
    corrupt_option,
    json_option,
    order_option,
    report_skipped,
    selected_messages,
    selection_options,
    store_argument,
)
from pyledger.errors import CorruptBodyError

EXAMPLES = """\b
Examples:
  pyledger grep 'dest.*LAX' store --topic flights --limit 5
  pyledger grep -c -F N14228 store
"""


def compile_pattern(pattern: str, *, ignore_case: bool, fixed: bool) -> re.Pattern[bytes]:
    """The pattern over UTF-8 bytes, so that binary bodies can be searched too."""
    text = re.escape(pattern) if fixed else pattern
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"), re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.BadParameter(
            f"{pattern!r} is not a regular expression: {error}", param_hint="PATTERN"
        ) from error


def matches(message: Any, pattern: re.Pattern[bytes]) -> bool:
    """Whether the decompressed body or the value of a property matches."""
    try:
        body = message.plain_body
    except CorruptBodyError:
        body = message.body
    if pattern.search(body):
        return True
    return any(pattern.search(value.encode()) for value in message.properties.values())


@click.command("grep", epilog=EXAMPLES)
@click.argument("pattern")
@store_argument
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case match each other.")
@click.option("-F", "--fixed-strings", "fixed", is_flag=True, help="PATTERN is plain text.")
@click.option("-c", "--count", "count_only", is_flag=True, help="Print only how many match.")
@selection_options
@order_option("log")
@body_option
@corrupt_option
@json_option
def command(
    pattern: str,
    store: str,
    ignore_case: bool,
    fixed: bool,
    count_only: bool,
    order: str,
    body: str,
    on_corrupt: Any,
    as_json: bool,
    **selection: Any,
) -> None:
    """Print messages of STORE whose decompressed body or property values match PATTERN.

    PATTERN is a regular expression as Python writes it. --limit and --tail count matches.
    """
    from collections import deque
    from itertools import islice

    from pyledger.store.reading.reader import StoreReader

    compiled = compile_pattern(pattern, ignore_case=ignore_case, fixed=fixed)
    limit, tail = selection.pop("limit"), selection.pop("tail")
    count = 0
    with StoreReader.open(store, on_corrupt=on_corrupt) as reader:
        found: Iterator[Any] = (
            m for m in selected_messages(reader, order, selection) if matches(m, compiled)
        )
        if tail is not None:
            found = iter(deque(found, tail))
        for message in islice(found, limit):
            count += 1
            if not count_only:
                print_message(message, as_json=as_json, body=body)
    if count_only and as_json:
        emit({"kind": "count", "count": count})
    elif count_only:
        write_line(str(count))
    report_skipped(reader)
