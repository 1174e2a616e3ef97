"""A slave's copies of its master's tables: topics, groups, offsets of consumers and of delayed messages.

The first copy is taken 10 s after the start, then one every minute; it is written like the broker's own
tables. Topics and groups are replaced when the data version differs. The progress of delayed and timer
messages is copied every 3 s.

Differs: a consumer offset decreases only where the master's own has decreased since the last copy, so that
offsets committed at the slave while the master is down are kept. It never passes the end of the slave's
queue, if that has messages; a broker that starts as a master bounds the others. Consumer offsets and delivery
progress take effect only when this log has everything that the master's log had at the time of the copy.
Otherwise a slave that is promoted would skip messages: it would treat those that were lost with the master,
and those that later get the same offsets, as delivered or consumed, or as popped with a checkpoint.

Source: RocketMQ broker/.../SlaveSynchronize.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, TypeVar

from pyledger.config import properties
from pyledger.config.ha import HaConfig
from pyledger.errors import BrokerError, ConfigError, PyLedgerError
from pyledger.log_events import event, logger
from pyledger.model.ids import QueueId
from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.net.remoting.client import RemotingClient
from pyledger.protocol.broker.message_request_modes import GroupMode, RequestMode
from pyledger.protocol.broker.timer_messages import TimerProgress
from pyledger.protocol.ha.slave import merged_offset
from pyledger.servers.broker.tables import BrokerTables
from pyledger.store.messages.timer_files import progress_of
from pyledger.wire.remoting.bodies.json_body import Body
from pyledger.wire.remoting.bodies.membership import MessageRequestModes
from pyledger.wire.remoting.bodies.offsets import ConsumerOffsetTable, DelayOffsetTable
from pyledger.wire.remoting.bodies.timer_checkpoint import TimerCheckpoint
from pyledger.wire.remoting.bodies.topic_config import KVTable, SubscriptionGroupTable, TopicConfigTable
from pyledger.wire.remoting.command import RemotingCommand

log = logger("ha")

B = TypeVar("B", bound=Body)
TIMEOUT_MS = 3_000
CATCH_UP_MS = 100
"""Pause while the log is shorter than the master's was at the copy."""
SEPARATOR = "@"
LOG_START, LOG_END = "commitLogMinOffset", "commitLogMaxOffset"
UNKNOWN = -1


class Progress(NamedTuple):
    """How far deliveries and consumers of a master had got."""

    master: Hashable
    """The master's address, and its term."""
    end_offset: int
    """Physical offset (bytes): all messages that this covers are below it."""
    offsets: ConsumerOffsetTable | None
    delays: DelayOffsetTable | None
    timers: TimerProgress | None


