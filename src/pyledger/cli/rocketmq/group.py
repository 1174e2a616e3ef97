"""`pyledger group`: list, show, create, delete and reset consumer groups over the network."""

from typing import Any

import click

from pyledger.cli.network import client_of_options, network_options, run_client
from pyledger.cli.output import confirm, counted, emit, format_time, print_rows, print_status, report
from pyledger.cli.parameters import Number, if_exists_option, json_option, parse_time, yes_option

EXAMPLES = """\b
Examples:
  pyledger group list
  pyledger group show billing
  pyledger group reset billing --topic Orders --to 2h
"""


@click.group("group", epilog=EXAMPLES)
def command() -> None:
    """Consumer groups of running brokers."""


@command.command("list")
@network_options
@json_option
def list_groups(namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """List all groups with their maximum number of retries."""
    from pyledger.client.admin.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.groups()

    rows = [
        {"group": name, "consume": one.consume, "retryTimesMax": one.retry_times_max}
        for name, one in run_client(work()).items()
    ]
    print_rows(rows, as_json)


@command.command("show")
@click.argument("group")
@network_options
@click.option("--topic", help="Only this topic.")
@json_option
def show(
    group: str, namesrv: str, access_key: str, secret_key: str, topic: str | None, as_json: bool
) -> None:
    """Show the offsets and the lag of a group in each queue, and its members."""
    from pyledger.client.admin.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            progress, members = await admin.progress(group, topic), await admin.members(group)
            # Brokers answer 0 for a group that they do not know, as upstream's do.
            if members is None and not any(one.consumer_offset > 0 for one in progress.queues.values()):
                await require_group(admin, group)
            return progress, members

    progress, members = run_client(work())
    rows = [
        {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "brokerOffset": one.broker_offset,
            "consumerOffset": one.consumer_offset,
            "lag": one.broker_offset - max(0, one.consumer_offset),
            "lastTime": format_time(one.last_timestamp or None),
        }
        for queue, one in progress.queues.items()
    ]
    clients = sorted(one.client_id for one in members.connection_set) if members else []
    if as_json:
        emit({"group": group, "lag": progress.lag, "members": clients, "queues": rows})
        return
    print_rows(rows, as_json=False)
    there = f"{counted(len(clients), 'member')}: {', '.join(clients)}" if clients else "no members"
    print_status(f"lag: {counted(progress.lag, 'message')}; {there}")


async def require_group(admin: Any, group: str) -> None:
    """Check that a broker knows a group.

    Raises:
        NotFoundError: No broker does.
    """
    from pyledger.errors import NotFoundError

    if group not in await admin.groups():
        raise NotFoundError("group", group, "see `pyledger group list`")


@command.command("create")
@click.argument("group")
@network_options
@click.option("--retry-times", type=Number(0, 10_000), default=16, show_default=True)
@click.option("--orderly", is_flag=True, help="Its members consume in order.")
@click.option("--no-broadcast", is_flag=True, help="Do not let its members consume by broadcasting.")
@click.option("--cluster", help="Only at brokers of this cluster.")
@json_option
def create(
    group: str,
    namesrv: str,
    access_key: str,
    secret_key: str,
    retry_times: int,
    orderly: bool,
    no_broadcast: bool,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Create or change a group."""
    from pyledger.client.admin.admin import AsyncAdmin
    from pyledger.model.subscription_group import SubscriptionGroup

    wanted = SubscriptionGroup(
        group, retry_times_max=retry_times, consume_orderly=orderly, consume_broadcast=not no_broadcast
    )

    async def work() -> tuple[str, ...]:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.create_group(wanted, cluster=cluster)

    brokers = run_client(work())
    report(f"{group} is at {', '.join(brokers)}", {"group": group, "brokers": brokers}, as_json=as_json)


@command.command("delete")
@click.argument("group")
@network_options
@click.option("--keep-offsets", is_flag=True, help="Keep its consumer offsets.")
@if_exists_option
@yes_option
@json_option
def delete(
    group: str,
    namesrv: str,
    access_key: str,
    secret_key: str,
    keep_offsets: bool,
    if_exists: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a group."""
    from pyledger.client.admin.admin import AsyncAdmin

    if not yes:
        confirm(f"Delete the group {group}?")

    async def work() -> None:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            if not if_exists:
                await require_group(admin, group)
            await admin.delete_group(group, forget_offsets=not keep_offsets)

    run_client(work())
    report(f"{group} is deleted", {"group": group, "deleted": True}, as_json=as_json)


def parse_target(text: str) -> int:
    """Parse `begin`, `end` or a time into milliseconds since 1970; -1 is the end."""
    return {"begin": 0, "end": -1}[text] if text in {"begin", "end"} else parse_time(text)


@command.command("reset")
@click.argument("group")
@network_options
@click.option("--topic", required=True, help="Topic whose offsets to reset.")
@click.option(
    "--to",
    "target_ms",
    required=True,
    type=parse_target,
    metavar="WHERE",
    help="begin, end, or a time: ms, ISO 8601 or an age such as 15m.",
)
@json_option
def reset(
    group: str, namesrv: str, access_key: str, secret_key: str, topic: str, target_ms: int, as_json: bool
) -> None:
    """Reset the offsets of a group. Running members continue there within 20 seconds."""
    from pyledger.client.admin.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.reset_offset(group, topic, target_ms)

    rows = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in run_client(work()).items()
    ]
    print_rows(rows, as_json)
