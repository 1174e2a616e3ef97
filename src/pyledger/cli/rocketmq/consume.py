"""`pyledger consume`: print the messages of a topic as they arrive, or up to the current end."""

from collections.abc import Callable
from typing import Any

import click

from pyledger.cli.network import (
    FORMAT_HELP,
    client_of_options,
    formatted,
    network_options,
    parse_format,
    received_fields,
    run_client,
)
from pyledger.cli.output import WrongUseError, emit, format_time, printable, write_line
from pyledger.cli.parameters import Number, parse_time
from pyledger.config.keywords import ConsumerSettings

EXAMPLES = """\b
Examples:
  pyledger consume --topic Orders --exit
  pyledger consume --topic Orders --group billing --tags 'food || drinks' --limit 1
  pyledger consume --topic Orders --exit --from 2h -f '%o %k %s\\n'
"""
POLL_MS = 500
IDLE_POLLS = 2

Take = Callable[[Any], bool]
"""Called with a message; returns True when no more are needed."""


def parse_start(text: str) -> str | int:
    """Parse `begin`, `end` or a time."""
    return text if text in {"begin", "end"} else parse_time(text)


@click.command("consume", epilog=EXAMPLES)
@network_options
@click.option("--topic", required=True, help="Topic to read.")
@click.option("--group", help="Join this group and continue at its offsets. Without it, no offset changes.")
@click.option("--tags", metavar="EXPR", default="*", help="Tags as in 'A || B'.")
@click.option("--sql", metavar="EXPR", help="An SQL92 expression on properties instead of tags.")
@click.option(
    "--from",
    "start",
    type=parse_start,
    default="begin",
    show_default=True,
    metavar="WHERE",
    help="begin, end, or a time: ms, ISO 8601 or an age such as 15m. Only a new group starts there.",
)
@click.option("--limit", type=Number(), help="Stop after this many messages.")
@click.option("--exit", "exit_at_end", is_flag=True, help="Stop at the end of the queues.")
@click.option("-f", "--format", "pattern", callback=parse_format, help=FORMAT_HELP)
@click.option("--json", "as_json", is_flag=True, help="JSON lines instead of text.")
def command(
    namesrv: str,
    access_key: str,
    secret_key: str,
    topic: str,
    group: str | None,
    tags: str,
    sql: str | None,
    start: str | int,
    limit: int | None,
    exit_at_end: bool,
    pattern: str | None,
    as_json: bool,
) -> None:
    """Print messages of a topic until interrupted, or until --limit or --exit."""
    if as_json and pattern is not None:
        raise WrongUseError("--json and --format cannot be combined")
    if sql is not None and tags != "*":
        raise WrongUseError("--tags and --sql cannot be combined")
    client = client_of_options(namesrv, access_key, secret_key)
    choice = (tags if sql is None else sql, sql is not None)
    run_client(print_all(client, topic, group, choice, start, limit, exit_at_end, pattern, as_json))


async def print_all(
    client: Any,
    topic: str,
    group: str | None,
    choice: tuple[str, bool],
    start: str | int,
    limit: int | None,
    exit_at_end: bool,
    pattern: str | None,
    as_json: bool,
) -> None:
    """Print messages as they arrive."""
    count = 0

    def take(message: Any) -> bool:
        nonlocal count
        if count != limit:
            show(message, pattern, as_json)
            count += 1
        return count == limit

    if limit == 0:
        return
    if group is None:
        await read_queues(client, topic, choice, start, exit_at_end, take)
    else:
        await poll_group(client, topic, group, choice, start, exit_at_end, take)


def show(message: Any, pattern: str | None, as_json: bool) -> None:
    """Print one message."""
    if as_json:
        emit(received_fields(message))
    elif pattern is not None:
        click.echo(formatted(message, pattern), nl=False)
    else:
        parts = [
            format_time(message.store_timestamp),
            f"{message.topic}/{message.broker_name}/{message.queue_id}@{message.queue_offset}",
            f"[{message.tags}]" if message.tags else "",
            message.keys or "",
            message.body.decode("utf-8", "backslashreplace"),
        ]
        write_line("  ".join(printable(part) for part in parts if part))


async def read_queues(
    client: Any, topic: str, choice: tuple[str, bool], start: str | int, exit_at_end: bool, take: Take
) -> None:
    """Read all queues concurrently until `take` returns True."""
    import asyncio

    from pyledger.client import AsyncPullConsumer, PullStatus

    expression, is_sql = choice
    async with AsyncPullConsumer("pyledger-consume", client=client) as consumer:

        async def read(queue: Any) -> bool:
            """Read a queue; return True if `take` did."""
            end = await consumer.max_offset(queue)
            if start == "begin":
                offset = await consumer.min_offset(queue)
            else:
                offset = end if isinstance(start, str) else await consumer.offset_by_time(queue, start)
            while not exit_at_end or offset < end:
                result = await consumer.pull(queue, offset, expression, sql=is_sql, wait=not exit_at_end)
                offset = result.next_offset
                for message in result.messages:
                    if not (exit_at_end and message.queue_offset >= end) and take(message):
                        return True
                if exit_at_end and result.status is PullStatus.NO_NEW_MESSAGE:
                    break
            return False

        tasks = {asyncio.ensure_future(read(queue)) for queue in await consumer.queues(topic)}
        waiting, enough = tasks, False
        try:
            while waiting and not enough:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                enough = any(task.result() for task in done)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # several may have failed at once


async def poll_group(
    client: Any,
    topic: str,
    group: str,
    choice: tuple[str, bool],
    start: str | int,
    exit_at_end: bool,
    take: Take,
) -> None:
    """Poll the queues assigned to this member of a group until `take` returns True."""
    from pyledger.client import AsyncLitePullConsumer

    settings: ConsumerSettings = (
        {"consume_from": "timestamp", "consume_timestamp_ms": start}
        if isinstance(start, int)
        else {"consume_from": "first_offset" if start == "begin" else "last_offset"}
    )
    consumer = AsyncLitePullConsumer(group, client=client, **settings)
    consumer.subscribe(topic, choice[0], sql=choice[1])
    async with consumer:
        idle = 0
        while not exit_at_end or idle < IDLE_POLLS or not await is_at_end(consumer, topic):
            messages = await consumer.poll(POLL_MS, 1)
            idle = 0 if messages else idle + 1
            if any(take(message) for message in messages):
                return


async def is_at_end(consumer: Any, topic: str) -> bool:
    """Return True if the member has queues and has read all whose offset it reports."""
    queues = [queue for queue in consumer.queues if queue.topic == topic]
    offsets = consumer.status(topic)
    for queue in queues:
        address, _ = consumer.client.routes.reader(queue.broker_name)
        if queue in offsets and offsets[queue] < await consumer.client.calls.max_offset(address, queue):
            return False
    return bool(queues)
