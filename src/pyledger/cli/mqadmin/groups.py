"""Consumer and producer groups with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/consumer/*.java, command/connection/*.java, command/producer/*.java.
"""

import json
from dataclasses import replace
from typing import Any

import click

from pyledger.cli.mqadmin.topics import attributes_of
from pyledger.cli.mqadmin.verb import BROKER, CLUSTER, GROUP, TOPIC, Printer, chosen_brokers, shown, verb
from pyledger.cli.output import WrongUseError, printable
from pyledger.cli.parameters import Number
from pyledger.errors import BrokerError
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.route import MASTER_ID
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.wire.remoting.bodies.json_body import encode_body
from pyledger.wire.remoting.bodies.membership import (
    ConsumerConnection,
    MessageRequestMode,
    MessageRequestModeRequest,
    ProducerMembers,
)
from pyledger.wire.remoting.bodies.topic_config import SubscriptionGroupTable
from pyledger.wire.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
)
from pyledger.wire.remoting.versions import version_name

VERBS: dict[str, click.Command] = {}
SHOWN = {
    "groupName": "name",
    "consumeEnable": "consume",
    "consumeFromMinEnable": "consume_from_min",
    "consumeBroadcastEnable": "consume_broadcast",
    "consumeMessageOrderly": "consume_orderly",
    "retryQueueNums": "retry_queue_count",
    "retryMaxTimes": "retry_times_max",
    "groupRetryPolicy": "retry_policy",
    "brokerId": "broker_id",
    "whichBrokerWhenConsumeSlowly": "slow_broker_id",
    "notifyConsumerIdsChangedEnable": "notify_changes",
    "groupSysFlag": "sys_flag",
    "consumeTimeoutMinute": "consume_timeout_minutes",
    "subscriptionDataSet": None,
    "attributes": "attributes",
}
"""Upstream's field names in the order of `SubscriptionGroupConfig.toString`, and ours."""


def fields_of(group: SubscriptionGroup, missing: str) -> dict[str, str]:
    """Return the fields of a group as upstream prints them."""

    def text(name: str, attribute: str | None) -> str:
        if attribute is None:
            return missing
        value = getattr(group, attribute)
        if name == "groupRetryPolicy":
            kinds = ("exponentialRetryPolicy", "customizedRetryPolicy")
            parts = ", ".join(f"{kind}={policy_text(value.get(kind))}" for kind in kinds)
            return f"GroupRetryPolicy{{type={value.get('type', 'CUSTOMIZED')}, {parts}}}"
        if name == "attributes":
            return "{" + ", ".join(f"{key}={one}" for key, one in value.items()) + "}"
        return shown(value)

    return {name: text(name, attribute) for name, attribute in SHOWN.items()}


def policy_text(policy: Any) -> str:
    """Format a retry policy on one line."""
    return "null" if policy is None else json.dumps(policy, separators=(",", ":"))


def described(group: SubscriptionGroup) -> str:
    """`SubscriptionGroupConfig.toString` of upstream."""
    fields = ", ".join(f"{name}={value}" for name, value in fields_of(group, "null").items())
    return f"SubscriptionGroupConfig{{{fields}}}"


