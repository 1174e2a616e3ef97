"""Status reports of consumers, with the commands of `mqadmin`.

Difference: upstream writes the answer of each consumer to a file; this prints it with `-i`.

Source: RocketMQ tools/.../command/consumer/ConsumerStatusSubCommand.java;
remoting/.../protocol/body/ConsumerRunningInfo.java.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

import click

from pyledger.cli.mqadmin.verb import Printer, shown, verb
from pyledger.cli.output import WrongUseError, printable
from pyledger.errors import BrokerError
from pyledger.model.message import MessageQueue
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.bodies.heartbeat import ConsumeType
from pyledger.wire.remoting.bodies.json_body import document_of, fields_of
from pyledger.wire.remoting.bodies.membership import ConsumerConnection
from pyledger.wire.remoting.bodies.statistics import ConsumerRunning, PopProcessQueueState, ProcessQueueState
from pyledger.wire.remoting.headers.client import GetConsumerRunningInfoRequestHeader
from pyledger.wire.remoting.versions import version_name

VERBS: dict[str, click.Command] = {}
MEMBER = "{number:03}  {clientId:<40} {version}"
QUEUE = "{:<64}  {:<32}  {:<4}  {}"
RATES = "{:<64}  {:>14} {:>14} {:>14} {:>14} {:>18} {:>25}"
STUCK_MS = 60_000
SETTLED_MS = 120_000
"""Members that have run for less time may still differ in their subscriptions."""


async def running_info(
    admin: Any, group: str, client_id: str, *, jstack: bool = False, topic: str | None = None
) -> ConsumerRunning | None:
    """Return the report of a consumer through the first broker connected to it; None if there is none."""
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=jstack
    )
    for address in await admin.brokers_of(group, topic):
        try:
            answer = await admin.request(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        except BrokerError:
            continue
        return ConsumerRunning.decode(answer.body)
    return None


@verb(
    "consumerStatus",
    click.option("-g", "--consumerGroup", "group", required=True, help="Name of the consumer group."),
    click.option("-i", "--clientId", "client_id", help="Show the complete report of this consumer."),
    click.option(
        "-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="Read the members from this broker."
    ),
    click.option(
        "-s", "--jstack", is_flag=True, help="Include thread stacks; only Java's clients send them."
    ),
    table=VERBS,
)
async def consumer_status(
    admin: Any, out: Printer, group: str, client_id: str | None, broker: str | None, jstack: bool
) -> None:
    """Show the status of a group's consumers, and whether their subscriptions agree."""
    group = group.strip()
    if client_id is not None:
        found = await running_info(admin, group, client_id.strip(), jstack=jstack)
        if found is None:
            raise WrongUseError(f"no broker is connected to the consumer {client_id} of the group {group}")
        out.show(document(client_id.strip(), found), "\n".join(lines(found)))
        return
    members = await admin.members(group) if broker is None else await members_at(admin, group, broker)
    if members is None or not members.connection_set:
        raise WrongUseError(f"the consumer group {group} is not online")
    answers: dict[str, ConsumerRunning] = {}
    for one in sorted(members.connection_set, key=lambda one: one.client_id or ""):
        found = await running_info(admin, group, one.client_id, jstack=jstack)
        if found is None:
            continue
        answers[one.client_id] = found
        row = {"number": len(answers), "clientId": one.client_id, "version": version_name(one.version)}
        out.show(
            document(one.client_id, found), MEMBER.format(**{**row, "clientId": printable(one.client_id)})
        )
    if out.as_json or not answers:
        return
    if not same_subscriptions(answers):
        out.text("\n\nWARN: Different subscription in the same group of consumer!!!")
        return
    out.text("\n\nSame subscription in the same group of consumer\n\nRebalance OK")
    for name, found in answers.items():
        for complaint in complaints(name, found):
            out.say(complaint)


