"""Stores half messages and their ends, and checks open transactions with their producers.

What a round of checks has put back is made durable before the offsets that pass it are committed.

Source: RocketMQ broker/.../TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java,
TransactionalOpBatchService.java, AbstractTransactionalMessageCheckListener.java.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyledger.config.delivery import DeliveryConfig
from pyledger.errors import PyLedgerError, RemotingError, StoreError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.message import Message, PutResult
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.deferred import completed
from pyledger.net.remoting.connection import Connection
from pyledger.protocol.broker.delay_levels import Destination, restore
from pyledger.protocol.broker.rejection import Rejection
from pyledger.protocol.broker.transaction import (
    HOUR_MS,
    OP_BATCH_MAX,
    OP_TAG,
    CheckRound,
    EndedHalfMessages,
    HalfMessage,
    OpMessage,
    Step,
    check_end,
    checked_properties,
    committed_sys_flag,
    half_properties,
    half_sys_flag,
    parse_op,
    put_back_properties,
)
from pyledger.servers.broker.message_puts import MessagePuts, Outcome, PutOutcome, copy_of
from pyledger.servers.broker.tables import BrokerTables
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import GONE, StoredMessage
from pyledger.wire.record.rewrite import readdressed
from pyledger.wire.remoting.command import RemotingCommand
from pyledger.wire.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)

if TYPE_CHECKING:
    from pyledger.servers.broker.auth.auth_file import WatchedRules

log = logger("broker")

HALF_QUEUE = 0
PAGE = 32


class Transactions:
    """The half messages of a broker."""

    def __init__(
        self,
        config: DeliveryConfig,
        store: StoreEngine,
        puts: MessagePuts,
        tables: BrokerTables,
        broker_name: str,
        now_ms: Callable[[], int],
        rules: "WatchedRules | None" = None,
    ) -> None:
        """Check nothing yet; `rules` limit the producers that a check is sent to."""
        self._config = config
        self._store = store
        self._puts = puts
        self._tables = tables
        self._broker_name = broker_name
        self._now_ms = now_ms
        self._rules = rules
        self._ended = EndedHalfMessages(config)
        self._put_back: dict[int, bool] = {}
        self._again: list[tuple[Step, StoredMessage, dict[str, str], PutResult]] = []
        """Half messages that were put back and perhaps cannot be read yet."""
        self._unread: dict[int, int] = {}
        """Physical offsets (bytes) of half messages that may not be readable yet, by queue offset (units)."""
        self._timer: asyncio.TimerHandle | None = None
        self._checks: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start checking half messages; the first round is an interval later."""
        self._checks = asyncio.get_running_loop().create_task(self._keep_checking())

    async def close(self) -> None:
        """Stop checking, and store which half messages have ended."""
        if self._checks is not None:
            self._checks.cancel()
            await asyncio.gather(self._checks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        self._note()

    # --- requests

    def put_half(self, message: Message) -> Outcome:
        """Store a message as a half message until its transaction ends."""
        half = replace(
            message,
            topic=names.HALF_TOPIC,
            queue_id=HALF_QUEUE,
            properties=half_properties(message.properties, message.topic, message.queue_id),
            sys_flag=half_sys_flag(message.sys_flag),
        )
        return self._put_half(half)[1]

    def _put_half(self, half: Message) -> tuple[PutResult | None, Outcome]:
        place, outcome = self._puts.put_placed(half)
        if place is not None:
            end = self._store.queue_range(names.HALF_TOPIC, HALF_QUEUE).max_offset
            while self._unread and (first := next(iter(self._unread))) < end:
                del self._unread[first]
            self._unread[place.queue_offset] = place.physical_offset
        return place, outcome

    def find(self, header: EndTransactionRequestHeader) -> tuple[StoredMessage, Destination] | Rejection:
        """Return the half message that a request ends, and the destination of a commit."""
        try:
            found: StoredMessage | None = self._store.message_at(header.commit_log_offset)
        except StoreError:
            found = None
        if found is not None and found.topic != names.HALF_TOPIC:
            found = None
        place = check_end(
            half_of(found) if found else None,
            group=header.producer_group,
            queue_offset=header.tran_state_table_offset,
            physical_offset=header.commit_log_offset,
            from_check=header.from_transaction_check,
            now_ms=self._now_ms(),
            config=self._config,
        )
        if isinstance(place, Rejection):
            return place
        assert found is not None
        if not self._is_in_queue(found):
            return Rejection(ResponseCode.SYSTEM_ERROR, "no half message of the queue is stored there")
        return found, place

    def _is_in_queue(self, half: StoredMessage) -> bool:
        """Return whether the queue has a half message; the body of another message may contain its bytes."""
        number = half.queue_offset
        if (place := self._unread.get(number)) is not None:
            return place == half.physical_offset
        found = self._store.get(names.HALF_TOPIC, HALF_QUEUE, number, max_count=1).messages
        return [(one.queue_offset, one.physical_offset) for one in found] == [(number, half.physical_offset)]

    def commit(self, half: StoredMessage, place: Destination) -> Outcome:
        """Store the message in its real topic, then mark its half message as ended."""
        if half.queue_offset in self._ended:
            return completed(PutOutcome("PUT_OK"))
        self._puts.leave(half.physical_offset, place)
        message = copy_of(half, place.topic, place.queue_id)
        outcome = self._puts.put(
            replace(
                message,
                sys_flag=committed_sys_flag(half.sys_flag),
                prepared_transaction_offset=half.physical_offset,
            )
        )
        return outcome.then(partial(self._committed, half.queue_offset))

    def _committed(self, half_offset: int, outcome: PutOutcome) -> PutOutcome:
        if outcome.places:
            self.end(half_offset)
        return outcome

    def end(self, half_offset: int) -> None:
        """Mark the half message at a queue offset (units) as ended."""
        now_ms = self._now_ms()
        self._ended.buffer.add(half_offset, now_ms)
        if self._ended.buffer.due(now_ms):
            self._note()
        elif self._timer is None:
            wait_ms = self._config.op_batch_interval_ms
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._note)

    def _note(self) -> None:
        """Store which half messages have ended."""
        self._timer = None
        offsets, body = self._ended.take()
        if not offsets:
            return
        try:
            outcome = self._puts.put_as_it_is(Message(names.OP_TOPIC, body, HALF_QUEUE, OP_TAG))
        except PyLedgerError as problem:
            outcome = completed(PutOutcome("UNKNOWN_ERROR", problem=str(problem)))
        outcome.then(partial(self._noted, offsets))

    def _noted(self, offsets: tuple[int, ...], outcome: PutOutcome) -> None:
        if outcome.places:
            self._ended.written(offsets)
            return
        event(log, logging.WARNING, "ends of transactions not stored", problem=outcome.problem)
        self._ended.give_back(offsets, self._now_ms())
        if self._timer is None:
            wait_ms = self._config.op_batch_interval_ms
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._note)

    # --- checks

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(self._config.transaction_check_interval_ms / 1000)
            try:
                await self.check()
            except PyLedgerError as problem:
                event(log, logging.ERROR, "half messages not checked", problem=problem)
            except Exception:
                log.exception("half messages not checked")

    async def check(self) -> None:
        """Check the open half messages once."""
        halves = self._store.queue_range(names.HALF_TOPIC, HALF_QUEUE)
        ops = self._store.queue_range(names.OP_TOPIC, HALF_QUEUE)
        offsets, group = self._tables.offsets, names.TRANSACTION_GROUP
        half_start = offsets.committed(group, names.HALF_TOPIC, HALF_QUEUE) or 0
        op_start = offsets.committed(group, names.OP_TOPIC, HALF_QUEUE) or 0
        current = CheckRound(
            min(max(half_start, halves.min_offset), halves.max_offset),
            min(max(op_start, ops.min_offset), ops.max_offset),
            self._now_ms(),
            self._config,
            pending=self._ended,
            put_back=self._put_back,
            end_offset=halves.max_offset,
        )
        current.take_ops(self._ops(current.next_op_offset))
        await self._go_through(current)
        if (current.half_offset, current.op_offset) == (half_start, op_start):
            return
        await self._settle()
        now_ms = self._now_ms()
        offsets.commit(group, names.HALF_TOPIC, HALF_QUEUE, current.half_offset, now_ms)
        offsets.commit(group, names.OP_TOPIC, HALF_QUEUE, current.op_offset, now_ms)

    async def _go_through(self, current: CheckRound) -> None:
        kept_ms = self._store.config.retention_hours * HOUR_MS
        while True:
            if current.steps % PAGE == 0:
                await asyncio.sleep(0)
                if self._again:
                    await self._settle()
            found = None if current.noted() else self._half(current)
            step = current.judge(half_of(found) if found else None, self._now_ms(), kept_ms=kept_ms)
            if step is Step.STOP:
                return
            if step is Step.MORE_OPS:
                current.take_ops(self._ops(current.next_op_offset))
                continue
            if found is not None and not await self._do(step, found):
                return
            current.go_on()

    async def _do(self, step: Step, found: StoredMessage) -> bool:
        """Execute a step; return False when the store does not take its message."""
        if step is Step.DONE:
            return True
        half = half_of(found)
        if step is Step.GIVE_UP:
            event(log, logging.WARNING, "half message given up", id=found.msg_id, checks=half.check_count)
            self._tables.topics.create_for_group(names.CHECK_EXPIRED_TOPIC, 1, self._now_ms())
            given_up = copy_of(found, names.CHECK_EXPIRED_TOPIC, 0)
            return bool((await self._puts.put_as_it_is(given_up)).places)
        if (real := restore(half.properties)) is not None:
            self._puts.leave(found.physical_offset, real)
        change = checked_properties if step is Step.CHECK else put_back_properties
        properties = change(half)
        place, _ = self._put_half(copy_of(found, names.HALF_TOPIC, HALF_QUEUE, properties))
        if place is None:
            return False
        self._again.append((step, found, properties, place))
        return True

    async def _settle(self) -> None:
        """Make the log durable, then send the checks: a response finds the half message that was put back."""
        again, self._again = self._again, []
        await asyncio.to_thread(self._store.flush_log)
        for step, found, properties, place in again:
            if step is Step.CHECK:
                self._send_check(found, properties, place)

    def _send_check(self, found: StoredMessage, properties: dict[str, str], place: PutResult) -> None:
        """Query a producer of the group for the state of a transaction; it answers with END_TRANSACTION."""
        group = properties.get(names.PRODUCER_GROUP, "")
        real = restore(properties)
        channel = None
        if real is not None:
            # Any client can claim to be in a group, and a check contains the message.
            may_know = partial(self._may_see, real.topic)
            channel = self._tables.producers.channel_of_group(group, usable, may_know)
        if not isinstance(channel, Connection) or real is None:
            event(log, logging.WARNING, "no producer to check a transaction with", group=group)
            return
        unique_key = properties.get(names.UNIQUE_KEY)
        header = CheckTransactionStateRequestHeader(
            topic=names.HALF_TOPIC,
            tran_state_table_offset=place.queue_offset,
            commit_log_offset=place.physical_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=place.msg_id,
            bname=self._broker_name,
        )
        body = readdressed(found.record_view, real.topic, real.queue_id, properties, place)
        command = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True)
        try:
            channel.call_oneway(command)
        except RemotingError as problem:
            event(log, logging.WARNING, "transaction check not sent", problem=problem)

    def _may_see(self, topic: str, channel: object) -> bool:
        if self._rules is None:
            return True
        from pyledger.servers.broker.auth.send_permission import may_send  # noqa: PLC0415 - only with rules

        return isinstance(channel, Connection) and may_send(self._rules, channel, topic)

    # --- reading

    def _half(self, current: CheckRound) -> StoredMessage | None:
        """Return the next half message of a round, past deleted ones; None at the end of the queue."""
        found = self._store.get(names.HALF_TOPIC, HALF_QUEUE, current.half_offset, max_count=1)
        while found.status in GONE and found.next_offset > current.half_offset:
            current.skip_to(found.next_offset)
            found = self._store.get(names.HALF_TOPIC, HALF_QUEUE, current.half_offset, max_count=1)
        return found.messages[0] if found.messages else None

    def _ops(self, offset: int) -> list[OpMessage]:
        found = self._store.get(names.OP_TOPIC, HALF_QUEUE, offset, max_count=OP_BATCH_MAX)
        if found.status in GONE and found.next_offset > offset:
            return self._ops(found.next_offset)
        return [
            OpMessage(message.queue_offset, message.born_timestamp, tuple(parse_op(message.body)))
            for message in found.messages
        ]


def half_of(found: StoredMessage) -> HalfMessage:
    """Return the fields that the rules use."""
    return HalfMessage(
        found.queue_offset,
        found.physical_offset,
        found.born_timestamp,
        found.store_timestamp,
        found.properties,
    )


def usable(channel: object) -> bool:
    """Return whether a request can be sent to a client now."""
    return isinstance(channel, Connection) and not channel.closed and not channel.congested
