"""The one way of a broker's messages into its store: what became of each, and who is told of it.

A put is answered when the configured durability is met. Where that takes a flush the outcome is a future, so
that requests wait together and none holds up the event loop.

Source: RocketMQ broker/.../HookUtils.java; store/.../DefaultMessageStore.java, PutMessageStatus.java.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

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
from pyledger.net.deferred import DeferredResponse
from pyledger.protocol.broker.broker_stats import BrokerCounts
from pyledger.protocol.broker.delay_levels import Destination, delay_level, redirect_properties
from pyledger.protocol.broker.name_rules import is_internal_topic
from pyledger.protocol.broker.timer_messages import TimerProblem, TimerQueue, is_timed, timer_properties
from pyledger.servers.broker.addresses import address_of
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import StoredMessage
from pyledger.wire.remoting.native_codec import SendBatch

T = TypeVar("T")
L = TypeVar("L", bound="asyncio.Future[Any] | DeferredResponse[Any]")
DELAYED = (TransactionType.NONE, TransactionType.COMMIT)
"""What may be delayed: not the halves of transactions."""
Arrived = Callable[[str, int, int, Mapping[str, str] | bytes | None], None]
"""Told of messages that can be read: topic, queue, its end, properties of a lone one, perhaps as stored."""

POLL_REQUESTS = 8
"""Encoding this many answers takes about as long as a slave needs to report: poll it before they wait."""
PUT_OK = "PUT_OK"
FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
UNAVAILABLE = (StoreFullError, StoreFailedError, StoreClosedError)
"""The store takes no messages at the moment, or ever again."""


class Replication(Protocol):
    """What a master's HA service is to puts."""

    late_status: str
    """What became of a put that is not durable in time, in upstream's words."""

    def rejection(self) -> str | None:
        """Why no put may be taken now, in upstream's words; None: it may."""

    def appended(self) -> None:
        """Bytes of the log can be sent to slaves."""

    def poll_reports(self) -> None:
        """Process the reports that have arrived, without waiting."""

    def wait(self, end_offset: int, answer: Callable[[str], None], /) -> str | None:
        """How the wait for slaves ended that shall have all below a physical offset (bytes).

        None: `answer` will be told.
        """


class PutOutcome(NamedTuple):
    """How a put went."""

    status: str
    """Upstream's word for it."""
    places: tuple[PutResult, ...] = ()
    """Where the messages stand, if they were stored."""
    problem: str | None = None
    """Text for people."""
    deliver_ms: int | None = None
    """When a timer message is due."""

    @property
    def ok(self) -> bool:
        """Whether all is as configured."""
        return self.status == PUT_OK

    @property
    def stored(self) -> bool:
        """Whether the message is in the log, though perhaps not on disk, or not on slaves, in time."""
        return self.ok or bool(self.places)