class SlaveSynchronize:
    """Copies the tables of a master while `run` runs."""

    def __init__(
        self,
        tables: BrokerTables,
        config: HaConfig,
        client: RemotingClient,
        master: Callable[[], str],
        end_offset: Callable[[], int],
        queue_end: Callable[[str, int], int],
        term: Callable[[], int] = lambda: 0,
    ) -> None:
        """Copy nothing yet.

        Args:
            tables: The slave's tables.
            config: The intervals.
            client: Calls the master.
            master: Returns `host:port` of the master for requests; empty while it is not known.
            end_offset: Returns the physical offset (bytes) at which the slave's log ends.
            queue_end: Returns the offset (units) at which a queue of the slave ends, by topic and queue.
            term: Returns the term of its group, if any: progress of an earlier term may be undone.
        """
        self.count = 0
        """Copies that were complete."""
        self.complete_where = -1
        """Physical offset (bytes): the topics of all messages below it are known here."""
        self._tables = tables
        self._config = config
        self._client = client
        self._master = master
        self._end_offset = end_offset
        self._queue_end = queue_end
        self._term = term
        self._problem = ""
        self._progress: Progress | None = None
        """Takes effect when the log has reached its end offset."""
        self._wants_offsets = False
        # The master's offsets at the last copy: where they have decreased since, the slave's do, too.
        self._seen: dict[tuple[str, int], int] = {}
        self.master_end = UNKNOWN
        """Physical offset (bytes) of the end of the master's log at the last request; -1: not known."""
        self.master_start = UNKNOWN
        """Physical offset (bytes) of its start; -1: not known."""
        self.master_role = ""
        """Upstream's name of the master's role at the last request; empty: not known."""
        self._met = ""

    def meet(self, master: str) -> None:
        """Take the master, `host:port`, from the name servers; forget what another one reported."""
        if master != self._met:
            self._met, self.master_start, self.master_end = master, UNKNOWN, UNKNOWN
            self.master_role = ""

    async def fetch_master_end(self) -> int:
        """Return the physical offset (bytes) of the end of the master's log, as last reported; -1: never.

        Raises:
            PyLedgerError: the request failed.
        """
        runtime = await self._fetch(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)
        if runtime is not None:
            self.master_start = offset_in(runtime, LOG_START)
            self.master_end = offset_in(runtime, LOG_END)
        return self.master_end

    async def fetch_master_role(self) -> None:
        """Fetch whether sends wait for slaves at the master: a promoted slave keeps that role.

        Raises:
            RemotingError: the request failed.
        """
        with contextlib.suppress(BrokerError, ConfigError):
            answer = await self._answer(RequestCode.GET_BROKER_CONFIG)
            text = "" if answer is None else str(answer.body, "utf-8", "replace")
            self.master_role = properties.parse(text).get("brokerRole", "")

    async def run(self) -> None:
        """Copy at the configured intervals."""
        config = self._config
        await asyncio.sleep(config.sync_first_ms / 1000)
        full_every, number = max(1, config.sync_interval_ms // config.sync_delays_interval_ms), 0
        while True:
            if self._master():
                await self.copy(deliveries_only=number % full_every > 0)
                number += 1
            left_ms = min(config.sync_interval_ms, config.sync_delays_interval_ms)
            while left_ms > 0:
                step_ms = left_ms if self._progress is None else min(left_ms, CATCH_UP_MS)
                await asyncio.sleep(step_ms / 1000)
                left_ms -= step_ms
                self._adopt_progress()

    async def copy(self, *, deliveries_only: bool = False) -> bool:
        """Copy everything once, or delivery progress only; return whether all of it was copied."""
        problem, end_offset = "", self._end_offset()
        tables = () if deliveries_only else (self._topics, self._groups, self._modes)
        self._wants_offsets |= not deliveries_only
        for one in (*tables, self._deliveries):
            try:
                await one()
            except PyLedgerError as failure:
                problem = f"{one.__name__.strip('_')}: {failure}"
        await self._tables.save_changed()
        if problem != self._problem:
            event(log, logging.WARNING, "tables not copied", master=self._master(), problem=problem or "none")
        self._problem = problem
        if not problem and not deliveries_only:
            self.count += 1
            self.complete_where = end_offset
        return not problem

    def _epoch(self) -> Hashable:
        return self._master(), self._term()

    async def _fetch(self, code: RequestCode, kind: type[B]) -> B | None:
        """Return a table of the master; None where it has none, or does not know the request."""
        answer = await self._answer(code)
        return None if answer is None else kind.decode(answer.body)

    async def _answer(self, code: RequestCode) -> RemotingCommand | None:
        answer = await self._client.call(self._master(), RemotingCommand.request(code), TIMEOUT_MS)
        if answer.code == ResponseCode.SUCCESS:
            return answer
        # Upstream answers SYSTEM_ERROR for an empty table; 4.x does not know all of them.
        if answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
            return None
        raise BrokerError(answer.code, answer.remark, self._master())

    async def _topics(self) -> None:
        found = await self._fetch(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigTable)
        topics = self._tables.topics
        if found is not None and found.data_version != topics.version:
            topics.adopt(found.topic_config_table, found.data_version)

    async def _groups(self) -> None:
        found = await self._fetch(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupTable)
        groups = self._tables.groups
        if found is not None and found.data_version != groups.version:
            groups.adopt(found.subscription_group_table, found.forbidden_table, found.data_version)

    def _adopt_offsets(self, found: ConsumerOffsetTable) -> None:
        offsets = self._tables.offsets
        for key, queues in found.offset_table.items():
            topic, separator, group = key.partition(SEPARATOR)
            if not separator:
                continue
            for queue_id, at_master in queues.items():
                # A log that starts after its master's may have no unit of a queue: its end is not known then.
                offset = min(at_master, self._queue_end(topic, queue_id) or at_master)
                seen = self._seen.get((key, queue_id))
                self._seen[key, queue_id] = offset
                own = offsets.offsets.get((topic, group), {}).get(QueueId(queue_id))
                offsets.adopt(group, topic, queue_id, merged_offset(own, seen, offset))
        offsets.version = found.data_version

    async def _deliveries(self) -> None:
        """Copy the progress of delayed and timer messages, and consumer offsets where they are wanted."""
        if self._progress is None or self._progress.master != self._epoch():
            self._progress = await self._fetch_progress()
        else:
            await self.fetch_master_end()
        self._adopt_progress()

    def _adopt_progress(self) -> None:
        found = self._progress
        if found is None or found.master != self._epoch() or self._end_offset() < found.end_offset:
            return
        self._progress = None
        if found.offsets is not None:
            self._wants_offsets = False
            self._adopt_offsets(found.offsets)
        if found.delays is not None:
            self._tables.delays.adopt(found.delays.offset_table, found.delays.data_version)
        if found.timers is not None:
            self._tables.timers.adopt(found.timers)

    async def _fetch_progress(self) -> Progress | None:
        self._progress = None
        epoch = self._epoch()
        offsets = None
        if self._wants_offsets:
            offsets = await self._fetch(RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable)
        delays = await self._fetch(RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable)
        timers = await self._answer(RequestCode.GET_TIMER_CHECK_POINT)
        # Fetched last: all that the others cover is below this end.
        end_offset = await self.fetch_master_end()
        if epoch != self._epoch():
            return None
        return Progress(
            epoch,
            end_offset,
            offsets,
            delays,
            None if timers is None else progress_of(TimerCheckpoint.decode(timers.body)),
        )

    async def _modes(self) -> None:
        found = await self._fetch(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, MessageRequestModes)
        if found is not None:
            self._tables.modes.adopt(modes_of(found))


def offset_in(runtime: KVTable, name: str) -> int:
    """Return a physical offset (bytes) of a master's runtime info; -1 where it is missing or malformed."""
    text = runtime.table.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else UNKNOWN


def modes_of(found: MessageRequestModes) -> Mapping[tuple[str, str], GroupMode]:
    """Return the modes by topic and group."""
    return {
        (topic, group): GroupMode(RequestMode(one.mode.value), one.pop_share_queue_num)
        for topic, groups in found.message_request_mode_map.items()
        for group, one in groups.items()
    }
