"""Messages with the commands of `mqadmin`.

Source: RocketMQ tools/.../command/message/*.java, command/queue/QueryConsumeQueueCommand.java.
"""

from collections.abc import AsyncIterator
from typing import Any

import click

from pyledger.cli.mqadmin.verb import TOPIC, Printer, parse_moment, precise_text, shown, verb
from pyledger.cli.network import received_fields
from pyledger.cli.output import WrongUseError, printable
from pyledger.cli.parameters import Number
from pyledger.errors import NoRouteError, NotFoundError
from pyledger.model.message import Message, MessageQueue
from pyledger.model.remoting_codes import RequestCode
from pyledger.wire.remoting.bodies.offsets import QueueUnits
from pyledger.wire.remoting.headers.admin import QueryConsumeQueueRequestHeader

VERBS: dict[str, click.Command] = {}
TOOLS_GROUP = "TOOLS_CONSUMER"
UNIQUE_SHOWN_MAX = 32
LMQ = click.option("-c", "--cluster", help="Accepted and ignored.")
MESSAGE_ID = click.option("-i", "--msgId", "msg_id", required=True, help="The id.")
BROKER_NAME = click.option("-b", "--brokerName", "broker_name", required=True, help="Name of the broker.")
QUEUE_ID = click.option("-i", "--queueId", "queue_id", type=Number(0), required=True)
CHARSET = click.option("-c", "--charsetName", "charset", default="UTF-8", show_default=True)
BODY = click.option("-d", "--printBody", "with_body", type=bool, default=True, metavar="true|false")
BEGIN_HELP = "Stored then or later: ms or yyyy-MM-dd#HH:mm:ss:SSS."
BEGIN = click.option("-b", "--beginTimestamp", "begin", help=BEGIN_HELP)
END = click.option("-e", "--endTimestamp", "end", help="Stored at or before this time.")
TAGS = click.option("-s", "--subExpression", "tags", default="*", show_default=True, help="'A || B', or *.")


def known_charset(name: str) -> str:
    """Check the name of a charset."""
    try:
        "".encode(name)
    except LookupError:
        raise WrongUseError(f"{name!r} is not a charset; use one such as UTF-8 or GBK") from None
    return name


def properties_text(message: Any) -> str:
    """Format properties as Java prints a map."""
    return "{" + ", ".join(f"{name}={value}" for name, value in message.properties.items()) + "}"


def described(message: Any, with_body: bool = True) -> str:
    """`MessageExt.toString` of the original; the body as Java's signed bytes."""
    body = "null"
    if with_body:
        signed = (str(one - 256 if one > 127 else one) for one in message.body)
        body = f"[{', '.join(signed)}]"
    return (
        f"MessageExt [brokerName={message.broker_name or 'null'}, queueId={message.queue_id}, "
        f"storeSize={message.store_size}, queueOffset={message.queue_offset}, sysFlag={message.sys_flag}, "
        f"bornTimestamp={message.born_timestamp}, bornHost=/{message.born_host}, "
        f"storeTimestamp={message.store_timestamp}, storeHost=/{message.store_host}, "
        f"msgId={message.msg_id}, commitLogOffset={message.physical_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, "
        f"properties={properties_text(message)}, body={body}, transactionId='null'}}]"
    )


def print_line(out: Printer, message: Any, charset: str, with_body: bool) -> None:
    """Print a message on one line."""
    text = message.body.decode(charset, "replace") if with_body else "NOT PRINT BODY"
    key = message.unique_key or message.msg_id
    out.show(received_fields(message), printable(f"MSGID: {key} {described(message)} BODY: {text}"))


async def print_details(
    admin: Any, out: Printer, message: Any, *, with_id: bool = True, charset: str | None = None
) -> None:
    """Print a message field by field, and its status in each group of its topic."""
    if out.as_json:
        out.done("", **received_fields(message))
        return
    fields = {
        "OffsetID": message.msg_id,
        "Topic": message.topic,
        "Tags": f"[{message.tags or 'null'}]",
        "Keys": f"[{message.keys or 'null'}]",
        "Queue ID": message.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": precise_text(message.born_timestamp),
        "Store Timestamp": precise_text(message.store_timestamp),
        "Born Host": message.born_host,
        "Store Host": message.store_host,
        "System Flag": message.sys_flag,
        "Properties": properties_text(message),
    }
    if not with_id:
        del fields["OffsetID"]
    for name, value in fields.items():
        out.say(f"{f'{name}:':<20} {value}")
    # The original writes the body into a file of /tmp and names that; here it is shown.
    out.say(f"{'Message Body:':<20} {message.body.decode(charset or 'UTF-8', 'backslashreplace')}")
    tracks = await tracks_of(admin, message)
    out.text("\n")
    for group, kind in tracks:
        out.say(f"MessageTrack [consumerGroup={group}, trackType={kind}, exceptionDesc=null]")


