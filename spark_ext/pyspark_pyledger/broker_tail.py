"""Topics at brokers that run, ours or RocketMQ's: what their queues hold, and the rows of a range of one.

Pulls go in the name of the group that RocketMQ's own tools use: no offset is committed, nobody joins a group.
A broker that cannot be reached is asked again at its other addresses, its slaves, before a read fails.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from pyledger.client import AsyncPullConsumer, ReceivedMessage
from pyledger.client.background import background
from pyledger.client.pulling import PullResult, PullStatus
from pyledger.config.client import ClientConfig
from pyledger.errors import (
    BrokerError,
    DataLostError,
    NoRouteError,
    RemotingConnectError,
    RemotingError,
)
from pyledger.message import MessageQueue, QueueRange, tags_code
from pyspark_pyledger.options import ReadOptions, is_wanted
from pyspark_pyledger.partitions import BrokerRange
from pyspark_pyledger.positions import Offsets, QueueKey, label
from pyspark_pyledger.shares import shares

log = logging.getLogger("pyledger.spark")

GROUP = "TOOLS_CONSUMER"
PULL_COUNT = 1024
"""Messages of a pull; brokers give fewer."""
MASTER_ID = 0
SUSPEND_TIMEOUT_MS = 15_000
TOPIC_BYTES_V1 = 127
"""Records of a longer topic have the second layout."""

T = TypeVar("T")


class BrokerTail:
    """Topics that a read or a stream follows at brokers. Used by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._consumer = _consumer(options)
        self._ranges: dict[QueueKey, QueueRange] = {}
        self.replaced: set[str] = set()
        """Always empty: a broker does not tell."""
        background().wait(self._consumer.start())

    def refresh(self) -> Mapping[QueueKey, QueueRange]:
        """Queue offsets that each wanted queue holds now.

        Raises:
            RemotingError: a broker and its slaves cannot be reached, or no name server.
        """
        found = background().wait(self._find())
        # A slave that answers for its master may be behind it.
        self._ranges = {
            key: QueueRange(low, max(high, self._ranges[key].max_offset if key in self._ranges else 0))
            for key, (low, high) in found.items()
        }
        return self._ranges

    async def _find(self) -> dict[QueueKey, tuple[int, int]]:
        queues: list[MessageQueue] = []
        for topic in self._options.topics or ():
            try:
                queues += await self._consumer.queues(topic)
            except NoRouteError:
                log.info("no name server knows the topic %s yet", topic)
        wanted = [queue for queue in queues if is_wanted(self._options, queue.topic, queue.queue_id)]
        spans = await asyncio.gather(*(self._span(queue) for queue in wanted))
        return {
            (queue.topic, queue.broker_name, queue.queue_id): span
            for queue, span in zip(wanted, spans, strict=True)
        }

    async def _span(self, queue: MessageQueue) -> tuple[int, int]:
        calls = self._consumer.client.calls

        async def ask(broker_id: int) -> tuple[int, int]:
            address, _ = self._consumer.client.routes.reader(queue.broker_name, broker_id)
            return await calls.min_offset(address, queue), await calls.max_offset(address, queue)

        return await _ask_any(self._consumer, queue, ask, _Order())

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""
        topic, broker_name, queue_id = key
        queue = MessageQueue(topic, broker_name, queue_id)

        async def ask(broker_id: int) -> int:
            address, _ = self._consumer.client.routes.reader(broker_name, broker_id)
            return await self._consumer.client.calls.offset_by_time(address, queue, timestamp_ms)

        found = background().wait(_ask_any(self._consumer, queue, ask, _Order()))
        held = self._ranges[key]
        return min(max(found, held.min_offset), held.max_offset)

    def cut(self, starts: Offsets, ends: Offsets, rows: int | None, size_bytes: int | None) -> Offsets:
        """Where a trigger of so many rows ends: queues share it by what waits in them."""
        assert size_bytes is None, "checked with the options: brokers do not tell sizes"
        if rows is None:
            return ends
        waiting = {key: max(0, end - starts.get(key, 0)) for key, end in sorted(ends.items())}
        return starts | {key: starts.get(key, 0) + count for key, count in shares(waiting, rows).items()}

    def plan(self, starts: Offsets, ends: Offsets) -> list[BrokerRange]:
        """One partition for each queue, or more where options want more."""
        options = self._options
        spans = {key: (starts.get(key, 0), end) for key, end in ends.items() if starts.get(key, 0) < end}
        total = sum(end - start for start, end in spans.values())
        most = options.max_records_per_partition or max(1, total)
        if options.min_partitions is not None and options.min_partitions > len(spans):
            most = min(most, max(1, total // options.min_partitions))
        return [
            BrokerRange(broker_name, topic, queue_id, low, min(low + most, end))
            for (topic, broker_name, queue_id), (start, end) in sorted(spans.items())
            for low in range(start, end, most)
        ]

    def close(self) -> None:
        """Close the connections."""
        background().wait(self._consumer.close())


def read_range(
    part: BrokerRange, schema: Any, options: ReadOptions, *, suspend_timeout_ms: int = SUSPEND_TIMEOUT_MS
) -> Iterator[Any]:
    """The rows of one range as Arrow record batches with exactly this schema.

    Args:
        part: From a plan.
        schema: Columns, in order.
        options: Of the read.
        suspend_timeout_ms: How long (ms) a broker is waited for that has less than it said.

    Raises:
        DataLostError: the broker does not have some of it any more, and that matters.
        RemotingError: the broker and its slaves cannot be reached.
    """
    columns = [_column(field.name, options) for field in schema]
    rows: list[ReceivedMessage] = []
    order = _Order(options)
    with _started(options, suspend_timeout_ms) as consumer:
        offset = part.start
        while offset < part.end:
            found = background().wait(_pull(consumer, part.queue, offset, options, order))
            rows += [message for message in found.messages if part.start <= message.queue_offset < part.end]
            offset = _next_offset(part, offset, found, options)
            while len(rows) >= options.batch_rows or (rows and offset >= part.end):
                yield _batch(rows[: options.batch_rows], columns, schema)
                del rows[: options.batch_rows]


class _Order:
    """Whom to ask first: the master, or slaves where they are preferred, but then who answered last."""

    def __init__(self, options: ReadOptions | None = None) -> None:
        self._slaves_first = options is not None and options.prefer_slave
        self._answered: int | None = None

    def of(self, broker_ids: Iterable[int]) -> list[int]:
        """Brokers of one name, in this order."""
        ids = sorted(broker_ids, reverse=self._slaves_first)
        return sorted(ids, key=lambda broker_id: broker_id != self._answered)

    def note(self, broker_id: int) -> None:
        """This one answered; another may not be there, and let callers wait."""
        self._answered = broker_id


async def _pull(
    consumer: AsyncPullConsumer, queue: MessageQueue, offset: int, options: ReadOptions, order: _Order
) -> PullResult:
    expression = options.tags or "*"

    async def ask(broker_id: int) -> PullResult:
        return await consumer.pull(queue, offset, expression, count_max=PULL_COUNT, broker_id=broker_id)

    found = await _ask_any(consumer, queue, ask, order)
    if _leads_on(found, offset):
        return found
    # A slave may be behind, whatever it says; the master has what was promised.
    return await consumer.pull(
        queue, offset, expression, count_max=PULL_COUNT, broker_id=MASTER_ID, wait=True
    )


def _leads_on(found: PullResult, offset: int) -> bool:
    """Whether an answer has messages, or leads past some that are not wanted."""
    return found.next_offset > offset and found.status in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE)


def _next_offset(part: BrokerRange, offset: int, found: PullResult, options: ReadOptions) -> int:
    """Where to go on behind an answer.

    Raises:
        DataLostError: the broker holds less than it said, and that matters.
    """
    name = label((part.topic, part.broker_name, part.queue_id))
    if _leads_on(found, offset):
        return found.next_offset
    if found.min_offset > offset:
        problem = f"begins at {found.min_offset}; [{offset}, {min(found.min_offset, part.end)}) was not read"
        reached = found.min_offset
    else:
        problem = f"ends at {found.max_offset}, below {part.end}"
        reached = part.end
    if options.fail_on_data_loss:
        raise DataLostError(name, problem)
    log.warning("%s %s; going on with what is there", name, problem)
    return reached


async def _ask_any(
    consumer: AsyncPullConsumer,
    queue: MessageQueue,
    ask: Callable[[int], Awaitable[T]],
    order: _Order,
) -> T:
    """Ask a broker, and when it is not there, or does not know the topic yet, the others of its name."""
    routes = consumer.client.routes
    if queue.broker_name not in routes.addresses:
        await routes.refresh(queue.topic)
    failure: RemotingError = RemotingConnectError(queue.broker_name, "no route names this broker")
    for broker_id in order.of(routes.addresses.get(queue.broker_name, {})):
        try:
            found = await ask(broker_id)
        except RemotingError as error:
            log.warning("%s, asking another broker of its name: %s", queue.broker_name, error)
            # What a broker answered says more than that another was not there.
            failure = failure if isinstance(failure, BrokerError) else error
        else:
            order.note(broker_id)
            return found
    failure.add_note(f"{label((queue.topic, queue.broker_name, queue.queue_id))}: no broker answered for it")
    raise failure


def _consumer(options: ReadOptions, **settings: Any) -> AsyncPullConsumer:
    assert options.name_servers is not None, "checked with the options"
    client = ClientConfig(access_key=options.access_key or "", secret_key=options.secret_key or "")
    return AsyncPullConsumer(GROUP, options.name_servers, client=client, **settings)


@contextmanager
def _started(options: ReadOptions, suspend_timeout_ms: int) -> Iterator[AsyncPullConsumer]:
    consumer = _consumer(options, suspend_timeout_ms=suspend_timeout_ms)
    background().wait(consumer.start())
    try:
        yield consumer
    finally:
        background().wait(consumer.close())


def _batch(rows: list[ReceivedMessage], columns: list[Callable[[ReceivedMessage], Any]], schema: Any) -> Any:
    arrays = [pa.array(map(column, rows), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_COLUMNS: dict[str, Callable[[ReceivedMessage], Any]] = {
    "topic": lambda m: m.topic,
    "queueId": lambda m: m.queue_id,
    "queueOffset": lambda m: m.queue_offset,
    "storeTimestamp": lambda m: m.store_timestamp * 1000,
    "bornTimestamp": lambda m: m.born_timestamp * 1000,
    "tags": lambda m: m.tags,
    "keys": lambda m: m.keys,
    "body": lambda m: m.stored_body,
    "properties": lambda m: list(m.properties.items()),
    "physicalOffset": lambda m: m.physical_offset,
    "storeSize": lambda m: m.store_size,
    "layout": lambda m: 1 if len(m.topic.encode()) <= TOPIC_BYTES_V1 else 2,
    "flag": lambda m: m.flag,
    "sysFlag": lambda m: m.sys_flag,
    "reconsumeTimes": lambda m: m.reconsume_times,
    "bornHost": lambda m: m.born_host,
    "storeHost": lambda m: m.store_host,
    "msgId": lambda m: m.msg_id,
    "bodyCRC": lambda m: m.body_crc,
    "bodyLength": lambda m: len(m.stored_body),
    "tagsCode": lambda m: tags_code(m.tags or ""),
    "preparedTransactionOffset": lambda m: m.prepared_transaction_offset,
}


def _column(name: str, options: ReadOptions) -> Callable[[ReceivedMessage], Any]:
    if name == "body" and options.decompress:
        return lambda message: message.body
    return _COLUMNS[name]
