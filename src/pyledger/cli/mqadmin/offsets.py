"""Offsets of consumer groups, with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/consumer/ConsumerProgressSubCommand.java, command/offset/*.java,
command/broker/BrokerConsumeStatsSubCommad.java.
"""

from typing import Any

import click

from pyledger.cli.mqadmin.verb import TOPIC, Printer, moment_text, parse_moment, shown, verb
from pyledger.cli.parameters import INT64_MAX, Number
from pyledger.errors import BrokerError, NoRouteError, NotFoundError
from pyledger.model import names
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.bodies.offsets import QueueOffsets
from pyledger.wire.remoting.bodies.statistics import BrokerConsumeStats
from pyledger.wire.remoting.headers.admin import CloneGroupOffsetRequestHeader
from pyledger.wire.remoting.headers.client import ResetOffsetRequestHeader
from pyledger.wire.remoting.versions import version_name

VERBS: dict[str, click.Command] = {}
GROUP = click.option("-g", "--group", required=True, help="Name of the consumer group.")
LMQ = click.option("-c", "--cluster", help="Accepted and ignored.")
FORCE = click.option(
    "-f", "--force", type=bool, default=True, metavar="true|false", help="Move forward, too."
)


def last_time(timestamp_ms: int) -> str:
    """Format the store time of the last consumed message."""
    return moment_text(timestamp_ms) if timestamp_ms > 0 else "N/A"


@verb(
    "consumerProgress",
    click.option("-g", "--groupName", "group", help="Only this group, queue by queue."),
    click.option("-t", "--topicName", "topic", help="Only this topic."),
    click.option(
        "-s", "--showClientIP", "show_ip", type=bool, default=False, metavar="true|false",
        help="Show the member of each queue.",
    ),
    LMQ,
    table=VERBS,
)  # fmt: skip
async def consumer_progress(
    admin: Any, out: Printer, group: str | None, topic: str | None, show_ip: bool, cluster: str | None
) -> None:
    """Show the offsets and the lag of groups."""
    del cluster  # means something for a kind of topic that is not served here
    if group is None:
        await all_progress(admin, out)
        return
    progress = await admin.progress(group, topic)
    if not progress.queues:
        try:
            await admin.topic_route(names.retry_topic(group))
        except NoRouteError as error:
            raise NotFoundError("consumer group", group, "no client has consumed in this group") from error
    owners = await owners_of(admin, group, topic) if show_ip else {}
    rows = []
    for queue, one in progress.queues.items():
        row = {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "brokerOffset": one.broker_offset,
            "consumerOffset": one.consumer_offset,
            "clientIP": owners.get(queue, "N/A"),
            "diff": one.broker_offset - one.consumer_offset,
            "inflight": one.pull_offset - one.consumer_offset,
            "lastTime": one.last_timestamp,
        }
        rows.append(row if show_ip else {name: row[name] for name in row if name != "clientIP"})
    client = "{clientIP:<20} " if show_ip else ""
    pattern = (
        "{topic:<64.64}  {brokerName:<32.32}  {queueId:<4}  {brokerOffset:<20}  {consumerOffset:<20}  "
        + client
        + "{diff:<20} {inflight:<20} {lastTime}"
    )
    heads = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff"]
    heads += ["#Inflight", "#LastTime"]
    if show_ip:
        heads.insert(5, "#Client IP")
    out.table(pattern, heads, rows, lastTime=last_time)
    out.text("")
    out.say(f"Consume TPS: {progress.consume_tps:.2f}")
    out.say(f"Consume Diff Total: {sum(row['diff'] for row in rows)}")
    out.say(f"Consume Inflight Total: {sum(row['inflight'] for row in rows)}")


async def owners_of(admin: Any, group: str, topic: str | None) -> dict[Any, str]:
    """Return the address of each queue's member."""
    from pyledger.cli.mqadmin.consumers import running_info

    found: dict[Any, str] = {}
    members = await admin.members(group)
    for one in members.connection_set if members else ():
        running = await running_info(admin, group, one.client_id, topic=topic)
        for queue in running.mq_table if running else ():
            found[queue] = one.client_id.split("@")[0]
    return found