async def tracks_of(admin: Any, message: Any) -> list[tuple[str, str]]:
    """Return the status of a message in each group that consumes its topic."""
    found = []
    try:
        groups = await admin.topic_groups(message.topic)
    except NoRouteError:
        return []
    for group in groups:
        members = await admin.members(group)
        if members is None:
            found.append((group, "NOT_ONLINE"))
            continue
        if members.message_model == "BROADCASTING":
            found.append((group, "CONSUME_BROADCASTING"))
            continue
        progress = await admin.progress(group, message.topic)
        passed = any(
            queue.queue_id == message.queue_id
            and queue.broker_name == message.broker_name
            and one.consumer_offset > message.queue_offset
            for queue, one in progress.queues.items()
        )
        found.append((group, "CONSUMED" if passed else "NOT_CONSUME_YET"))
    return found


@verb(
    "queryMsgById",
    MESSAGE_ID,
    TOPIC,
    LMQ,
    click.option("-f", "--bodyFormat", "charset", default="UTF-8", help="Charset of the body."),
    table=VERBS,
)
async def query_by_id(
    admin: Any, out: Printer, msg_id: str, topic: str, cluster: str | None, charset: str
) -> None:
    """Show messages by message ids or unique keys, separated by commas."""
    del cluster
    for one in filter(None, (part.strip() for part in msg_id.split(","))):
        await print_details(admin, out, await admin.message(one, topic), charset=known_charset(charset))


@verb(
    "queryMsgByUniqueKey",
    MESSAGE_ID,
    TOPIC,
    LMQ,
    click.option("-a", "--showAll", "show_all", is_flag=True, help="Show all matches, 32 at most."),
    table=VERBS,
)
async def query_by_unique_key(
    admin: Any, out: Printer, msg_id: str, topic: str, cluster: str | None, show_all: bool
) -> None:
    """Show a message by its unique key (set by the producer)."""
    del cluster
    found = await admin.query(topic, msg_id.strip(), unique=True, limit=UNIQUE_SHOWN_MAX)
    if not found:
        raise NotFoundError(
            "message", msg_id, f"in the topic {topic}; use the id that the producer's send returned"
        )
    for message in found if show_all else found[:1]:
        await print_details(admin, out, message, with_id=False)


@verb(
    "queryMsgByKey",
    TOPIC,
    click.option("-k", "--msgKey", "key", required=True, help="The key."),
    click.option("-b", "--beginTimestamp", "begin", type=Number(0), default=0, metavar="MS"),
    click.option("-e", "--endTimestamp", "end", type=Number(0), default=(1 << 63) - 1, metavar="MS"),
    click.option("-m", "--maxNum", "count_max", type=Number(1), default=64, show_default=True),
    LMQ,
    table=VERBS,
)
async def query_by_key(
    admin: Any,
    out: Printer,
    topic: str,
    key: str,
    begin: int,
    end: int,
    count_max: int,
    cluster: str | None,
) -> None:
    """Find messages by one of their keys."""
    del cluster
    found = await admin.query(topic, key, since=begin, until=end + 1, limit=count_max)
    if out.as_json:
        for message in found:
            out.done("", **received_fields(message))
        return
    rows = [
        {"id": one.unique_key or one.msg_id, "queueId": one.queue_id, "offset": one.queue_offset}
        for one in found
    ]
    out.table("{id:<50} {queueId:>4} {offset:>40}", ("#Message ID", "#QID", "#Offset"), rows)


@verb(
    "queryMsgByOffset",
    TOPIC,
    BROKER_NAME,
    QUEUE_ID,
    click.option("-o", "--offset", type=Number(0), required=True, help="Queue offset."),
    click.option("-f", "--bodyFormat", "charset", default="UTF-8", help="Charset of the body."),
    table=VERBS,
)
async def query_by_offset(
    admin: Any, out: Printer, topic: str, broker_name: str, queue_id: int, offset: int, charset: str
) -> None:
    """Show a message by its queue offset."""
    reader = reader_of(admin)
    async with reader:
        found = await reader.pull(MessageQueue(topic, broker_name, queue_id), offset, count_max=1)
    if not found.messages or found.messages[0].queue_offset != offset:
        held = f"{topic}/{broker_name}/{queue_id} holds {found.min_offset} to {found.max_offset}"
        raise NotFoundError("message", f"{topic}/{broker_name}/{queue_id}@{offset}", held)
    await print_details(admin, out, found.messages[0], charset=known_charset(charset))


