"""Topics with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/topic/*.java, command/stats/StatsAllSubCommand.java.
"""

from dataclasses import replace
from typing import Any

import click

from pyledger.cli.mqadmin.verb import (
    BROKER,
    CLUSTER,
    TOPIC,
    Printer,
    chosen_brokers,
    precise_text,
    verb,
)
from pyledger.cli.output import WrongUseError, printable
from pyledger.cli.parameters import Number
from pyledger.errors import BrokerError, NoRouteError
from pyledger.model import names
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.route import MASTER_ID, ORDER_TOPIC_NAMESPACE
from pyledger.model.topic import Permission, TopicConfig
from pyledger.protocol.client.topic_route_view import subscribe_queues
from pyledger.wire import fastjson
from pyledger.wire.remoting.bodies.json_body import decode_body, encode_body
from pyledger.wire.remoting.bodies.route import encode_route
from pyledger.wire.remoting.bodies.statistics import BrokerStats
from pyledger.wire.remoting.headers.admin import (
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from pyledger.wire.remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    PutKVConfigRequestHeader,
)

VERBS: dict[str, click.Command] = {}
PERMISSION = Number(0, 7)
UNIT, UNIT_SUBSCRIPTION = 1, 2


def described(topic: TopicConfig) -> str:
    """`TopicConfig.toString` of upstream."""
    letters = "".join(
        letter if bit in topic.permission else "-"
        for bit, letter in ((Permission.READ, "R"), (Permission.WRITE, "W"), (Permission.INHERIT, "X"))
    )
    attributes = ", ".join(f"{name}={value}" for name, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.name}, readQueueNums={topic.read_queue_count}, "
        f"writeQueueNums={topic.write_queue_count}, perm={letters}, topicFilterType={topic.filter_type}, "
        f"topicSysFlag={topic.sys_flag}, order={str(topic.order).lower()}, attributes={{{attributes}}}]"
    )


def attributes_of(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, str]:
    """Parse `+a=b,+c=d,-e` into attributes, each with its sign."""
    found = {}
    for part in filter(None, (value or "").split(",")):
        name, equals, text = part.partition("=")
        if name[:1] not in {"+", "-"} or len(name) < 2 or bool(equals) != (name[0] == "+"):
            raise click.BadParameter(f"{part!r} is neither +NAME=VALUE nor -NAME")
        found[name] = text
    return found


