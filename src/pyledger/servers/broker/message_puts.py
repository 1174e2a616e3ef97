"""Stores the broker's messages and reports the outcome of each.

The outcome of a put is done when the configured durability is met. Requests that need a flush wait together,
and none holds up the event loop.

Source: RocketMQ broker/.../HookUtils.java; store/.../DefaultMessageStore.java, PutMessageStatus.java.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from pyledger.errors import (
    IllegalMessageError,
    MalformedBatchError,
    RecordTooLargeError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    StoreFullError,
)
from pyledger.model import names
from pyledger.model.message import Message, PutResult
from pyledger.model.sys_flag import TRANSACTION_MASK, TransactionType
from pyledger.net.deferred import Deferred, completed
from pyledger.protocol.broker.broker_stats import BrokerCounts
from pyledger.protocol.broker.delay_levels import Destination, delay_level, redirect_properties
from pyledger.protocol.broker.name_rules import is_internal_topic
from pyledger.protocol.broker.timer_messages import TimerProblem, TimerQueue, is_timed, timer_properties
from pyledger.servers.broker.addresses import address_of
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import StoredMessage
from pyledger.wire.remoting.native_codec import SendBatch

T = TypeVar("T")
DELAYED = (TransactionType.NONE, TransactionType.COMMIT)
"""Transaction types that may be delayed: not half messages."""
Arrived = Callable[[str, int, int, Mapping[str, str] | bytes | None], None]
"""Called for messages that can be read: topic, queue, its end, properties of a single one."""

POLL_REQUESTS = 8
"""Encoding this many answers takes about as long as a slave needs to report: poll it before they wait."""
PUT_OK = "PUT_OK"
FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
UNAVAILABLE = (StoreFullError, StoreFailedError, StoreClosedError)
"""The store takes no messages at the moment, or ever again."""


class Replication(Protocol):
    """What puts need of the replication to slaves."""

    late_status: str
    """Status of a put that is not durable in time."""

    def rejection(self) -> str | None:
        """Return the status with which puts are rejected now; None: they are taken."""

    def appended(self) -> None:
        """Notify the replication that the log has grown."""

    def poll_reports(self) -> None:
        """Process the reports that have arrived, without waiting."""

    def wait(self, end_offset: int, answer: Callable[[str], None], /) -> str | None:
        """Return the status once slaves have all below a physical offset (bytes); None: `answer` gets it."""


class PutOutcome(NamedTuple):
    """The outcome of a put."""

    status: str
    """Upstream's `PutMessageStatus`."""
    places: tuple[PutResult, ...] = ()
    """Offsets of the messages, if they are stored."""
    problem: str | None = None
    """The reason as text."""
    deliver_ms: int | None = None
    """When a timer message is due."""

    @property
    def ok(self) -> bool:
        """Whether the put is as durable as configured."""
        return self.status == PUT_OK

    @property
    def stored(self) -> bool:
        """Whether the message is in the log, though perhaps not on disk or at slaves in time."""
        return self.ok or bool(self.places)


Outcome = Deferred[PutOutcome]
ALL_WELL = PutOutcome(PUT_OK)