async def members_at(admin: Any, group: str, broker: str) -> ConsumerConnection:
    """Return the members of a group at one broker."""
    from pyledger.wire.remoting.headers.admin import GetConsumerConnectionListRequestHeader

    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    answer = await admin.request(broker.strip(), RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    return ConsumerConnection.decode(answer.body)


def document(client_id: str, found: ConsumerRunning) -> dict[str, Any]:
    """Return the report of a consumer as JSON, with rows instead of tables by queue."""
    plain: dict[str, Any] = document_of(found)
    for name, table in (("mqTable", found.mq_table), ("mqPopTable", found.mq_pop_table)):
        plain[name] = [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
            | document_of(state)
            for queue, state in sorted(table.items())
        ]
    return {"clientId": client_id, **plain}


def same_subscriptions(answers: Mapping[str, ConsumerRunning]) -> bool:
    """Return True if all members with listeners have the same subscriptions."""
    first = next(iter(answers.values()))
    started_ms = int(first.properties.get("PROP_CONSUMER_START_TIMESTAMP", 0))
    if not pushes(first) or time.time() * 1000 - started_ms <= SETTLED_MS:
        return True
    wanted = {
        frozenset((one.topic, one.sub_string) for one in found.subscription_set) for found in answers.values()
    }
    return len(wanted) == 1


def pushes(found: ConsumerRunning) -> bool:
    """Return True if messages are delivered to a listener."""
    return found.properties.get("PROP_CONSUME_TYPE") == ConsumeType.PASSIVELY


def complaints(name: str, found: ConsumerRunning) -> Iterator[str]:
    """Describe likely faults of a consumer."""
    now_ms = int(time.time() * 1000)
    in_order = found.properties.get("PROP_CONSUMEORDERLY") == "true"
    for queue, state in sorted(found.mq_table.items()) if pushes(found) else ():
        if in_order and not state.locked:
            yield f"{name} {queue_text(queue)} can't lock for a while, {now_ms - state.last_lock_timestamp}ms"
        elif in_order and state.droped and state.try_unlock_times > 0:
            yield f"{name} {queue_text(queue)} unlock {state.try_unlock_times} times, still failed"
        elif not in_order and state.cached_msg_count and now_ms - state.last_consume_timestamp > STUCK_MS:
            since_ms = now_ms - state.last_consume_timestamp
            yield f"{name} {queue_text(queue)} can't consume for a while, maybe blocked, {since_ms}ms"


def queue_text(queue: MessageQueue) -> str:
    """Format a queue as Java prints it."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def lines(found: ConsumerRunning) -> Iterator[str]:
    """`ConsumerRunningInfo.formatString` of upstream."""
    yield "#Consumer Properties#"
    for name, value in sorted(found.properties.items()):
        yield f"{name:<40}: {printable(str(value))}"
    yield "\n\n#Consumer Subscription#"
    for number, one in enumerate(sorted(found.subscription_set, key=lambda one: one.topic or ""), 1):
        filtered = shown(one.class_filter_mode)
        yield f"{number:03} Topic: {one.topic:<40} ClassFilter: {filtered:<8} SubExpression: {one.sub_string}"
    queues = sorted(found.mq_table.items())
    yield from table(
        "Consumer Offset", "#Consumer Offset", [(one, state.commit_offset) for one, state in queues]
    )
    details = [(one, process_queue_text(state)) for one, state in queues]
    yield from table("Consumer MQ Detail", "#ProcessQueueInfo", details)
    popped = [(one, pop_queue_text(state)) for one, state in sorted(found.mq_pop_table.items())]
    yield from table("Consumer Pop Detail", "#ProcessQueueInfo", popped)
    yield "\n\n#Consumer RT&TPS#"
    heads = (
        "Pull RT",
        "Pull TPS",
        "Consume RT",
        "ConsumeOK TPS",
        "ConsumeFailed TPS",
        "ConsumeFailedMsgsInHour",
    )
    yield RATES.format("#Topic", *(f"#{one}" for one in heads))
    for topic, status in sorted(found.status_table.items()):
        pulled, taken = (status.pull_rt, status.pull_tps), (status.consume_rt, status.consume_ok_tps)
        rates = (f"{rate:.2f}" for rate in (*pulled, *taken, status.consume_failed_tps))
        yield RATES.format(topic, *rates, status.consume_failed_msgs)
    yield "\n\n#User Consume Info#"
    for name, value in sorted(found.user_consumer_info.items()):
        yield f"{name:<40}: {printable(str(value))}"
    if found.jstack is not None:
        yield "\n\n#Consumer jstack#"
        yield from map(printable, found.jstack.splitlines())


def table(title: str, head: str, rows: list[tuple[MessageQueue, Any]]) -> Iterator[str]:
    """Format a table by queue."""
    yield f"\n\n#{title}#"
    yield QUEUE.format("#Topic", "#Broker Name", "#QID", head)
    for queue, value in rows:
        yield QUEUE.format(queue.topic, queue.broker_name, queue.queue_id, value)


def process_queue_text(state: ProcessQueueState) -> str:
    """`ProcessQueueInfo.toString` of upstream."""

    def text(name: str) -> str:
        value = getattr(state, name)
        return compact_time(value) if name.endswith("_timestamp") else shown(value)

    words = {one.attribute: one.wire_name for one in fields_of(ProcessQueueState)}
    values = ", ".join(f"{words[one.name]}={text(one.name)}" for one in fields(state))
    return f"ProcessQueueInfo [{values}]"


def pop_queue_text(state: PopProcessQueueState) -> str:
    """`PopProcessQueueInfo.toString` of upstream."""
    return (
        f"PopProcessQueueInfo [waitAckCount:{state.wait_ack_count}, droped:{shown(state.droped)}, "
        f"lastPopTimestamp:{state.last_pop_timestamp}]"
    )


def compact_time(timestamp_ms: int) -> str:
    """Format a time in local time, to the millisecond, without separators."""
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().strftime("%Y%m%d%H%M%S%f")[:-3]