@verb(
    "updateTopic",
    BROKER,
    CLUSTER,
    TOPIC,
    click.option("-r", "--readQueueNums", "read", type=Number(1, 65536), default=8),
    click.option("-w", "--writeQueueNums", "write", type=Number(1, 65536), default=8),
    click.option("-p", "--perm", type=PERMISSION, default=6, help="2: write, 4: read, 6: both."),
    click.option("-o", "--order", type=bool, default=False, metavar="true|false"),
    click.option("-u", "--unit", type=bool, default=False, metavar="true|false"),
    click.option("-s", "--hasUnitSub", "unit_sub", type=bool, default=False, metavar="true|false"),
    click.option("-a", "--attributes", callback=attributes_of, help="+a=b,+c=d,-e"),
    table=VERBS,
)
async def update_topic(
    admin: Any,
    out: Printer,
    broker: str | None,
    cluster: str | None,
    topic: str,
    read: int,
    write: int,
    perm: int,
    order: bool,
    unit: bool,
    unit_sub: bool,
    attributes: dict[str, str],
) -> None:
    """Create or change a topic."""
    from pyledger.client.admin.admin import topic_header

    flags = UNIT * unit + UNIT_SUBSCRIPTION * unit_sub
    wanted = TopicConfig(
        topic.strip(), read, write, Permission(perm), sys_flag=flags, order=order, attributes=attributes
    )
    targets = await chosen_brokers(admin, broker, cluster)
    signed = ",".join(f"{name}={value}".rstrip("=") for name, value in attributes.items())
    header = topic_header(wanted, signed or None)
    for address in targets:
        await admin.request(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        out.say(f"create topic to {address} success.")
    if order and not broker:
        known = await admin.clusters()
        by_address = {one.broker_addrs.get(MASTER_ID): one.broker_name for one in known.brokers.values()}
        value = ";".join(f"{by_address[address]}:{write}" for address in targets)
        pair = PutKVConfigRequestHeader(namespace=ORDER_TOPIC_NAMESPACE, key=wanted.name, value=value)
        for server in admin.client.name_server_addresses:
            await admin.request(server, RequestCode.PUT_KV_CONFIG, pair)
        out.say(f"set cluster orderConf. isOrder=true, orderConf=[{value}]")
    out.done(described(wanted), topic=wanted.name, brokers=targets)


@verb(
    "deleteTopic",
    TOPIC,
    click.option("-c", "--clusterName", "cluster", required=True, help="At all brokers of this cluster."),
    table=VERBS,
)
async def delete_topic(admin: Any, out: Printer, topic: str, cluster: str) -> None:
    """Delete a topic at all brokers of a cluster, and at the name servers."""
    for address in await admin.master_addresses(cluster):
        header = DeleteTopicRequestHeader(topic=topic)
        await admin.request(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
    out.say(f"delete topic [{topic}] from cluster [{cluster}] success.")
    known = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
    for server in admin.client.name_server_addresses:
        await admin.request(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, known)
    out.done(f"delete topic [{topic}] from NameServer success.", topic=topic, cluster=cluster)


@verb(
    "updateTopicPerm",
    BROKER,
    CLUSTER,
    TOPIC,
    click.option("-p", "--perm", type=PERMISSION, required=True, help="2: write, 4: read, 6: both."),
    table=VERBS,
)
async def update_topic_perm(
    admin: Any, out: Printer, broker: str | None, cluster: str | None, topic: str, perm: int
) -> None:
    """Change the permission of a topic."""
    for address in await chosen_brokers(admin, broker, cluster):
        header = GetTopicConfigRequestHeader(topic=topic)
        try:
            answer = await admin.request(address, RequestCode.GET_TOPIC_CONFIG, header)
        except BrokerError as error:
            raise WrongUseError(f"no topic {topic} at {address}") from error
        found = decode_body(TopicConfig, answer.body)
        old = int(found.permission)
        if old == perm:
            out.done("new perm equals to the old one!", broker=address, perm=perm)
            continue
        changed = replace(found, permission=Permission(perm))
        await admin.create_topic(changed, address=address)
        line = f"update topic perm from {old} to {perm} in {address} success."
        out.done(line, broker=address, topic=topic, oldPerm=old, perm=perm)
        if broker:
            out.say(f"{described(changed)}.")


@verb(
    "topicRoute",
    TOPIC,
    click.option("-l", "--list", "as_list", is_flag=True, help="As a table."),
    table=VERBS,
)
async def topic_route(admin: Any, out: Printer, topic: str, as_list: bool) -> None:
    """Show the brokers of a topic and their queues."""
    route = await admin.topic_route(topic)
    if not as_list:
        whole = fastjson.parse(encode_route(route, standard=False).decode())
        out.show(whole, printable_lines(fastjson.dump(whole)))
        return
    brokers = {one.broker_name: one for one in route.brokers}
    rows = [
        {
            "clusterName": brokers[queues.broker_name].cluster,
            "brokerName": queues.broker_name,
            "brokerAddrs": addresses_text(brokers[queues.broker_name].broker_addrs),
            "readQueueNums": queues.read_queue_count,
            "writeQueueNums": queues.write_queue_count,
            "perm": int(queues.permission),
        }
        for queues in sorted(route.queues, key=lambda one: one.broker_name)
        if queues.broker_name in brokers
    ]
    pattern = (
        "{clusterName:<45} {brokerName:<32} {brokerAddrs:<50} {readQueueNums:<10} {writeQueueNums:<11} "
        "{perm:<5}"
    )
    heads = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    out.table(pattern, heads, rows)
    out.say("-" * 158)
    reads, writes = (sum(row[name] for row in rows) for name in ("readQueueNums", "writeQueueNums"))
    out.text(f"{'Total:':<45} {len(rows):<32} {'':<50} {reads:<10} {writes:<11} {'':<5}")


def printable_lines(text: str) -> str:
    """Escape control characters except line ends and tabs."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def addresses_text(addresses: Any) -> str:
    """Format a map as Java prints it."""
    return "{" + ", ".join(f"{number}={address}" for number, address in addresses.items()) + "}"


@verb("topicStatus", TOPIC, click.option("-c", "--cluster", help="Accepted and ignored."), table=VERBS)
async def topic_status(admin: Any, out: Printer, topic: str, cluster: str | None) -> None:
    """Show the first and next offset of each queue of a topic, and its last update."""
    del cluster  # means something for a kind of topic that is not served here
    rows = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": one.min_offset,
            "maxOffset": one.max_offset,
            "lastUpdated": one.last_update_timestamp,
        }
        for queue, one in (await admin.topic_offsets(topic)).items()
    ]
    pattern = "{brokerName:<32.32}  {queueId:<4}  {minOffset:<20}  {maxOffset:<20}    {lastUpdated}"
    heads = ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    out.table(pattern, heads, rows, lastUpdated=lambda ms: precise_text(ms) if ms > 0 else "")
    out.text("")
    tps = 0.0
    for address in {one.broker_addrs.get(MASTER_ID) for one in (await admin.topic_route(topic)).brokers}:
        tps += of_minute(await stats_of(admin, address, "TOPIC_PUT_NUMS", topic))
    out.say(f"Topic Put TPS: {tps}")


@verb(
    "topicList",
    click.option("-c", "--clusterModel", "by_cluster", is_flag=True, help="With clusters and groups."),
    table=VERBS,
)
async def topic_list(admin: Any, out: Printer, by_cluster: bool) -> None:
    """List all topics, one per line."""
    found = await admin.topics()
    if not by_cluster:
        for name in found:
            out.done(name, topic=name)
        return
    rows = []
    for name in found:
        if name.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
            continue
        for cluster in await clusters_of(admin, name):
            groups = await admin.topic_groups(name) or ("",)
            rows += [{"cluster": cluster, "topic": name, "consumerGroup": group} for group in groups]
    # The headings are narrower than the columns, as in upstream's output.
    out.text(f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}")
    for row in rows:
        text = "{cluster:<20.20}  {topic:<64.64}  {consumerGroup:<64.64}".format(**row)
        out.done(text, **row)


async def clusters_of(admin: Any, topic: str) -> list[str]:
    """Return the clusters that have a topic."""
    return sorted({one.cluster for one in (await admin.topic_route(topic)).brokers})


@verb("topicClusterList", TOPIC, table=VERBS)
async def topic_cluster_list(admin: Any, out: Printer, topic: str) -> None:
    """List the clusters of a topic."""
    for cluster in await clusters_of(admin, topic):
        out.done(cluster, cluster=cluster)


@verb(
    "allocateMQ",
    TOPIC,
    click.option("-i", "--ipList", "ips", required=True, help="Client addresses, separated by commas."),
    table=VERBS,
)
async def allocate_queues(admin: Any, out: Printer, topic: str, ips: str) -> None:
    """Show which queues of a topic each of these consumers would take."""
    from pyledger.protocol.rebalance.strategies import Averagely

    route = await admin.topic_route(topic)
    queues = sorted(subscribe_queues(topic, route))
    members = [ip.strip() for ip in ips.split(",") if ip.strip()]
    result: dict[str, list[MessageQueue]] = {
        member: Averagely().allocate(member, queues, sorted(members)) for member in members
    }
    text = encode_body({"result": result}, standard=True).decode()
    out.show(fastjson.parse(text), printable(text))


async def stats_of(admin: Any, address: str | None, statistic: str, key: str) -> BrokerStats | None:
    """Return a statistic of a broker; None if it has none."""
    header = ViewBrokerStatsDataRequestHeader(stats_name=statistic, stats_key=key)
    try:
        return BrokerStats.decode(
            (await admin.request(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body
        )
    except BrokerError:
        return None


def of_day(counted: BrokerStats | None) -> int:
    """Return the count of the last day, hour or minute: the first that is not 0."""
    spans = (counted.stats_day, counted.stats_hour, counted.stats_minute) if counted else ()
    return next((span.sum for span in spans if span and span.sum), 0)


def of_minute(counted: BrokerStats | None) -> float:
    """Return the rate per second in the last minute."""
    return counted.stats_minute.tps if counted and counted.stats_minute else 0.0


@verb(
    "statsAll",
    click.option("-t", "--topic", "only", help="Only this topic."),
    click.option(
        "-a", "--activeTopic", "active", is_flag=True, help="Only topics with messages in the last day."
    ),
    table=VERBS,
)
async def stats_all(admin: Any, out: Printer, only: str | None, active: bool) -> None:
    """Show messages in and out of each topic, and the lag."""
    rows = []
    for topic in await admin.topics():
        if topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)) or (only and topic != only):
            continue
        try:
            rows += await stats_of_topic(admin, topic)
        except NoRouteError:  # deleted meanwhile
            continue
    if active:
        rows = [row for row in rows if row["inMsg24Hour"] or row["outMsg24Hour"]]
    pattern = (
        "{topic:<64.64}  {consumerGroup:<64.64} {accumulation:>12} {inTps:>11} {outTps:>11} "
        "{inMsg24Hour:>14} {outMsg24Hour:>14}"
    )
    heads = (
        "#Topic",
        "#Consumer Group",
        "#Accumulation",
        "#InTPS",
        "#OutTPS",
        "#InMsg24Hour",
        "#OutMsg24Hour",
    )
    out.table(
        pattern,
        heads,
        rows,
        inTps=lambda tps: f"{tps:.2f}",
        outTps=lambda tps: "" if tps is None else f"{tps:.2f}",
        outMsg24Hour=lambda count: "NO_CONSUMER" if count is None else str(count),
    )


async def stats_of_topic(admin: Any, topic: str) -> list[dict[str, Any]]:
    """Return one row per group that consumes a topic, or one row without a group."""
    addresses = {one.broker_addrs.get(MASTER_ID) for one in (await admin.topic_route(topic)).brokers}
    puts = [await stats_of(admin, address, "TOPIC_PUT_NUMS", topic) for address in addresses]
    into = {"inTps": sum(map(of_minute, puts)), "inMsg24Hour": sum(map(of_day, puts))}
    rows = []
    for group in await admin.topic_groups(topic):
        key = f"{topic}@{group}"
        gets = [await stats_of(admin, address, "GROUP_GET_NUMS", key) for address in addresses]
        rows.append(
            {
                "topic": topic,
                "consumerGroup": group,
                "accumulation": max(0, (await admin.progress(group, topic)).lag),
                "inTps": into["inTps"],
                "outTps": sum(map(of_minute, gets)),
                "inMsg24Hour": into["inMsg24Hour"],
                "outMsg24Hour": sum(map(of_day, gets)),
            }
        )
    none = {
        "topic": topic,
        "consumerGroup": "",
        "accumulation": 0,
        "outTps": None,
        "outMsg24Hour": None,
    }
    return rows or [{**none, **into}]
