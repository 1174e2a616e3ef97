"""Topics of running brokers, ours or RocketMQ's: the ranges of their queues, and the rows of one range.

Pulls use the consumer group of RocketMQ's own tools. They commit no offset and join no group. If a broker
cannot be reached, its slaves are tried before a read fails.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa

from pyledger.client import AsyncPullConsumer, ReceivedMessage
from pyledger.client.blocking.base import background
from pyledger.client.consumer.pull_api import PullResult, PullStatus
from pyledger.config.client import ClientConfig, ConsumerConfig
from pyledger.errors import (
    BrokerError,
    DataLostError,
    NoRouteError,
    PyLedgerError,
    RemotingConnectError,
    RemotingError,
)
from pyledger.model.message import MessageQueue, QueueRange
from pyledger.model.tags import java_hash
from pyspark_pyledger.offsets import Offsets, QueueKey, label
from pyspark_pyledger.options import ReadOptions, is_wanted
from pyspark_pyledger.partitions import BrokerRange
from pyspark_pyledger.trigger_budget import shares

log = logging.getLogger("pyledger.spark")

GROUP = "TOOLS_CONSUMER"
PULL_COUNT = 1024
"""Messages to request in one pull; brokers return fewer."""
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
        self._authoritative: set[QueueKey] = set()
        self._has_seen = False
        self._queues: dict[QueueKey, MessageQueue] = {}
        """Every queue that a route has named so far."""
        self._addresses: dict[str, dict[int, str]] = {}
        """The last known addresses of their brokers, by broker name and id."""
        self.replaced: set[str] = set()
        """Always empty: a broker does not report that its log was replaced."""
        self.unavailable: dict[str, PyLedgerError] = {}
        """Brokers that did not answer at the last refresh, and why."""
        background().wait(self._consumer.start())

    def refresh(self) -> Mapping[QueueKey, QueueRange]:
        """Queue offsets that each wanted queue holds now.

        The last known route is used while name servers do not answer or list fewer queues than before: one
        that has just started knows no broker. A broker that does not answer is added to `unavailable`.

        Raises:
            RemotingError: no name server or no broker has ever answered.
        """
        background().wait(self._find())
        return self._ranges

    def is_authoritative(self, key: QueueKey) -> bool:
        """Return whether a master answered for a queue. A slave may lag."""
        return key in self._authoritative

    async def _find(self) -> None:
        await self._learn_queues()
        routes = self._consumer.client.routes
        for _topic, broker_name, _queue_id in self._queues:
            # The client forgets brokers that no route names for a while.
            known = routes.addresses.setdefault(broker_name, self._addresses.get(broker_name, {}))
            self._addresses[broker_name] = dict(known)
        answers = await asyncio.gather(
            *(self._span(queue) for queue in self._queues.values()), return_exceptions=True
        )
        self._ranges, self._authoritative, self.unavailable = {}, set(), {}
        for key, answer in zip(self._queues, answers, strict=True):
            if isinstance(answer, RemotingError):
                self.unavailable[key[1]] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                broker_id, self._ranges[key] = answer
                if broker_id == MASTER_ID:
                    self._authoritative.add(key)
        self._has_seen |= bool(self._ranges)
        if self.unavailable and not self._has_seen:
            raise next(iter(self.unavailable.values()))

    async def _learn_queues(self) -> None:
        """Add the routes that name servers report to those known before."""
        for topic in self._options.topics or ():
            try:
                queues = await self._consumer.queues(topic)
            except NoRouteError:
                log.info("no name server knows the topic %s yet", topic)
                continue
            except RemotingError as error:
                if not any(known == topic for known, _, _ in self._queues):
                    raise
                log.warning("no route for %s, using the last known one: %s", topic, error)
                continue
            for queue in queues:
                if is_wanted(self._options, queue.topic, queue.queue_id):
                    self._queues[queue.topic, queue.broker_name, queue.queue_id] = queue

    async def _span(self, queue: MessageQueue) -> tuple[int, QueueRange]:
        """Return the id of the broker that answered, and its range of a queue."""
        calls = self._consumer.client.calls

        async def request(broker_id: int) -> tuple[int, QueueRange]:
            address, _ = self._consumer.client.routes.reader(queue.broker_name, broker_id)
            low, high = await calls.min_offset(address, queue), await calls.max_offset(address, queue)
            return broker_id, QueueRange(low, high)

        return await _request_any(self._consumer, queue, request, _BrokerOrder())

    def offset_by_time(self, key: QueueKey, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at a time (ms) or later, or the queue's end."""
        topic, broker_name, queue_id = key
        queue = MessageQueue(topic, broker_name, queue_id)

        async def request(broker_id: int) -> int:
            address, _ = self._consumer.client.routes.reader(broker_name, broker_id)
            return await self._consumer.client.calls.offset_by_time(address, queue, timestamp_ms)

        found = background().wait(_request_any(self._consumer, queue, request, _BrokerOrder()))
        held = self._ranges[key]
        return min(max(found, held.min_offset), held.max_offset)

    def limit(self, starts: Offsets, ends: Offsets, rows: int | None, size_bytes: int | None) -> Offsets:
        """Return where a trigger of at most `rows` rows ends, shared among queues by their lag."""
        assert size_bytes is None, "checked with the options: brokers do not report sizes"
        if rows is None:
            return ends
        waiting = {key: max(0, end - starts.get(key, 0)) for key, end in sorted(ends.items())}
        return starts | {key: starts.get(key, 0) + count for key, count in shares(waiting, rows).items()}

    def plan(self, starts: Offsets, ends: Offsets) -> list[BrokerRange]:
        """Return a partition per queue, or more if the options require more."""
        options = self._options
        spans = {key: (starts.get(key, 0), end) for key, end in ends.items() if starts.get(key, 0) < end}
        total = sum(end - start for start, end in spans.values())
        most = options.max_records_per_partition or max(1, total)
        if options.min_partitions is not None and options.min_partitions > len(spans):
            most = min(most, max(1, total // options.min_partitions))
        return [
            BrokerRange(
                broker_name,
                topic,
                queue_id,
                low,
                min(low + most, end),
                tuple(sorted(self._addresses.get(broker_name, {}).items())),
            )
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
        suspend_timeout_ms: How long (ms) a pull may wait at a broker that has not reached the range's end.

    Raises:
        DataLostError: the broker no longer has part of the range, and failOnDataLoss is set.
        RemotingError: the broker and its slaves cannot be reached.
    """
    columns = [_column(field.name, options) for field in schema]
    rows: list[ReceivedMessage] = []
    order = _BrokerOrder(options)
    with _started(options, suspend_timeout_ms) as consumer:
        if part.addresses:
            consumer.client.routes.addresses[part.broker_name] = dict(part.addresses)
        offset = part.start
        while offset < part.end:
            found = background().wait(_pull(consumer, part.queue, offset, options, order))
            rows += [message for message in found.messages if part.start <= message.queue_offset < part.end]
            offset = _next_offset(part, offset, found, options)
            while len(rows) >= options.batch_rows or (rows and offset >= part.end):
                yield _batch(rows[: options.batch_rows], columns, schema)
                del rows[: options.batch_rows]


class _BrokerOrder:
    """The order in which to try brokers: the last that answered, then the master, or slaves if preferred."""

    def __init__(self, options: ReadOptions | None = None) -> None:
        self._slaves_first = options is not None and options.prefer_slave
        self._answered: int | None = None

    def of(self, broker_ids: Iterable[int]) -> list[int]:
        """Return the brokers of one name in this order."""
        ids = sorted(broker_ids, reverse=self._slaves_first)
        return sorted(ids, key=lambda broker_id: broker_id != self._answered)

    def on_response(self, broker_id: int) -> None:
        """Try this broker first from now on: others may be down and cost a timeout."""
        self._answered = broker_id


async def _pull(
    consumer: AsyncPullConsumer, queue: MessageQueue, offset: int, options: ReadOptions, order: _BrokerOrder
) -> PullResult:
    expression = options.tags or "*"

    async def request(broker_id: int) -> PullResult:
        return await consumer.pull(queue, offset, expression, count_max=PULL_COUNT, broker_id=broker_id)

    found = await _request_any(consumer, queue, request, order)
    if _advances(found, offset):
        return found
    # A slave may lag; only the master is sure to have the planned range.
    return await consumer.pull(
        queue, offset, expression, count_max=PULL_COUNT, broker_id=MASTER_ID, wait=True
    )


def _advances(found: PullResult, offset: int) -> bool:
    """Return whether a result has messages, or skips some that the filter rejects."""
    return found.next_offset > offset and found.status in (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE)


def _next_offset(part: BrokerRange, offset: int, found: PullResult, options: ReadOptions) -> int:
    """Return the offset of the next pull.

    Raises:
        DataLostError: the broker holds less than was planned, and failOnDataLoss is set.
    """
    name = label((part.topic, part.broker_name, part.queue_id))
    if _advances(found, offset):
        return found.next_offset
    if found.min_offset > offset:
        problem = f"begins at {found.min_offset}; [{offset}, {min(found.min_offset, part.end)}) was not read"
        reached = found.min_offset
    else:
        problem = f"ends at {found.max_offset}, below {part.end}"
        reached = part.end
    if options.fail_on_data_loss:
        raise DataLostError(name, problem)
    log.warning("%s %s; reading the data that exists", name, problem)
    return reached


async def _request_any(
    consumer: AsyncPullConsumer,
    queue: MessageQueue,
    request: Callable[[int], Awaitable[T]],
    order: _BrokerOrder,
) -> T:
    """Send a request to the brokers of one name until one answers it.

    If none does at the known addresses, the route is refreshed once: brokers may have moved.
    """
    routes = consumer.client.routes
    if not routes.addresses.get(queue.broker_name):
        await routes.refresh(queue.topic)
    known = dict(routes.addresses.get(queue.broker_name, {}))
    try:
        return await _request_known(consumer, queue, request, order)
    except RemotingError:
        with suppress(RemotingError):
            await routes.refresh(queue.topic)
        if routes.addresses.get(queue.broker_name, {}) == known:
            raise
    return await _request_known(consumer, queue, request, order)


async def _request_known(
    consumer: AsyncPullConsumer,
    queue: MessageQueue,
    request: Callable[[int], Awaitable[T]],
    order: _BrokerOrder,
) -> T:
    failure: RemotingError = RemotingConnectError(queue.broker_name, "no route names this broker")
    for broker_id in order.of(consumer.client.routes.addresses.get(queue.broker_name, {})):
        try:
            found = await request(broker_id)
        except RemotingError as error:
            log.warning("%s, trying another broker of its name: %s", queue.broker_name, error)
            # An error response is more specific than a failed connection.
            failure = failure if isinstance(failure, BrokerError) else error
        else:
            order.on_response(broker_id)
            return found
    failure.add_note(f"{label((queue.topic, queue.broker_name, queue.queue_id))}: no broker answered")
    raise failure


def _consumer(options: ReadOptions, config: ConsumerConfig | None = None) -> AsyncPullConsumer:
    assert options.name_servers is not None, "checked with the options"
    client = ClientConfig(access_key=options.access_key or "", secret_key=options.secret_key or "")
    return AsyncPullConsumer(GROUP, options.name_servers, client=client, config=config)


@contextmanager
def _started(options: ReadOptions, suspend_timeout_ms: int) -> Iterator[AsyncPullConsumer]:
    consumer = _consumer(options, ConsumerConfig(suspend_timeout_ms=suspend_timeout_ms))
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
    "tagsCode": lambda m: java_hash(m.tags or ""),
    "preparedTransactionOffset": lambda m: m.prepared_transaction_offset,
}


def _column(name: str, options: ReadOptions) -> Callable[[ReceivedMessage], Any]:
    if name == "body" and options.decompress:
        return lambda message: message.body
    return _COLUMNS[name]
