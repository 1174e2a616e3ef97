"""`pyledger produce`: send lines to a topic."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from pyledger.cli.network import client_of_options, network_options, run_client
from pyledger.cli.output import WrongUseError, counted, emit_done, print_status
from pyledger.cli.parameters import Number
from pyledger.cli.store.rows import field_text, read_json_lines, read_lines, read_whole

EXAMPLES = """\b
Examples:
  echo 'one pizza' | pyledger produce --topic Orders --tags food
  pyledger produce --topic Orders --in json --key-field id orders.jsonl
  pyledger produce --topic Load --count 10000 --size 256 --batch 32
"""
IN_FLIGHT = 256
PAYLOAD = b"PyLedger "


def properties_of(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse `NAME=VALUE` pairs."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name or not text:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        found[name] = text
    return found


@click.command("produce", epilog=EXAMPLES)
@click.argument("source", type=click.File("rb"), default="-", metavar="[FILE]")
@network_options
@click.option("--topic", required=True, help="Topic to send to.")
@click.option("--group", default="pyledger-produce", show_default=True, help="Producer group.")
@click.option(
    "--in",
    "form",
    type=click.Choice(["lines", "json", "whole"]),
    default="lines",
    show_default=True,
    help="lines: each line is a body. json: each line is an object and the body. whole: FILE is one body.",
)
@click.option("--tags", help="Tags of each message.")
@click.option("--keys", help="Keys of each message, separated by spaces.")
@click.option("--key-field", help="With --in json: the field whose value is the key.")
@click.option(
    "--property", "properties", multiple=True, callback=properties_of, help="NAME=VALUE; repeatable."
)
@click.option("--sharding-key", help="Messages with one key are sent to one queue, in order.")
@click.option("--delay-level", type=Number(0, 18), default=0, help="Deliver later: 1 to 18.")
@click.option("--batch", type=Number(1, 1024), default=1, help="Messages per request.")
@click.option("--count", type=Number(1), help="Send N generated messages instead of FILE.")
@click.option(
    "--size",
    "size_bytes",
    type=Number(1),
    default=256,
    show_default=True,
    help="Their size, in bytes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print where each message is stored, as JSON lines.")
def command(
    source: BinaryIO,
    namesrv: str,
    access_key: str,
    secret_key: str,
    group: str,
    form: str,
    batch: int,
    count: int | None,
    size_bytes: int,
    sharding_key: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Send the lines of FILE or standard input to a topic. On success all are stored."""
    if batch > 1 and fields["delay_level"]:
        raise WrongUseError("a message of a batch cannot be delayed; leave out --batch or --delay-level")
    if fields["key_field"] and form != "json":
        raise WrongUseError("--key-field needs --in json")
    rows = generated_bodies(count, size_bytes) if count else read(source, form, fields.pop("key_field"))
    fields.pop("key_field", None)
    client = client_of_options(namesrv, access_key, secret_key)
    sent = run_client(send_all(rows, group, client, batch, sharding_key, as_json, fields))
    if not as_json:
        print_status(f"{counted(sent, 'message')} stored")


def generated_bodies(count: int, size_bytes: int) -> Iterator[tuple[bytes, str | None]]:
    """Return `count` generated bodies of `size_bytes`."""
    body = (PAYLOAD * (size_bytes // len(PAYLOAD) + 1))[:size_bytes]
    return ((body, None) for _ in range(count))


def read(source: BinaryIO, form: str, key_field: str | None) -> Iterator[tuple[bytes, str | None]]:
    """Yield each body with its key; skip empty lines."""
    if form == "whole":
        yield read_whole(source), None
    elif form == "json":
        for number, row, body, _ in read_json_lines(source):
            yield body, None if key_field is None else field_text(row, key_field, number)
    else:
        for line in read_lines(source):
            if body := line.rstrip(b"\r\n"):
                yield body, None


async def send_all(
    rows: Iterator[tuple[bytes, str | None]],
    group: str,
    client: Any,
    batch: int,
    sharding_key: str | None,
    as_json: bool,
    fields: dict[str, Any],
) -> int:
    """Send all messages; return how many were stored."""
    import asyncio
    from itertools import islice

    from pyledger.client import AsyncProducer, Message

    sent = 0
    async with AsyncProducer(group, client=client, send_timeout_ms=30_000) as producer:

        async def send(part: list[tuple[bytes, str | None]]) -> None:
            nonlocal sent
            messages = [Message(body=body, **{**fields, "keys": key or fields["keys"]}) for body, key in part]
            result = (
                await producer.send(messages[0], sharding_key=sharding_key)
                if batch == 1
                else await producer.send(messages, sharding_key=sharding_key)
            )
            sent += len(part)
            if as_json:
                emit_done(
                    {
                        "status": result.status,
                        "brokerName": result.queue.broker_name,
                        "queueId": result.queue.queue_id,
                        "queueOffset": result.queue_offset,
                        "msgId": result.offset_msg_id,
                        "uniqueKey": result.unique_key,
                    }
                )

        running: set[asyncio.Task[None]] = set()
        # Messages with one key keep their order only if each waits for the one before.
        width = 1 if sharding_key else IN_FLIGHT
        try:
            while part := list(islice(rows, batch)):
                running.add(asyncio.create_task(send(part)))
                if len(running) >= width:
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                    running -= done
            await asyncio.gather(*running)
        except BaseException:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            print_status(f"{counted(sent, 'message')} stored; messages in flight may be stored, too")
            raise
    return sent