class MessagePuts:
    """Puts messages for every part of a broker."""

    def __init__(
        self,
        store: StoreEngine,
        arrived: Arrived,
        counts: BrokerCounts,
        timers: TimerQueue,
        now_ms: Callable[[], int],
        *,
        waiting_max: int = 10_000,
    ) -> None:
        """Store nothing yet.

        Args:
            store: The store of the messages.
            arrived: Called for messages that can be read.
            counts: Counts the puts.
            timers: The timer messages that wait.
            now_ms: The wall clock.
            waiting_max: Puts that may wait for a flush at once.
        """
        self._waiting_max = waiting_max
        self.waiting = 0
        """Puts that wait for a flush now."""
        self._store = store
        self._arrived = arrived
        self._counts = counts
        self._timers = timers
        self._now_ms = now_ms
        self.timer_stored: Callable[[], None] = lambda: None
        """Called when a timer message is stored."""
        self.leave: Callable[[int, Destination], None] = lambda _where, _meant_for: None
        """Called with the physical offset (bytes) of a delayed message, and its destination, before it is
        put there."""
        self.replication: Replication | None = None
        """Replicates puts to slaves; None: no replication."""

    @property
    def capacity(self) -> int:
        """How many more puts may wait for a flush."""
        return self._waiting_max - self.waiting

    def are_full(self) -> bool:
        """Return True when the queue of unflushed puts is full; senders must retry."""
        return self.waiting >= self._waiting_max

    def put(self, message: Message) -> Outcome:
        """Store a client's message; a delayed one waits in a system topic."""
        if is_internal_topic(message.topic):
            return self._rejected(IllegalMessageError(f"topic {message.topic} is the broker's own"))
        level = delay_level(message.properties)
        if message.sys_flag & TRANSACTION_MASK not in DELAYED:
            return self.put_as_it_is(message)
        if level:
            properties = redirect_properties(message.properties, message.topic, message.queue_id, level)
            message = replace(message, topic=names.SCHEDULE_TOPIC, queue_id=level - 1, properties=properties)
        elif is_timed(message.topic, message.properties, level):
            return self._put_timed(message)
        return self.put_as_it_is(message)

    def rejection(self) -> str | None:
        """Return the status with which puts are rejected now; None: they are taken."""
        return None if self.replication is None else self.replication.rejection()

    def _put_timed(self, message: Message) -> Outcome:
        plan = self._timers.plan(message.properties, self._now_ms())
        if plan is None:
            return self.put_as_it_is(message)
        if isinstance(plan, TimerProblem):
            return completed(PutOutcome(plan.status, problem=plan.problem))
        properties = timer_properties(message.properties, message.topic, message.queue_id, plan)
        timed = replace(message, topic=names.TIMER_TOPIC, queue_id=0, properties=properties)
        return self.put_as_it_is(timed).then(partial(self._timed, plan.deliver_ms))

    def _timed(self, deliver_ms: int, outcome: PutOutcome) -> PutOutcome:
        self.timer_stored()
        return outcome._replace(deliver_ms=deliver_ms)

    def put_as_it_is(self, message: Message) -> Outcome:
        """Store a message in its topic and queue; its properties do not delay it."""
        return self.put_placed(message)[1]

    def put_placed(self, message: Message) -> tuple[PutResult | None, Outcome]:
        """As `put_as_it_is`; return also the offsets of the message, None when it is not stored."""
        if (status := self.rejection()) is not None:
            return None, completed(PutOutcome(status))
        try:
            place = self._store.append(message)
        except StoreError as problem:
            return None, self._rejected(problem)
        return place, self._stored(message, (place,), message.properties)

    def complete_batch(self, batch: SendBatch, encode: Callable[[PutOutcome], T]) -> T | Deferred[T]:
        """Complete sends that native code has appended together: return what `encode` makes of their outcome.

        `encode` must have no other effect: it is called early, while a disk or a slave is at work.
        """
        requests = len(batch.requests)
        self._counts.count_put(batch.topic, batch.message_count, batch.size_bytes, requests)
        on_durable = partial(self._arrived, batch.topic, batch.queue_id, batch.queue_end, batch.properties)
        outcome = self._settle(batch.end_offset, (), on_durable, requests)
        if isinstance(outcome, PutOutcome):
            return encode(outcome)
        answer = prepared(encode)
        if outcome.flushed and self.replication is not None and requests >= POLL_REQUESTS:
            self.replication.poll_reports()
        return outcome.then(answer)

    def put_batch(self, batch: Message) -> Outcome:
        """Store the messages of a client's batch body, each as a message of its own."""
        if (status := self.rejection()) is not None:
            return completed(PutOutcome(status))
        try:
            places = self._store.append_encoded_batch(batch)
        except (StoreError, MalformedBatchError) as problem:
            return self._rejected(problem)
        return self._stored(batch, tuple(places), None)

    def put_inner_batch(self, batch: Message, count: int) -> Outcome:
        """Store a client's batch body of `count` messages as one record, in a queue of batches."""
        if (status := self.rejection()) is not None:
            return completed(PutOutcome(status))
        try:
            place = self._store.append_inner_batch(batch)
        except (StoreError, MalformedBatchError) as problem:
            return self._rejected(problem)
        return self._stored(batch, (place,), None, count)

    def _rejected(self, problem: Exception) -> Outcome:
        self._counts.puts_failed += 1
        return completed(rejected(problem))

    def _stored(
        self,
        sent: Message,
        places: tuple[PutResult, ...],
        properties: Mapping[str, str] | None,
        count: int = 1,
    ) -> Outcome:
        """Complete a put: at once, or after its flush if its sender waits for that."""
        topic, last = sent.topic, places[-1]
        messages, size_bytes = count, last.size_bytes
        if len(places) > 1:
            messages, size_bytes = len(places), sum(place.size_bytes for place in places)
        self._counts.count_put(topic, messages, size_bytes)
        on_durable = partial(self._arrived, topic, sent.queue_id, last.queue_offset + count, properties)
        waits = sent.properties.get(names.WAIT) != "false"
        outcome = self._settle(last.physical_offset + last.size_bytes, places, on_durable, waits=waits)
        return completed(outcome) if isinstance(outcome, PutOutcome) else outcome

    def _settle(
        self,
        end_offset: int,
        places: tuple[PutResult, ...],
        on_durable: Callable[[], None],
        requests: int = 1,
        *,
        waits: bool = True,
    ) -> "PutOutcome | PendingPut":
        """Return the outcome of a put if it is known: all below `end_offset` is as durable as configured.

        Args:
            end_offset: Of the put, a physical offset in bytes.
            places: Offsets of its messages.
            on_durable: Called when it is durable here and can be read.
            requests: Number of requests in the put.
            waits: Whether the sender waits for that; otherwise the put has succeeded already.
        """
        replication, flush = self.replication, self._store.until_durable(end_offset)
        if flush is None and replication is None:
            on_durable()
            return PutOutcome(PUT_OK, places)
        pending = PendingPut(self, places, on_durable, requests)
        if replication is not None and waits:
            pending.status = replication.wait(end_offset, pending.on_replicated)
        if flush is None:
            if replication is not None:
                replication.appended()
            on_durable()
            if pending.status is not None:
                return PutOutcome(pending.status, places)
            pending.flushed = True
        self.waiting += requests
        pending.waits = True
        if flush is not None:
            flush.add_done_callback(pending.on_flushed)
        return pending if waits else PutOutcome(PUT_OK, places)

    def release(self, requests: int) -> None:
        """Subtract requests that no longer wait."""
        self.waiting -= requests