async def all_progress(admin: Any, out: Printer) -> None:
    """Return one row per group."""
    rows = []
    for topic in await admin.topics():
        if not topic.startswith(names.RETRY_PREFIX):
            continue
        group = topic.removeprefix(names.RETRY_PREFIX)
        try:
            progress = await admin.progress(group)
            members = await admin.members(group)
        except (NoRouteError, BrokerError):
            continue
        clients = members.connection_set if members else ()
        versions = {version_name(one.version) for one in clients}
        rows.append(
            {
                "group": group,
                "count": len(clients),
                "version": min(versions, default="OFFLINE"),
                "type": members.consume_type if members else "",
                "model": members.message_model if members else "",
                "tps": int(progress.consume_tps),
                "diffTotal": progress.lag,
            }
        )
    pattern = "{group:<64.64}  {count:<6}  {version:<24} {type:<5}  {model:<14}  {tps:<7}  {diffTotal}"
    rows = [{**row, "type": str(row["type"]).removeprefix("CONSUME_")[:5]} for row in rows]
    for row in rows:
        row["type"] = {"ACTIV": "PULL", "PASSI": "PUSH"}.get(str(row["type"]), row["type"])
    rows.sort(key=lambda row: -int(row["diffTotal"]))
    out.table(pattern, ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"), rows)


@verb(
    "brokerConsumeStats",
    click.option("-b", "--brokerAddr", "broker", required=True, metavar="HOST:PORT"),
    click.option(
        "-t", "--timeoutMillis", "timeout_ms", type=Number(-INT64_MAX), help="Accepted and ignored."
    ),
    click.option(
        "-l", "--level", type=Number(-INT64_MAX), default=0, help="Only queues with at least this lag."
    ),
    click.option("-o", "--order", type=bool, default=False, metavar="true|false", help="Ordered topics."),
    table=VERBS,
)
async def broker_consume_stats(
    admin: Any, out: Printer, broker: str, timeout_ms: int | None, level: int, order: bool
) -> None:
    """Show the offsets and the lag of all groups of a broker."""
    from pyledger.wire.remoting.headers.admin import GetConsumeStatsInBrokerHeader

    del timeout_ms
    header = GetConsumeStatsInBrokerHeader(is_order=order)
    answer = await admin.request(broker, RequestCode.GET_BROKER_CONSUME_STATS, header)
    found = BrokerConsumeStats.decode(answer.body)
    rows = [
        {
            "topic": queue.topic,
            "group": group,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "brokerOffset": one.broker_offset,
            "consumerOffset": one.consumer_offset,
            "diff": one.broker_offset - one.consumer_offset,
            "lastTime": one.last_timestamp,
        }
        for table in found.consume_stats_list
        for group, parts in table.items()
        for part in parts
        for queue, one in sorted(part.offset_table.items())
        if one.broker_offset - one.consumer_offset >= level
    ]
    pattern = (
        "{topic:<64.64}  {group:<64.64}  {brokerName:<32.32}  {queueId:<4}  {brokerOffset:<20}  "
        "{consumerOffset:<20}  {diff:<20}  {lastTime}"
    )
    heads = ["#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    heads += ["#Diff", "#LastTime"]
    out.table(pattern, heads, rows, lastTime=lambda ms: moment_text(ms) if ms > 0 else "-")
    out.text("")
    out.say(f"Diff Total: {found.total_diff}")


@verb(
    "resetOffsetByTime",
    GROUP,
    TOPIC,
    click.option(
        "-s", "--timestamp", "when", required=True, metavar="TIME",
        help="now, ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS; -1 is the end.",
    ),
    FORCE,
    LMQ,
    click.option("-b", "--broker", metavar="HOST:PORT", help="With -q: only at this broker."),
    click.option("-q", "--queue", "queue_id", type=Number(0), help="With -b: only this queue."),
    click.option("-o", "--offset", type=Number(0), help="With -b and -q: this queue offset."),
    table=VERBS,
)  # fmt: skip
async def reset_offset(
    admin: Any,
    out: Printer,
    group: str,
    topic: str,
    when: str,
    force: bool,
    cluster: str | None,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
) -> None:
    """Reset the offsets of a group to a time or an offset, in one queue or all queues of a topic."""
    del cluster
    moment = parse_moment(when)
    about = f"group[{group}], topic[{topic}]"
    times = f"timestamp(string)[{when}], timestamp(long)[{moment}]"
    if broker is not None and queue_id is not None:
        about = f"{about}, queueId[{queue_id}], broker[{broker}]"
        out.say(f"start reset consumer offset by specified, {about}, {times}")
        header = ResetOffsetRequestHeader(
            topic=topic,
            group=group,
            queue_id=queue_id,
            timestamp=moment,
            is_force=force,
            offset=-1 if offset is None else offset,
        )
        answer = await admin.request(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        for reached in QueueOffsets.decode(answer.body).offset_table.values():
            out.done(f"reset consumer offset to {reached}", queueId=queue_id, offset=reached)
        return
    out.say(f"start reset consumer offset by specified, {about}, force[{shown(force)}], {times}")
    print_reset(out, await admin.reset_offset(group, topic, moment, force=force))


def print_reset(out: Printer, reached: Any) -> None:
    """Print the new offsets of a group."""
    rows = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in reached.items()
    ]
    pattern = "{brokerName:<40.40}  {queueId:<40}  {offset:<40}"
    out.table(pattern, ("#brokerName", "#queueId", "#offset"), rows)


@verb("skipAccumulatedMessage", GROUP, TOPIC, FORCE, LMQ, table=VERBS)
async def skip_accumulated(
    admin: Any, out: Printer, group: str, topic: str, force: bool, cluster: str | None
) -> None:
    """Move a group to the end of all queues of a topic."""
    del cluster
    print_reset(out, await admin.reset_offset(group, topic, -1, force=force))


@verb(
    "cloneGroupOffset",
    click.option("-s", "--srcGroup", "source", required=True, help="Group whose offsets are copied."),
    click.option("-d", "--destGroup", "target", required=True, help="Group that receives the offsets."),
    TOPIC,
    click.option(
        "-o", "--offline", type=bool, default=False, metavar="true|false", help="Accepted and ignored."
    ),
    table=VERBS,
)
async def clone_offset(admin: Any, out: Printer, source: str, target: str, topic: str, offline: bool) -> None:
    """Copy the offsets of a group to another group."""
    header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=target, topic=topic, offline=offline)
    for address in await admin.brokers_of(source, topic):
        await admin.request(address, RequestCode.CLONE_GROUP_OFFSET, header)
    line = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    out.done(line, srcGroup=source, destGroup=target, topic=topic)
