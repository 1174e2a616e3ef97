"""Pop checkpoints: stored in the log before messages are handed out; messages without an ack are revived.

The state is restored from queue 0 of the revive topic: read from the oldest open record at start-up, then
updated with each record that is stored. A group's offset moves when messages are popped, so the log is
flushed before offsets are written: an offset on disk never passes messages whose checkpoint is lost.

Upstream's broker may have left records in the other queues and in its timer wheel: they are stored again in
queue 0. Upstream's broker can continue with ours: the group's offset is that of the last finished record, and
each record carries the time at which it was stored, from which that broker knows how far it has read.

Source: RocketMQ broker/.../PopMessageProcessor.java, PopReviveService.java.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from pyledger.errors import PyLedgerError, WireError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.message import Message
from pyledger.net.deferred import completed
from pyledger.protocol.broker.pop import PopKey, Popped, PoppedMessages, pop_retry_topic, put_back_properties
from pyledger.protocol.broker.topics import REVIVE_QUEUE_COUNT
from pyledger.servers.broker.message_puts import MessagePuts, Outcome, PutOutcome, copy_of
from pyledger.servers.broker.tables import BrokerTables
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.queues.get_result import GONE, StoredMessage
from pyledger.wire.remoting.bodies.pop import ACK_TAG, CHECKPOINT_TAG, SINGLE_ACK_TAG, PopAcks, PopCheckpoint

log = logger("broker")

REVIVE_QUEUE = 0
PAGES_PER_POLL = 8
REVIVED_PER_POLL = 8
"""Checkpoints that are revived in one iteration of the event loop."""
RETRY_MS = 100
"""Pause after the store has rejected a message, and while stored records cannot be read yet."""
PAUSE_MAX_MS = 1000


class PopService:
    """Stores checkpoints and acks, and revives messages that are not acknowledged."""

    def __init__(
        self,
        store: StoreEngine,
        puts: MessagePuts,
        tables: BrokerTables,
        *,
        cluster: str,
        broker_name: str,
        now_ms: Callable[[], int],
        tables_changed: Callable[[], object],
    ) -> None:
        """Read nothing but the bounds of the queues yet.

        Args:
            store: The store that messages are read from.
            puts: Stores records and revived messages.
            tables: Offsets and topics.
            cluster: The cluster, which names the revive topic.
            broker_name: The broker's name, a field of each record.
            now_ms: The wall clock.
            tables_changed: Stores the table of topics.
        """
        self._store = store
        self._puts = puts
        self._tables = tables
        self._topic = names.revive_topic(cluster)
        self._broker_name = broker_name
        self._now_ms = now_ms
        self._tables_changed = tables_changed
        start, self._end = self._unread(REVIVE_QUEUE)
        self.open = PoppedMessages(start)
        self._live = self.open.next_offset >= self._end
        others = range(1, REVIVE_QUEUE_COUNT)
        self._elsewhere = {one: start for one in others for start, end in [self._unread(one)] if start < end}
        """Next queue offsets (units) of upstream's records, by queue."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    def start(self) -> None:
        """Start reading records and reviving messages."""
        self._poll_after(0)

    def close(self) -> None:
        """Stop reviving messages."""
        if self._timer is not None:
            self._timer.cancel()

    def _unread(self, queue_id: int) -> tuple[int, int]:
        """Return the range of queue offsets (units) whose records are not known to be finished."""
        held = self._store.queue_range(self._topic, queue_id)
        done = self._tables.offsets.committed(names.REVIVE_GROUP, self._topic, queue_id)
        start = 0 if done is None else done + 1
        return min(max(start, held.min_offset), held.max_offset), held.max_offset

    def _finish(self, queue_id: int, next_offset: int) -> None:
        """Commit that the records below a queue offset (units) are finished."""
        if next_offset:
            self._tables.offsets.commit(
                names.REVIVE_GROUP, self._topic, queue_id, next_offset - 1, self._now_ms()
            )

    # --- checkpoints and acks

    def note(self, key: PopKey, invisible_ms: int, offsets: Iterable[int]) -> Outcome:
        """Store a checkpoint of popped queue offsets (units); they are invisible if it has places."""
        taken = list(offsets)
        record = PopCheckpoint(
            start_offset=key.start_offset,
            pop_time=key.pop_ms,
            invisible_time=invisible_ms,
            count=len(taken),
            queue_id=key.queue_id,
            topic=key.topic,
            group=key.group,
            differences=tuple(offset - key.start_offset for offset in taken),
            broker_name=self._broker_name,
        )
        outcome, number = self._put(CHECKPOINT_TAG, record.encode(), key)
        if number is not None and self._live:
            self.open.add(Popped(key, key.pop_ms + invisible_ms, set(taken)), number)
            self._poll_by(key.pop_ms + invisible_ms)
        return outcome

    def may_be_open(self, key: PopKey, offset: int) -> bool:
        """Return whether the message at a queue offset (units) may wait for its ack."""
        self._update_early()
        return not self._live or self.open.keep_early or self.open.is_open(key, offset)

    def acknowledge(self, key: PopKey, offsets: Iterable[int]) -> Outcome:
        """Store the ack of messages at queue offsets (units)."""
        taken = tuple(offsets)
        if not any(self.may_be_open(key, offset) for offset in taken):
            return completed(PutOutcome("PUT_OK"))
        record = PopAcks(
            start_offset=key.start_offset,
            group=key.group,
            topic=key.topic,
            queue_id=key.queue_id,
            pop_time=key.pop_ms,
            broker_name=self._broker_name,
            ack_offsets=taken,
        )
        outcome, number = self._put(ACK_TAG, record.encode(), key)
        if number is not None and self._live:
            self.open.next_offset = number + 1
            self.open.acknowledge(key, taken)
        return outcome

    def _put(self, tag: str, body: bytes, key: PopKey) -> tuple[Outcome, int | None]:
        """Store a record; return also its queue offset (units), None if it is not stored."""
        return self._put_record(tag, body, f"{key.group}@{key.topic}")

    def _put_record(self, tag: str, body: bytes, keys: str) -> tuple[Outcome, int | None]:
        now = {names.TIMER_DELIVER_MS: str(self._now_ms())}
        message = Message(self._topic, body, REVIVE_QUEUE, tag, keys, properties=now)
        place, outcome = self._puts.put_placed(message)
        if place is None:
            return outcome, None
        self._end = place.queue_offset + 1
        return outcome, place.queue_offset

    # --- reading records, reviving messages

    def _poll_after(self, pause_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = self._now_ms() + pause_ms
        self._timer = asyncio.get_running_loop().call_later(pause_ms / 1000, self._poll)

    def _poll_by(self, time_ms: int) -> None:
        """Poll at a time at the latest."""
        if time_ms < self._timer_at_ms:
            self._poll_after(max(0, time_ms - self._now_ms()))

    def _poll(self) -> None:
        try:
            pause_ms = self._read_or_revive()
        except PyLedgerError as problem:
            event(log, logging.ERROR, "popped messages not revived", problem=problem)
            pause_ms = PAUSE_MAX_MS
        self._poll_after(pause_ms)

    def _read_or_revive(self) -> int:
        """Read records, or revive messages; return the pause in ms until the next poll."""
        self._update_early()
        if self._elsewhere:
            return self._move()
        if not self._live:
            return self._read()
        if self.open.keep_early:
            return RETRY_MS
        for _ in range(REVIVED_PER_POLL):
            if (popped := self.open.due(self._now_ms())) is None:
                break
            if not self._revive(popped):
                return RETRY_MS
        else:
            return 0
        self._finish(REVIVE_QUEUE, self.open.restart_offset)
        deadline_ms = self.open.deadline_ms()
        left_ms = PAUSE_MAX_MS if deadline_ms is None else deadline_ms - self._now_ms()
        return min(max(left_ms, 1), PAUSE_MAX_MS)

    def _update_early(self) -> None:
        """Keep early acks while upstream's records are read: an ack may precede its checkpoint."""
        keep = bool(self._elsewhere) or self._tables.timers.takes_over
        if self.open.keep_early and not keep:
            self.open.early.clear()
        self.open.keep_early = keep

    def _move(self) -> int:
        """Store records of another queue again in queue 0."""
        queue_id, offset = next(iter(self._elsewhere.items()))
        found = self._store.get(self._topic, queue_id, offset)
        for message in found.messages:
            if not self.forward(message):
                return RETRY_MS
            self._elsewhere[queue_id] = message.queue_offset + 1
        if found.status in GONE and found.next_offset > offset:
            self._elsewhere[queue_id] = found.next_offset
        if self._elsewhere[queue_id] >= self._store.queue_range(self._topic, queue_id).max_offset:
            self._finish(queue_id, self._elsewhere.pop(queue_id))
        return 0 if found.messages or found.status in GONE else RETRY_MS

    def forward(self, message: StoredMessage) -> bool:
        """Store a record of upstream's broker again; return False when the store does not take it now."""
        outcome, number = self._put_record(
            message.tags or "", message.body, message.properties.get("KEYS", "")
        )
        if number is None:
            return outcome.result().status == "MESSAGE_ILLEGAL"
        if self._live:
            self._apply(message, number)
        return True

    def _read(self) -> int:
        """Read the records from before the start, and those since."""
        for _ in range(PAGES_PER_POLL):
            if self.open.next_offset >= self._end:
                self._live = True
                return 0
            found = self._store.get(self._topic, REVIVE_QUEUE, self.open.next_offset)
            for message in found.messages:
                self._apply(message, message.queue_offset)
            if found.status in GONE and found.next_offset > self.open.next_offset:
                self.open.next_offset = found.next_offset
            elif not found.messages:
                return RETRY_MS
        return 0

    def _apply(self, message: StoredMessage, number: int) -> None:
        """Apply a record at a queue offset (units) of queue 0."""
        self.open.next_offset = number + 1
        try:
            if message.tags == CHECKPOINT_TAG:
                record = PopCheckpoint.decode(message.body)
                key = PopKey(
                    record.topic, record.group, record.queue_id, record.start_offset, record.pop_time
                )
                if (problem := key.problem) is not None:
                    event(log, logging.ERROR, "record of popped messages dropped", problem=problem)
                    return
                due_ms = record.pop_time + record.invisible_time
                self.open.add(Popped(key, due_ms, set(record.open_offsets)), number)
                self._poll_by(due_ms)
            elif message.tags in (ACK_TAG, SINGLE_ACK_TAG):
                acks = PopAcks.decode(message.body)
                key = PopKey(acks.topic, acks.group, acks.queue_id, acks.start_offset, acks.pop_time)
                self.open.acknowledge(key, acks.ack_offsets or (acks.ack_offset,))
        except WireError as problem:
            event(log, logging.WARNING, "record of popped messages not read", problem=problem)

    def _revive(self, popped: Popped) -> bool:
        """Put messages without an ack back; return False when the store does not take them now."""
        key = popped.key
        done = []
        for offset in sorted(popped.open):
            found = self._store.get(key.topic, key.queue_id, offset, max_count=1).messages
            if found and found[0].queue_offset == offset and not self._put_back(key, found[0]):
                break
            done.append(offset)
        if not done:
            return False
        outcome = self.acknowledge(key, done).peek()
        return (outcome is None or bool(outcome.places)) and not popped.open

    def _put_back(self, key: PopKey, found: StoredMessage) -> bool:
        topic = pop_retry_topic(key.topic, key.group)
        topics = self._tables.topics
        if topics.find(topic) is None:
            topics.create_for_group(topic, 1, self._now_ms())
            self._tables_changed()
        queue_id = found.queue_id if topic == key.topic else 0
        again = replace(
            copy_of(found, topic, queue_id, put_back_properties(found.properties, key.group, key.pop_ms)),
            reconsume_times=found.reconsume_times + 1,
        )
        outcome = self._puts.put_as_it_is(again).peek()
        if outcome is None or outcome.places:
            return True
        if outcome.status == "MESSAGE_ILLEGAL":
            event(log, logging.ERROR, "popped message dropped", id=found.msg_id, problem=outcome.problem)
            return True
        return False