Outcome = PutOutcome | asyncio.Future[PutOutcome]
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
        """Take the store, and what puts have to do with.

        Args:
            store: Where messages are put.
            arrived: Told of messages that can be read.
            counts: Where puts are counted.
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
        """Told of timer messages that are stored."""
        self.leave: Callable[[int, Destination], None] = lambda _where, _meant_for: None
        """Told of what has waited at a physical offset (bytes), before it is put elsewhere, and where it is
        meant to go in the end."""
        self.replication: Replication | None = None
        """Who brings what is put to slaves."""

    @property
    def capacity(self) -> int:
        """How many more puts may wait for a flush."""
        return self._waiting_max - self.waiting

    def are_full(self) -> bool:
        """Whether so many puts wait that the flush cannot keep up: senders shall come back later."""
        return self.capacity <= 0

    def put(self, message: Message) -> Outcome:
        """Store a client's message; one that asks for a delay waits in a topic of the system."""
        if is_internal_topic(message.topic):
            return self._refused(IllegalMessageError(f"topic {message.topic} is the broker's own"))
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
        """Why no put is taken now, in upstream's words: too few slaves are in sync. None: it is."""
        return None if self.replication is None else self.replication.rejection()

    def _put_timed(self, message: Message) -> Outcome:
        plan = self._timers.plan(message.properties, self._now_ms())
        if plan is None:
            return self.put_as_it_is(message)
        if isinstance(plan, TimerProblem):
            return PutOutcome(plan.status, problem=plan.problem)
        properties = timer_properties(message.properties, message.topic, message.queue_id, plan)
        timed = replace(message, topic=names.TIMER_TOPIC, queue_id=0, properties=properties)
        return after(self.put_as_it_is(timed), partial(self._timed, plan.deliver_ms))

    def _timed(self, deliver_ms: int, outcome: PutOutcome) -> PutOutcome:
        self.timer_stored()
        return outcome._replace(deliver_ms=deliver_ms)

    def put_as_it_is(self, message: Message) -> Outcome:
        """Store a message where it says, whatever its properties ask for."""
        return self.put_placed(message)[1]

    def put_placed(self, message: Message) -> tuple[PutResult | None, Outcome]:
        """As `put_as_it_is`; where the message stands is known at once, None when it is not stored."""
        if (status := self.rejection()) is not None:
            return None, PutOutcome(status)
        try:
            place = self._store.append(message)
        except StoreError as problem:
            return None, self._refused(problem)
        return place, self._stored(message, (place,), message.properties)

    def complete_batch(self, batch: SendBatch, then: Callable[[PutOutcome], T]) -> T | DeferredResponse[T]:
        """Complete sends that native code has appended together; `then` makes an answer of their outcome."""
        self._counts.count_put(batch.topic, batch.message_count, batch.size_bytes, len(batch.requests))
        tell = partial(self._arrived, batch.topic, batch.queue_id, batch.queue_end, batch.properties)
        answer = PreparedAnswer(then)
        return self._settled(batch.end_offset, (), tell, answer, DeferredResponse, len(batch.requests))

    def put_batch(self, batch: Message) -> Outcome:
        """Store the messages of a client's batch body, each as a message of its own."""
        if (status := self.rejection()) is not None:
            return PutOutcome(status)
        try:
            places = self._store.append_encoded_batch(batch)
        except (StoreError, MalformedBatchError) as problem:
            return self._refused(problem)
        return self._stored(batch, tuple(places), None)

    def put_inner_batch(self, batch: Message, count: int) -> Outcome:
        """Store a client's batch body of `count` messages as one record, in a queue of batches."""
        if (status := self.rejection()) is not None:
            return PutOutcome(status)
        try:
            place = self._store.append_inner_batch(batch)
        except (StoreError, MalformedBatchError) as problem:
            return self._refused(problem)
        return self._stored(batch, (place,), None, count)

    def _refused(self, problem: Exception) -> PutOutcome:
        self._counts.puts_failed += 1
        return refused(problem)

    def _stored(
        self,
        sent: Message,
        places: tuple[PutResult, ...],
        properties: Mapping[str, str] | None,
        count: int = 1,
    ) -> Outcome:
        """Tell of a put at once, or when its flush is through, unless its sender does not wait for that."""
        topic, last = sent.topic, places[-1]
        messages, size_bytes = count, last.size_bytes
        if len(places) > 1:
            messages, size_bytes = len(places), sum(place.size_bytes for place in places)
        self._counts.count_put(topic, messages, size_bytes)
        tell = partial(self._arrived, topic, sent.queue_id, last.queue_offset + count, properties)
        waits = sent.properties.get(names.WAIT) != "false"
        end_offset = last.physical_offset + last.size_bytes
        return self._settled(end_offset, places, tell, itself, new_future, waits=waits)

    def _settled(
        self,
        end_offset: int,
        places: tuple[PutResult, ...],
        tell: Callable[[], None],
        then: Callable[[PutOutcome], T],
        new_late: Callable[[], L],
        requests: int = 1,
        *,
        waits: bool = True,
    ) -> T | L:
        """`then` of the outcome, once all below `end_offset` is as durable as it should be, and on slaves.

        `tell` is called when it is durable here: messages can be read then. Where the outcome is not
        known yet, a new `late` is returned and gets it.
        """
        replication, flush = self.replication, self._store.until_durable(end_offset)
        pending = PendingPut(self, places, tell, then, requests)
        if replication is not None and waits:
            pending.status = replication.wait(end_offset, pending.replicated)
        if flush is None:
            if replication is not None:
                replication.appended()
            tell()
            pending.flushed = True
            if pending.status is not None:
                return then(PutOutcome(pending.status, places))
        if isinstance(then, PreparedAnswer):
            then.prepare()
            if flush is None and replication is not None and requests >= POLL_REQUESTS:
                replication.poll_reports()
        if pending.flushed and pending.status is not None:
            return then(PutOutcome(pending.status, places))
        self.waiting += requests
        late = pending.late = new_late()
        if flush is not None:
            flush.add_done_callback(pending.flush_ended)
        return late if waits else then(PutOutcome(PUT_OK, places))

    def settle(self, requests: int) -> None:
        """So many requests wait no longer."""
        self.waiting -= requests


