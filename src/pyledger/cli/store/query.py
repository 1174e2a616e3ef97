"""`pyledger query`: find messages by key, through the index files, or by message id."""

from typing import Any

import click

from pyledger.cli.messages import print_message
from pyledger.cli.output import print_status
from pyledger.cli.parameters import (
    Number,
    body_option,
    json_option,
    parse_time,
    require_topics,
    store_argument,
)
from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError

EXAMPLES = """\b
Examples:
  pyledger query store --topic flights --key N14228
  pyledger query store --id 7F00000100002A9F0000000000000000 --json
"""


@click.command("query", epilog=EXAMPLES)
@store_argument
@click.option("--topic", help="Topic of the messages; needed with --key.")
@click.option("--key", help="One of a message's keys, or its client id (UNIQ_KEY).")
@click.option("--id", "msg_id", help="Message id as a send returned it, instead of topic and key.")
@click.option(
    "--since", type=parse_time, metavar="TIME", help="Stored at or after: ms, ISO 8601 or an age such as 15m."
)
@click.option("--until", type=parse_time, metavar="TIME", help="Stored before.")
@click.option(
    "--limit",
    type=Number(1, 64),
    default=64,
    show_default=True,
    help="Most messages: the newest ones.",
)
@body_option
@json_option
def command(
    store: str,
    topic: str | None,
    key: str | None,
    msg_id: str | None,
    since: int | None,
    until: int | None,
    limit: int,
    body: str,
    as_json: bool,
) -> None:
    """Find messages of STORE by topic and key, or one by its id.

    As in RocketMQ, a query by key returns the newest messages, at most 64.
    """
    from pyledger.store.reading.reader import StoreReader

    with StoreReader.open(store) as reader:
        if topic is not None and key is not None and msg_id is None:
            found = reader.query(topic, key, since=since, until=until, limit=limit)
            if not found:
                require_topics(reader, {topic})
        elif msg_id is not None and key is None:
            found = [find_by_id(reader, msg_id)]
        else:
            raise click.UsageError("give --topic and --key, or --id")
        for message in found:
            print_message(message, as_json=as_json, body=body)
        if not found and not as_json:
            print_status("no message has this key")


def find_by_id(reader: Any, msg_id: str) -> Any:
    """Return the message with an id. A wrong id is more likely mistyped than a sign of damage."""
    try:
        return reader.message_by_id(msg_id)
    except OffsetOutOfRangeError as error:
        raise click.ClickException(f"no message in {reader.path} has this id: {error}") from None
    except CorruptRecordError as error:
        where = f"physical offset {error.physical_offset}"
        raise click.ClickException(
            f"no message in {reader.path} has this id: at {where}, {error.problem}"
        ) from None
