"""`pyledger cat`: print messages of any store folder, ours or Java's, running or crashed."""

from typing import Any

import click

from pyledger.cli.messages import print_message
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

EXAMPLES = """\b
Examples:
  pyledger cat store --topic flights --tags 'UA || AA' --limit 5
  pyledger cat store --tail 3 --json
"""


@click.command("cat", epilog=EXAMPLES)
@store_argument
@selection_options
@order_option("log")
@body_option
@corrupt_option
@json_option
def command(store: str, order: str, body: str, on_corrupt: Any, as_json: bool, **selection: Any) -> None:
    """Print messages of STORE without changing a byte of it."""
    from pyledger.store.reading.reader import StoreReader

    with StoreReader.open(store, on_corrupt=on_corrupt) as reader:
        for message in selected_messages(reader, order, selection):
            print_message(message, as_json=as_json, body=body)
        report_skipped(reader)