def policy_of(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Any:
    """Parse a retry policy from JSON."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "type" not in found:
        raise click.BadParameter('give JSON such as {"type":"CUSTOMIZED","customizedRetryPolicy":{…}}')
    return found


def choice(*names: str, kind: Any = bool, words: str = "true|false") -> Any:
    """Return an optional option."""
    return click.option(*names, type=kind, default=None, metavar=None if kind is not bool else words)


@verb(
    "updateSubGroup",
    BROKER,
    CLUSTER,
    GROUP,
    choice("-s", "--consumeEnable", "consume"),
    choice("-m", "--consumeFromMinEnable", "consume_from_min"),
    choice("-d", "--consumeBroadcastEnable", "consume_broadcast"),
    choice("-o", "--consumeMessageOrderly", "consume_orderly"),
    choice("-q", "--retryQueueNums", "retry_queue_count", kind=Number(0, 65536)),
    choice("-r", "--retryMaxTimes", "retry_times_max", kind=Number(-1, 10_000)),
    click.option("-p", "--groupRetryPolicy", "retry_policy", callback=policy_of, help="As JSON."),
    choice("-i", "--brokerId", "broker_id", kind=Number(0)),
    choice("-w", "--whichBrokerWhenConsumeSlowly", "slow_broker_id", kind=Number(0)),
    choice("-a", "--notifyConsumerIdsChanged", "notify_changes"),
    click.option("--attributes", callback=attributes_of, help="+a=b,+c=d,-e"),
    table=VERBS,
)
async def update_group(
    admin: Any,
    out: Printer,
    broker: str | None,
    cluster: str | None,
    group: str,
    attributes: dict[str, str],
    **given: Any,
) -> None:
    """Create or change a consumer group. Options that are not given get this command's defaults."""
    options = {name: value for name, value in given.items() if value is not None}
    defaults = {"consume_from_min": False, "consume_broadcast": False}
    wanted = replace(SubscriptionGroup(group.strip()), **{**defaults, **options}, attributes=attributes)
    targets = await chosen_brokers(admin, broker, cluster)
    for address in targets:
        body = encode_body(wanted)
        await admin.request(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        out.say(f"create subscription group to {address} success.")
    out.done(described(wanted), group=wanted.name, brokers=targets)


@verb(
    "deleteSubGroup",
    BROKER,
    CLUSTER,
    GROUP,
    click.option(
        "-r",
        "--removeOffset",
        "forget",
        type=bool,
        default=False,
        metavar="true|false",
        help="Delete its offsets, too.",
    ),
    table=VERBS,
)
async def delete_group(
    admin: Any, out: Printer, broker: str | None, cluster: str | None, group: str, forget: bool
) -> None:
    """Delete a consumer group."""
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=forget)
    where = "" if broker else f" in cluster [{cluster}]"
    for address in await chosen_brokers(admin, broker, cluster):
        await admin.request(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        line = f"delete subscription group [{group}] from broker [{address}]{where} success."
        out.done(line, group=group, broker=address)


@verb("getConsumerConfig", GROUP, table=VERBS)
async def get_group(admin: Any, out: Printer, group: str) -> None:
    """Show the configuration of a consumer group at each broker."""
    known = await admin.clusters()
    for name, one in sorted(known.brokers.items()):
        address = one.broker_addrs.get(MASTER_ID)
        if address is None:
            continue
        answer = await admin.request(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        found = SubscriptionGroupTable.decode(answer.body).subscription_group_table.get(group)
        if found is None:
            continue
        if out.as_json:
            out.done("", cluster=one.cluster, brokerName=name, **found.document())
            continue
        title = f"{one.cluster}:{name}"
        out.say(f"{'=' * 29}{title}{'=' * 29}")
        for field, value in fields_of(found, "").items():
            out.say(f"{field:<40}=  {value}")


@verb(
    "setConsumeMode",
    BROKER,
    CLUSTER,
    click.option("-t", "--topicName", "topic", required=True, help="Name of the topic."),
    GROUP,
    click.option("-m", "--mode", type=click.Choice(["PULL", "POP"], case_sensitive=False), required=True),
    click.option("-q", "--popShareQueueNum", "share", type=Number(0), default=0),
    table=VERBS,
)
async def set_mode(
    admin: Any,
    out: Printer,
    broker: str | None,
    cluster: str | None,
    topic: str,
    group: str,
    mode: str,
    share: int,
) -> None:
    """Choose whether a group pulls or pops a topic."""
    wanted = MessageRequestModeRequest(
        topic=topic, consumer_group=group, mode=MessageRequestMode(mode.upper()), pop_share_queue_num=share
    )
    for address in await chosen_brokers(admin, broker, cluster):
        await admin.request(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=wanted.encode())
        out.say(f"set consume mode to {address} success.")
    line = f"topic[{topic}] group[{group}] consume mode[{wanted.mode}] popShareQueueNum[{share}]"
    out.done(line, topic=topic, group=group, mode=wanted.mode, popShareQueueNum=share)


MEMBERS = "{number:<4} {clientId:<36} {clientAddr:<22} {language:<10} {version}"
PRODUCERS = "{number:<4} {clientId:<32} {clientAddr:<22} {language:<8} {version}"
HEADS = ("", "#ClientId", "#ClientAddr", "#Language", "#Version")


def member_rows(members: Any) -> list[dict[str, Any]]:
    """Return one row per connected client."""
    ordered = sorted(members, key=lambda one: one.client_id or "")
    return [
        {
            "number": number,
            "clientId": one.client_id,
            "clientAddr": one.client_addr,
            "language": one.language,
            "version": version_name(one.version),
        }
        for number, one in enumerate(ordered, 1)
    ]


@verb(
    "consumerConnection",
    click.option("-g", "--consumerGroup", "group", required=True, help="Name of the consumer group."),
    click.option(
        "-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="Send the request to this broker."
    ),
    table=VERBS,
)
async def consumer_connection(admin: Any, out: Printer, group: str, broker: str | None) -> None:
    """Show the members and subscriptions of a consumer group."""
    if broker:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        answer = await admin.request(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        found: ConsumerConnection | None = ConsumerConnection.decode(answer.body)
    else:
        found = await admin.members(group)
    if found is None:
        raise WrongUseError(f"the consumer group {group} is not online")
    rows = member_rows(found.connection_set)
    subscriptions = [
        {"topic": topic, "subExpression": one.sub_string}
        for topic, one in sorted(found.subscription_table.items())
    ]
    kinds = {
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "consumeFromWhere": found.consume_from_where,
    }
    if out.as_json:
        out.done("", group=group, members=rows, subscriptions=subscriptions, **kinds)
        return
    out.table(MEMBERS, HEADS, rows)
    out.text("\nBelow is subscription:")
    out.table("{topic:<20}  {subExpression}", ("#Topic", "#SubExpression"), subscriptions)
    out.text("")
    for name, value in (
        ("ConsumeType", kinds["consumeType"]),
        ("MessageModel", kinds["messageModel"]),
        ("ConsumeFromWhere", kinds["consumeFromWhere"]),
    ):
        out.say(f"{name}: {shown(value)}")


@verb(
    "producerConnection",
    click.option("-g", "--producerGroup", "group", required=True, help="Name of the producer group."),
    TOPIC,
    table=VERBS,
)
async def producer_connection(admin: Any, out: Printer, group: str, topic: str) -> None:
    """Show the members of a producer group at the brokers of a topic."""
    found = await admin.producers(group, topic)
    if found is None:
        raise WrongUseError(f"the producer group {group} is not online")
    out.table(PRODUCERS, HEADS, member_rows(found.connection_set))


@verb(
    "producer",
    click.option(
        "-b", "--broker", required=True, metavar="HOST:PORT", help="Send the request to this broker."
    ),
    table=VERBS,
)
async def producers(admin: Any, out: Printer, broker: str) -> None:
    """List all producers of a broker."""
    try:
        answer = await admin.request(broker, RequestCode.GET_ALL_PRODUCER_INFO)
    except BrokerError as error:
        raise WrongUseError(f"{broker} did not list its producers: {error}") from error
    for group, members in sorted(ProducerMembers.decode(answer.body).data.items()):
        if not members:
            out.say(f"producer group[{group}] instances are empty")
        for one in members:
            fields = {
                "clientId": one.client_id,
                "remoteIP": one.remote_ip,
                "language": one.language,
                "version": one.version,
                "lastUpdateTimestamp": one.last_update_timestamp,
            }
            text = ",".join(f"{name}={value}" for name, value in fields.items())
            out.show({"group": group, **fields}, printable(f"producer group[{group}],instance[{text}]"))
