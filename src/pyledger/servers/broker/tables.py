"""The tables of a broker: topics, groups, offsets, members, locks.

Topics and groups are written when they change, offsets every few seconds. The others are in memory only.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.errors import StoreError
from pyledger.log_events import event, logger
from pyledger.model import names
from pyledger.model.ids import QueueOffset
from pyledger.model.subscription_group import SubscriptionGroup
from pyledger.protocol.broker.consumer_offsets import OffsetTable
from pyledger.protocol.broker.consumer_registry import ConsumerTable
from pyledger.protocol.broker.delay_levels import DelaySchedule
from pyledger.protocol.broker.message_request_modes import MessageRequestModeTable
from pyledger.protocol.broker.pop_order import OrderedBatch, OrderedPops
from pyledger.protocol.broker.producer_registry import ProducerTable
from pyledger.protocol.broker.queue_locks import QueueLocks
from pyledger.protocol.broker.subscription_groups import BrokerGroups
from pyledger.protocol.broker.timer_messages import TimerProgress, TimerQueue
from pyledger.protocol.broker.topics import BrokerTopics
from pyledger.servers.broker.table_file import TableFile
from pyledger.store.files.config_files import (
    ConsumerOffsets,
    DelayOffsets,
    OrderedPopTable,
    RequestModeTable,
    SubscriptionGroups,
    TopicTable,
)
from pyledger.store.messages.dledger_message_store import MemberStore
from pyledger.store.messages.store_engine import StoreEngine
from pyledger.store.messages.timer_files import RecordPlace, TimerFile, hand_over

log = logger("broker")

CONFIG_FOLDER = "config"


class BrokerTables:
    """The tables of one broker, and their files."""

    def __init__(
        self,
        config: BrokerConfig,
        delivery: DeliveryConfig,
        store: StoreEngine,
        now_ms: Callable[[], int],
    ) -> None:
        """Read the files.

        Args:
            config: The broker's settings.
            delivery: The rules of sending and consuming.
            store: The broker's store; the files are in its folder.
            now_ms: The wall clock.

        Raises:
            StoreFormatError: a file is damaged, and so is its `.bak`.
            StoreIOError: a file cannot be read.
        """
        self.folder = Path(store.path) / CONFIG_FOLDER
        found = TopicTable.read(self.folder)
        self.topics = BrokerTopics(delivery, config.cluster, config.name, found.topics, found.version)
        groups = SubscriptionGroups.read(self.folder)
        known = {name: SubscriptionGroup.parse(name, one) for name, one in groups.groups.items()}
        self.groups = BrokerGroups(delivery, known, groups.forbidden, groups.version)
        offsets = ConsumerOffsets.read(self.folder)
        self.offsets = OffsetTable(delivery, offsets.offsets, offsets.version)
        delays = DelayOffsets.read(self.folder)
        self.delays = DelaySchedule(delays.offsets, delays.version)
        self.timers = TimerQueue(delivery, bounded(TimerFile.read(self.folder).progress, store))
        self.ordered_pops = OrderedPops(without_lost(OrderedPopTable.read(self.folder).batches, store))
        self._now_ms = now_ms
        self.modes = MessageRequestModeTable(RequestModeTable.read(self.folder).modes)
        self.consumers = ConsumerTable(delivery)
        self.producers = ProducerTable(delivery)
        self.locks = QueueLocks(delivery)
        self._bound_offsets(store, slave=config.broker_id != 0)
        self._problems: dict[TableFile, str] = {}
        self.topics_file = TableFile(self.folder, lambda: self.topics.version, self._topic_table)
        self.groups_file = TableFile(self.folder, lambda: self.groups.version, self._group_table)
        # The group's offset passes a popped message: its pop checkpoint must be on disk before.
        self.offsets_file = TableFile(
            self.folder, lambda: self.offsets.change_count, self._offset_table, before=store.flush_log
        )
        # A delivered message must be on disk before the offset of its level passes it.
        self.delays_file = TableFile(
            self.folder, lambda: self.delays.delivered_count, self._delay_table, before=store.flush_log
        )

        self.timers_file = TableFile(
            self.folder,
            self._timer_edition,
            lambda: TimerFile(self.timers.progress, self._timer_now_ms()),
            before=store.flush_log,
        )

        self.modes_file = TableFile(
            self.folder,
            lambda: self.modes.change_count or None,
            lambda: RequestModeTable(dict(self.modes.modes)),
        )
        self.ordered_pops_file = TableFile(
            self.folder, lambda: self.ordered_pops.change_count or None, self._ordered_pop_table
        )

    @property
    def files(self) -> tuple[TableFile, ...]:
        """All files."""
        return (
            self.topics_file,
            self.groups_file,
            self.offsets_file,
            self.delays_file,
            self.timers_file,
            self.modes_file,
            self.ordered_pops_file,
        )

    def configure(self, delivery: DeliveryConfig, now_ms: int) -> None:
        """Apply changed settings."""
        self.topics.configure(delivery, now_ms)
        self.groups.configure(delivery)
        self.offsets.configure(delivery)

    async def save_changed(self) -> None:
        """Write the tables that have changed; the next call retries those that failed.

        A failure is logged when it begins or its cause changes, and when it ends.
        """
        for file in self.files:
            before = self._problems.pop(file, None)
            try:
                await file.save()
            except StoreError as problem:
                self._problems[file] = str(problem)
                if str(problem) != before:
                    event(log, logging.WARNING, "table not written", problem=problem)
            else:
                if before is not None:
                    event(log, logging.INFO, "table written again", after=before)

    async def hand_over(self, store: StoreEngine) -> None:
        """Write the waiting timer messages in upstream's format; called last, when all tables are saved."""
        timers = self.timers
        if self._timer_edition() is None or timers.adopted or self.timers_file.is_changed():
            return
        last = timers.next_offset - 1
        found = store.get(names.TIMER_TOPIC, 0, last, max_count=1).messages if last >= 0 else []
        place = None
        if found and found[0].queue_offset == last:
            place = RecordPlace(found[0].physical_offset, found[0].store_size)
        try:
            await asyncio.to_thread(
                hand_over,
                self.folder,
                timers.progress,
                self._timer_now_ms(),
                timers.waiting,
                place,
                timers.precision_ms,
            )
        except StoreError as problem:
            event(log, logging.WARNING, "timer messages not handed over", problem=problem)

    def _timer_now_ms(self) -> int:
        """The time in the precision of upstream's timer wheel."""
        step = self.timers.precision_ms
        return self._now_ms() // step * step

    def _bound_offsets(self, store: StoreEngine, *, slave: bool) -> None:
        """Reduce offsets that are beyond the end of their queue.

        A power failure may have lost the last messages of the log but not the offsets after them; the next
        messages must not count as consumed. Empty queues are left out in a DLedger group, where nothing of
        the queue may be known as committed yet, and at a slave, whose log may start after its messages.
        """
        lowest = 1 if slave or isinstance(store, MemberStore) else 0
        for (topic, _), queues in self.offsets.offsets.items():
            for queue_id, offset in queues.items():
                end = store.queue_range(topic, queue_id).max_offset
                if offset > end >= lowest:
                    queues[queue_id] = QueueOffset(end)

    def _timer_edition(self) -> int | None:
        """Return None while there is nothing to write, or not all messages are read yet."""
        timers = self.timers
        known = timers.complete or timers.adopted
        return timers.change_count if timers.change_count and known else None

    def _topic_table(self) -> TopicTable:
        return TopicTable(dict(self.topics.topics), self.topics.version)

    def _group_table(self) -> SubscriptionGroups:
        groups = {name: group.document() for name, group in self.groups.groups.items()}
        forbidden = {name: dict(topics) for name, topics in self.groups.forbidden.items()}
        return SubscriptionGroups(groups, forbidden, self.groups.version)

    def _offset_table(self) -> ConsumerOffsets:
        offsets = {key: dict(queues) for key, queues in self.offsets.offsets.items()}
        return ConsumerOffsets(offsets, self.offsets.version)

    def _ordered_pop_table(self) -> OrderedPopTable:
        topics, pops = self.topics, self.ordered_pops
        pops.clean(
            lambda name: found.read_queue_count if (found := topics.find(name)) is not None else 0,
            self.groups.groups,
            self._now_ms(),
        )
        batches = {
            key: {number: replace(one, done=set(one.done)) for number, one in queues.items()}
            for key, queues in pops.batches.items()
        }
        return OrderedPopTable(batches)

    def _delay_table(self) -> DelayOffsets:
        offsets = {level: QueueOffset(offset) for level, offset in self.delays.offsets.items()}
        return DelayOffsets(offsets, self.delays.version)


def without_lost(
    batches: Mapping[tuple[str, str], Mapping[int, OrderedBatch]], store: StoreEngine
) -> dict[tuple[str, str], dict[int, OrderedBatch]]:
    """Drop batches of messages that were lost in a power failure: others will get their offsets."""
    return {
        (topic, group): {
            queue_id: batch
            for queue_id, batch in queues.items()
            if batch.offsets[-1] < store.queue_range(topic, queue_id).max_offset
        }
        for (topic, group), queues in batches.items()
    }


def bounded(progress: TimerProgress, store: StoreEngine) -> TimerProgress:
    """Reduce progress beyond the messages that a power failure has left."""
    end = store.queue_range(names.TIMER_TOPIC, 0).max_offset
    return replace(
        progress,
        restart_offset=min(progress.restart_offset, end),
        next_offset=min(progress.next_offset, end),
    )