class PendingPut(Generic[T]):
    """A put that waits: for its flush, for slaves, or for both.

    Slaves' answers come by plain calls: a report and the answers to senders are one turn of the loop.
    """

    __slots__ = ("_places", "_puts", "_requests", "_tell", "_then", "flushed", "late", "status")

    def __init__(
        self,
        puts: MessagePuts,
        places: tuple[PutResult, ...],
        tell: Callable[[], None],
        then: Callable[[PutOutcome], T],
        requests: int,
    ) -> None:
        """Nothing is known yet."""
        self._puts = puts
        self._places = places
        self._tell = tell
        self._then = then
        self._requests = requests
        self.late: asyncio.Future[T] | DeferredResponse[T] | None = None
        self.flushed = False
        """Whether it is as durable here as it should be."""
        self.status: str | None = PUT_OK
        """How the wait for slaves ended; None: it has not."""

    def flush_ended(self, flush: asyncio.Future[bool]) -> None:
        """The flush is through, late, or has failed."""
        replication = self._puts.replication
        if replication is not None:
            replication.appended()
        ended = flush_outcome(self._places, self._tell, flush)
        if replication is not None and isinstance(ended, PutOutcome) and ended.status == FLUSH_DISK_TIMEOUT:
            ended = ended._replace(status=replication.late_status)
        if not isinstance(ended, PutOutcome) or not ended.ok:
            self._end(ended)
        elif self.status is None:
            self.flushed = True
        else:
            self._end(ended._replace(status=self.status))

    def replicated(self, status: str) -> None:
        """The wait for slaves ended so."""
        self.status = status
        if self.flushed and self.late is not None:
            self._end(PutOutcome(status, self._places))

    def _end(self, ended: PutOutcome | BaseException | None) -> None:
        late = self.late
        assert late is not None
        self._puts.settle(self._requests)
        if late.done() or ended is None:
            return
        if not isinstance(ended, PutOutcome):
            late.set_exception(ended)
            return
        try:
            late.set_result(self._then(ended))
        except Exception as error:  # noqa: BLE001 - whoever awaits the future gets it
            late.set_exception(error)


class PreparedAnswer(Generic[T]):
    """An answer that is made before all is known to have gone well, while a disk or a slave is at work."""

    __slots__ = ("_prepared", "_then")

    def __init__(self, then: Callable[[PutOutcome], T]) -> None:
        """Take what makes the answer; it must have no other effect."""
        self._then = then
        self._prepared: T | None = None

    def prepare(self) -> None:
        """Make the answer to `ALL_WELL`."""
        self._prepared = self._then(ALL_WELL)

    def __call__(self, outcome: PutOutcome) -> T:
        """The answer."""
        if self._prepared is not None and outcome == ALL_WELL:
            return self._prepared
        return self._then(outcome)


def new_future() -> "asyncio.Future[PutOutcome]":
    """A future of the running event loop."""
    return asyncio.get_running_loop().create_future()


def itself(outcome: PutOutcome) -> PutOutcome:
    """An outcome as it is."""
    return outcome


def copy_of(
    found: StoredMessage, topic: str, queue_id: int, properties: Mapping[str, str] | None = None
) -> Message:
    """A stored message, to be stored again at another place; with other properties, if given."""
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
    """Where a message that waits says to go, for the log."""
    wanted = (found.properties.get(name, "")[:100] for name in (names.REAL_TOPIC, names.REAL_QUEUE_ID))
    return dict(zip(("id", "topic", "queue"), (found.msg_id, *wanted), strict=True))


async def settled(outcome: Outcome) -> PutOutcome:
    """How a put went, when that is known."""
    return outcome if isinstance(outcome, PutOutcome) else await outcome


def refused(problem: Exception) -> PutOutcome:
    """The outcome of a put that the store did not take."""
    if isinstance(problem, UNAVAILABLE):
        return PutOutcome("SERVICE_NOT_AVAILABLE", problem=f"service not available now: {problem}")
    if isinstance(problem, IllegalMessageError | MalformedBatchError | RecordTooLargeError):
        return PutOutcome("MESSAGE_ILLEGAL", problem=f"the message is illegal: {problem}")
    return PutOutcome("UNKNOWN_ERROR", problem=str(problem))


def flush_outcome(
    places: tuple[PutResult, ...], tell: Callable[[], None], flush: asyncio.Future[bool]
) -> PutOutcome | BaseException | None:
    """How a put went whose flush has ended: in time, late, or for good. None: nobody waits any more."""
    if flush.cancelled():
        return None
    problem = flush.exception()
    if isinstance(problem, StoreError):
        return refused(problem)
    if problem is not None:
        return problem
    if flush.result():
        tell()
        return PutOutcome(PUT_OK, places)
    # It is stored, so pulls will meet it at the latest when they look by themselves.
    return PutOutcome(FLUSH_DISK_TIMEOUT, places)


def after(outcome: Outcome, then: Callable[[PutOutcome], T]) -> T | asyncio.Future[T]:
    """`then` of an outcome: now, or a future where it has to wait."""
    if isinstance(outcome, PutOutcome):
        return then(outcome)
    result: asyncio.Future[T] = outcome.get_loop().create_future()

    def done(ended: asyncio.Future[PutOutcome]) -> None:
        if result.done():
            return
        if ended.cancelled():
            result.cancel()
            return
        try:
            result.set_result(then(ended.result()))
        except Exception as error:  # noqa: BLE001 - whoever awaits the result gets it
            result.set_exception(error)

    outcome.add_done_callback(done)
    return result