def reader_of(admin: Any) -> Any:
    """Return a consumer of the tools' group that uses the admin client's connections."""
    from pyledger.client.consumer.pull_consumer import AsyncPullConsumer

    return AsyncPullConsumer(TOOLS_GROUP, client=admin.client)


async def read_queue(
    reader: Any, queue: MessageQueue, bounds: tuple[int, int], tags: str
) -> AsyncIterator[Any]:
    """Yield the messages of a queue in [first, last)."""
    at, end = bounds
    while at < end:
        found = await reader.pull(queue, at, tags)
        for message in found.messages:
            if message.queue_offset < end:
                yield message
        if found.next_offset <= at:
            return
        at = found.next_offset


async def bounds_of(reader: Any, queue: MessageQueue, begin: str | None, end: str | None) -> tuple[int, int]:
    """Return the queue offsets of a time range."""
    first, last = await reader.min_offset(queue), await reader.max_offset(queue)
    if begin is not None:
        first = max(first, await reader.offset_by_time(queue, parse_moment(begin)))
    if end is not None:
        last = min(last, await reader.offset_by_time(queue, parse_moment(end) + 1))
    return first, last


@verb(
    "printMsg",
    TOPIC,
    CHARSET,
    TAGS,
    BEGIN,
    END,
    BODY,
    click.option("-l", "--lmqParentTopic", "lmq_parent", help="Accepted and ignored."),
    table=VERBS,
)
async def print_messages(
    admin: Any,
    out: Printer,
    topic: str,
    charset: str,
    tags: str,
    begin: str | None,
    end: str | None,
    with_body: bool,
    lmq_parent: str | None,
) -> None:
    """Print all messages of a topic, queue by queue."""
    del lmq_parent
    known_charset(charset)
    async with reader_of(admin) as reader:
        for queue in await reader.queues(topic):
            bounds = await bounds_of(reader, queue, begin, end)
            out.say(f"minOffset={bounds[0]}, maxOffset={bounds[1]}, {queue_text(queue)}")
            async for message in read_queue(reader, queue, bounds, tags):
                print_line(out, message, charset, with_body)
            out.say("-" * 56)