class PendingPut(Deferred[PutOutcome]):
    """The outcome of a put that waits for its flush, for slaves, or for both.

    Reports of slaves are plain calls, so a report is processed and answered in one iteration of the loop.
    """

    __slots__ = ("_on_durable", "_places", "_puts", "_requests", "flushed", "status", "waits")

    def __init__(
        self,
        puts: MessagePuts,
        places: tuple[PutResult, ...],
        on_durable: Callable[[], None],
        requests: int,
    ) -> None:
        """Wait for everything."""
        super().__init__()
        self._puts = puts
        self._places = places
        self._on_durable = on_durable
        self._requests = requests
        self.waits = False
        """Whether it counts as waiting."""
        self.flushed = False
        """Whether it is as durable here as configured."""
        self.status: str | None = PUT_OK
        """The status of the wait for slaves; None: it has not ended."""

    def on_flushed(self, flush: asyncio.Future[bool]) -> None:
        """Take the end of the flush: durable, late, or failed."""
        replication = self._puts.replication
        if replication is not None:
            replication.appended()
        ended = flush_outcome(self._places, self._on_durable, flush)
        if replication is not None and isinstance(ended, PutOutcome) and ended.status == FLUSH_DISK_TIMEOUT:
            ended = ended._replace(status=replication.late_status)
        if not isinstance(ended, PutOutcome) or not ended.ok:
            self._end(ended)
        elif self.status is None:
            self.flushed = True
        else:
            self._end(ended._replace(status=self.status))

    def on_replicated(self, status: str) -> None:
        """Take the end of the wait for slaves."""
        self.status = status
        if self.flushed and self.waits:
            self._end(PutOutcome(status, self._places))

    def _end(self, ended: PutOutcome | BaseException | None) -> None:
        self._puts.release(self._requests)
        if isinstance(ended, PutOutcome):
            self.set_result(ended)
        elif ended is not None:
            self.set_exception(ended)


def prepared(encode: Callable[[PutOutcome], T]) -> Callable[[PutOutcome], T]:
    """Encode the answer to `ALL_WELL` now; the result encodes only another outcome."""
    answer = encode(ALL_WELL)
    return lambda outcome: answer if outcome == ALL_WELL else encode(outcome)


def copy_of(
    found: StoredMessage, topic: str, queue_id: int, properties: Mapping[str, str] | None = None
) -> Message:
    """Return a stored message as one to store in another queue, with other properties if given."""
    return Message(
        topic,
        found.body,
        queue_id,
        properties=found.properties if properties is None else properties,
        flag=found.flag,
        sys_flag=found.sys_flag,
        born_timestamp_ms=found.born_timestamp,
        born_host=address_of(found.born_host),
        reconsume_times=found.reconsume_times,
    )


def real_place(found: StoredMessage) -> dict[str, str]:
    """Return id, topic and queue of a delayed message's destination, for a log line."""
    wanted = (found.properties.get(name, "")[:100] for name in (names.REAL_TOPIC, names.REAL_QUEUE_ID))
    return dict(zip(("id", "topic", "queue"), (found.msg_id, *wanted), strict=True))


def rejected(problem: Exception) -> PutOutcome:
    """Return the outcome of a put that the store has rejected."""
    if isinstance(problem, UNAVAILABLE):
        return PutOutcome("SERVICE_NOT_AVAILABLE", problem=f"service not available now: {problem}")
    if isinstance(problem, IllegalMessageError | MalformedBatchError | RecordTooLargeError):
        return PutOutcome("MESSAGE_ILLEGAL", problem=f"the message is illegal: {problem}")
    return PutOutcome("UNKNOWN_ERROR", problem=str(problem))


def flush_outcome(
    places: tuple[PutResult, ...], on_durable: Callable[[], None], flush: asyncio.Future[bool]
) -> PutOutcome | BaseException | None:
    """Return the outcome of a put whose flush has ended; None: it was cancelled, no sender waits."""
    if flush.cancelled():
        return None
    problem = flush.exception()
    if isinstance(problem, StoreError):
        return rejected(problem)
    if problem is not None:
        return problem
    if flush.result():
        on_durable()
        return PutOutcome(PUT_OK, places)
    # The message is stored: held pulls find it in their next sweep.
    return PutOutcome(FLUSH_DISK_TIMEOUT, places)
