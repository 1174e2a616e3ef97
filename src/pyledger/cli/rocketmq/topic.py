"""`pyledger topic`: list, show, create and delete topics over the network."""

from typing import Any

import click

from pyledger.cli.network import client_of_options, network_options, run_client
from pyledger.cli.output import confirm, emit, format_time, print_rows, report, write_line
from pyledger.cli.parameters import Number, if_exists_option, json_option, yes_option

EXAMPLES = """\b
Examples:
  pyledger topic list
  pyledger topic create Orders --queues 8
  pyledger topic show Orders
"""
PERMISSIONS = {"r": 4, "w": 2, "rw": 6}


@click.group("topic", epilog=EXAMPLES)
def command() -> None:
    """Topics of running brokers."""


@command.command("list")
@network_options
@click.option("--all", "show_all", is_flag=True, help="Include system, retry and dead-letter topics.")
@json_option
def list_topics(namesrv: str, access_key: str, secret_key: str, show_all: bool, as_json: bool) -> None:
    """List the names of all topics."""
    from pyledger.client.admin.admin import AsyncAdmin
    from pyledger.protocol.broker.name_rules import is_retry_or_dlq, is_system_topic

    async def work() -> tuple[str, ...]:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            found = await admin.topics()
            if show_all:
                return found
            known = await admin.clusters()
            # Each cluster and each broker has a topic of its name.
            own = {*known.clusters, *known.brokers, *(f"{name}_REPLY_TOPIC" for name in known.clusters)}
            return tuple(
                name
                for name in found
                if name not in own and not is_system_topic(name) and not is_retry_or_dlq(name)
            )

    for name in run_client(work()):
        emit({"topic": name}) if as_json else write_line(name)


@command.command("show")
@click.argument("topic")
@network_options
@json_option
def show(topic: str, namesrv: str, access_key: str, secret_key: str, as_json: bool) -> None:
    """Show the queues of a topic: broker, offsets, time of the last message."""
    from pyledger.client.admin.admin import AsyncAdmin

    async def work() -> Any:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.topic_offsets(topic)

    rows = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": one.min_offset,
            "maxOffset": one.max_offset,
            "messages": one.max_offset - one.min_offset,
            "lastUpdate": format_time(one.last_update_timestamp or None),
        }
        for queue, one in run_client(work()).items()
    ]
    print_rows(rows, as_json)


@command.command("create")
@click.argument("topic")
@network_options
@click.option("--queues", type=Number(1, 65_535), default=8, show_default=True, help="Queues at each broker.")
@click.option("--perm", type=click.Choice(list(PERMISSIONS)), default="rw", show_default=True)
@click.option("--order", is_flag=True, help="Make it a topic of ordered messages.")
@click.option(
    "--attribute", multiple=True, metavar="NAME=VALUE", help="Such as message.type=FIFO; repeatable."
)
@click.option("--cluster", help="Only at brokers of this cluster.")
@click.option("--broker", metavar="HOST:PORT", help="Only at this broker.")
@json_option
def create(
    topic: str,
    namesrv: str,
    access_key: str,
    secret_key: str,
    queues: int,
    perm: str,
    order: bool,
    attribute: tuple[str, ...],
    cluster: str | None,
    broker: str | None,
    as_json: bool,
) -> None:
    """Create or change a topic."""
    from pyledger.cli.rocketmq.produce import properties_of
    from pyledger.client.admin.admin import AsyncAdmin
    from pyledger.model.topic import Permission, TopicConfig

    context = click.get_current_context()
    attributes = properties_of(context, context.command.params[0], attribute)
    wanted = TopicConfig(
        topic, queues, queues, Permission(PERMISSIONS[perm]), order=order, attributes=attributes
    )

    async def work() -> tuple[str, ...]:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            return await admin.create_topic(wanted, cluster=cluster, address=broker)

    brokers = run_client(work())
    report(f"{topic} is at {', '.join(brokers)}", {"topic": topic, "brokers": brokers}, as_json=as_json)


@command.command("delete")
@click.argument("topic")
@network_options
@click.option("--cluster", help="Only at brokers of this cluster.")
@if_exists_option
@yes_option
@json_option
def delete(
    topic: str,
    namesrv: str,
    access_key: str,
    secret_key: str,
    cluster: str | None,
    if_exists: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a topic. Its messages can no longer be read."""
    from pyledger.client.admin.admin import AsyncAdmin

    if not yes:
        confirm(f"Delete {topic} and its messages?")

    async def work() -> None:
        async with AsyncAdmin(client=client_of_options(namesrv, access_key, secret_key)) as admin:
            if not if_exists:
                await admin.topic_route(topic)
            await admin.delete_topic(topic, cluster=cluster)

    run_client(work())
    report(f"{topic} is deleted", {"topic": topic, "deleted": True}, as_json=as_json)