def queue_text(queue: MessageQueue) -> str:
    """`MessageQueue.toString` of upstream."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


@verb(
    "printMsgByQueue",
    TOPIC,
    click.option("-a", "--brokerName", "broker_name", required=True, help="Name of the broker."),
    QUEUE_ID,
    CHARSET,
    TAGS,
    BEGIN,
    END,
    click.option("-p", "--print", "with_lines", type=bool, default=False, metavar="true|false"),
    click.option("-d", "--printBody", "with_body", type=bool, default=False, metavar="true|false"),
    click.option("-f", "--calculate", "by_tag", type=bool, default=False, metavar="true|false"),
    table=VERBS,
)
async def print_queue(
    admin: Any,
    out: Printer,
    topic: str,
    broker_name: str,
    queue_id: int,
    charset: str,
    tags: str,
    begin: str | None,
    end: str | None,
    with_lines: bool,
    with_body: bool,
    by_tag: bool,
) -> None:
    """Print the messages of a queue (-p true), or count them by tag (-f true)."""
    known_charset(charset)
    queue = MessageQueue(topic, broker_name, queue_id)
    counts: dict[str, int] = {}
    async with reader_of(admin) as reader:
        bounds = await bounds_of(reader, queue, begin, end)
        async for message in read_queue(reader, queue, bounds, tags):
            if message.tags:
                counts[message.tags] = counts.get(message.tags, 0) + 1
            if with_lines:
                print_line(out, message, charset, with_body)
    if by_tag:
        for tag, count in sorted(counts.items(), key=lambda one: -one[1]):
            out.done(f"Tag: {tag:<30} Count: {count}", tag=tag, count=count)


@verb(
    "consumeMessage",
    TOPIC,
    click.option("-b", "--brokerName", "broker_name", help="Name of the broker."),
    click.option("-i", "--queueId", "queue_id", type=Number(0), help="With -b: only this queue."),
    click.option("-o", "--offset", type=Number(0), help="With -i: start at this queue offset."),
    click.option("-g", "--consumerGroup", "group", help="Accepted and ignored: no group's offsets change."),
    click.option("-s", "--beginTimestamp", "begin", help=BEGIN_HELP),
    END,
    click.option("-c", "--MessageNumber", "limit", type=Number(1), default=128, show_default=True),
    table=VERBS,
)
async def consume_message(
    admin: Any,
    out: Printer,
    topic: str,
    broker_name: str | None,
    queue_id: int | None,
    offset: int | None,
    group: str | None,
    begin: str | None,
    end: str | None,
    limit: int,
) -> None:
    """Print messages of a topic, of a queue, or from an offset."""
    del group
    if (queue_id is not None and broker_name is None) or (offset is not None and queue_id is None):
        raise WrongUseError("-i needs -b, and -o needs -i")
    left = limit
    async with reader_of(admin) as reader:
        for queue in await reader.queues(topic):
            if broker_name not in {None, queue.broker_name} or queue_id not in {None, queue.queue_id}:
                continue
            first, last = await bounds_of(reader, queue, begin, end)
            first = first if offset is None else max(first, offset)
            out.say("Consume ok")
            async for message in read_queue(reader, queue, (first, last), "*"):
                print_line(out, message, "UTF-8", with_body=True)
                left -= 1
                if not left:
                    return
            out.say(f"{queue_text(queue)} print msg finished. status=NO_NEW_MSG, offset={last}")


@verb(
    "queryCq",
    TOPIC,
    click.option("-q", "--queue", "queue_id", type=Number(0), required=True, help="Id of the queue."),
    click.option("-i", "--index", type=Number(0), required=True, help="First queue offset."),
    click.option("-c", "--count", type=Number(1), default=10, show_default=True),
    click.option("-b", "--broker", metavar="HOST:PORT", help="Broker. [default: the first of the topic]"),
    click.option("-g", "--consumer", "group", help="Show which units match the subscription of this group."),
    table=VERBS,
)
async def query_units(
    admin: Any,
    out: Printer,
    topic: str,
    queue_id: int,
    index: int,
    count: int,
    broker: str | None,
    group: str | None,
) -> None:
    """Show units of a consume queue."""
    from pyledger.client.admin.admin import masters

    address = broker or next(iter(masters(await admin.topic_route(topic)).values()))
    header = QueryConsumeQueueRequestHeader(
        topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    found = QueueUnits.decode((await admin.request(address, RequestCode.QUERY_CONSUME_QUEUE, header)).body)
    rule = "=" * 38
    if found.subscription_data is not None:
        out.say("Subscription data: ")
        out.say(found.subscription_data.encode().decode())
        out.say(rule)
    if found.filter_data:
        out.say("Filter data: ")
        out.say(found.filter_data)
        out.say(rule)
    out.say("Queue data: ")
    out.say(f"max: {found.max_queue_index}, min: {found.min_queue_index}")
    out.say(rule)
    for number, unit in enumerate(found.queue_data or (), index):
        fields = {
            "physicOffset": unit.physic_offset,
            "physicSize": unit.physic_size,
            "tagsCode": unit.tags_code,
        }
        others = f"extendDataJson='null', bitMap='null', eval={shown(unit.eval)}, msg='null'"
        text = ", ".join(f"{name}={value}" for name, value in fields.items())
        out.say(f"idx: {number}")
        out.done(f"ConsumeQueueData{{{text}, {others}}}", index=number, **fields, eval=unit.eval)
        out.say(rule)


@verb(
    "sendMessage",
    TOPIC,
    click.option("-p", "--body", required=True, help="The body, as UTF-8."),
    click.option("-k", "--key", "keys", help="Its keys, separated by spaces."),
    click.option("-c", "--tags", "tag", help="Its tags."),
    click.option("-b", "--broker", "broker_name", help="Name of the broker."),
    click.option("-i", "--qid", "queue_id", type=Number(0), help="With -b: the queue."),
    click.option(
        "-m", "--msgTraceEnable", "trace", type=bool, help="Accepted and ignored.", metavar="true|false"
    ),
    table=VERBS,
)
async def send_message(
    admin: Any,
    out: Printer,
    topic: str,
    body: str,
    keys: str | None,
    tag: str | None,
    broker_name: str | None,
    queue_id: int | None,
    trace: bool | None,
) -> None:
    """Send a message."""
    from pyledger.client.producer.producer import AsyncProducer

    del trace
    if queue_id is not None and broker_name is None:
        raise WrongUseError("-i needs -b")
    message = Message(topic, body.encode(), tags=tag, keys=keys)
    async with AsyncProducer("TOOLS_PRODUCER", client=admin.client) as producer:
        queue = None
        if broker_name is not None:
            there = [one for one in await producer.queues(topic) if one.broker_name == broker_name]
            wanted = [one for one in there if queue_id in {None, one.queue_id}]
            if not wanted:
                raise NotFoundError(
                    "queue", f"{topic}/{broker_name}/{queue_id}", f"the broker has {len(there)}"
                )
            queue = wanted[0]
        sent = await producer.send(message, queue=queue)
    row = {
        "brokerName": sent.queue.broker_name,
        "queueId": sent.queue.queue_id,
        "status": sent.status.value,
        "msgId": sent.unique_key,
    }
    out.table("{brokerName:<32}  {queueId:<4}  {status:<20}    {msgId}", SENT, [row])


SENT = ("#Broker Name", "#QID", "#Send Result", "#MsgId")
