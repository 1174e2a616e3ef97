"""A lite-pull consumer on asyncio: messages are fetched in the background, and the program polls for them.

Source: RocketMQ client/.../impl/consumer/DefaultLitePullConsumerImpl.java.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Unpack

from pyledger.client.consumer.assignment import Assignment
from pyledger.client.consumer.group_consumer import AsyncGroupConsumer
from pyledger.client.instance import OWN_CLIENT, ClientInstance
from pyledger.config.client import ClientConfig, ConsumerConfig
from pyledger.config.fields import changed, checked_limit, checked_type, checked_values
from pyledger.config.keywords import ConsumerSettings
from pyledger.config.net import NetConfig, TlsConfig
from pyledger.errors import ClientStateError
from pyledger.model.message import MessageQueue
from pyledger.protocol.client.process_queue import NOTHING_CONSUMED
from pyledger.protocol.rebalance.strategies import Strategy
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.statistics import ConsumeMessageDirectlyResult, ConsumeResult
from pyledger.wire.remoting.bodies.subscription import Subscription

POLL_COUNT_MAX = 1024
POLL_TIMEOUT_MS = 5000


class Buffered:
    """Buffers pulled messages until they are polled."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Assignment, ReceivedMessage]] = deque()
        self._some = asyncio.Event()

    def begin(self, assignment: Assignment) -> None:
        """Do nothing: messages are buffered when they are pulled."""

    def arrived(self, assignment: Assignment, messages: Sequence[ReceivedMessage]) -> None:
        """Buffer messages for `take`."""
        self._ready.extend((assignment, message) for message in messages)
        self._some.set()

    async def end(self, assignment: Assignment) -> bool:
        """Stop returning messages of the queue."""
        assignment.moved.set()
        return True

    async def expire(self, assignment: Assignment) -> None:
        """Do nothing: a program has no time limit."""

    async def wait(self, timeout_ms: float) -> None:
        """Wait up to `timeout_ms` for messages."""
        if not self._ready:
            self._some.clear()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._some.wait()
            except TimeoutError:
                pass

    def take(self, count: int) -> list[tuple[Assignment, ReceivedMessage]]:
        """Return the next messages of queues that are still assigned."""
        found: list[tuple[Assignment, ReceivedMessage]] = []
        while self._ready and len(found) < count:
            assignment, message = self._ready.popleft()
            if not assignment.messages.dropped:
                found.append((assignment, message))
        return found


class AsyncLitePullConsumer(AsyncGroupConsumer):
    """Polls messages, of queues shared with its group (`subscribe`) or chosen (`assign`).

    What a poll has returned counts as consumed with the next `poll`, with `commit`, and with `close`, unless
    an exception ends the `with` block.
    """

    def __init__(
        self,
        group: str,
        name_servers: str = "",
        *,
        auto_commit: bool = True,
        strategy: Strategy | None = None,
        config: ConsumerConfig | None = None,
        client: ClientConfig | ClientInstance | None = None,
        net: NetConfig | None = None,
        tls: TlsConfig | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """Create a consumer; `start` connects it.

        Args:
            group: The group; all its members must have the same subscriptions.
            name_servers: `host:port;host:port`; empty: those of `ClientConfig.name_servers`.
            auto_commit: Commit what is consumed, every `auto_commit_interval_ms` and at the end; otherwise
                only `commit` does.
            strategy: How members share queues; None: contiguous ranges of equal size.
            config: How to consume; None: the defaults.
            client: Settings of the client, or a client to share with others.
            net: Limits of connections, for a client of its own.
            tls: Certificates, for a client of its own.
            settings: Single settings of `ConsumerConfig`, over those of `config`.

        Raises:
            ConfigError: a setting is unknown or out of range.
            IllegalMessageError: the group name is invalid.
        """
        super().__init__(
            group,
            name_servers,
            changed(ConsumerConfig, config, settings, OWN_CLIENT),
            orderly=False,
            strategy=strategy,
            client=client,
            net=net,
            tls=tls,
            lite=True,
        )
        self._buffered = self._consume_service = Buffered()
        self._returned: list[tuple[Assignment, ReceivedMessage]] = []
        self._auto_commit = auto_commit
        self._positions: dict[MessageQueue, int] = {}
        """The offset after the last consumed message of each queue, committed or not."""
        self._committed_ms = self.client.monotonic_ms()
        self._assigned: tuple[MessageQueue, ...] | None = None

    async def poll(
        self, timeout_ms: int = POLL_TIMEOUT_MS, count_max: int = POLL_COUNT_MAX
    ) -> list[ReceivedMessage]:
        """Return the next messages; empty when none arrive in time.

        Args:
            timeout_ms: Limit of the wait for the first one, in milliseconds.
            count_max: Messages at most.

        Raises:
            ClientStateError: the consumer is not running.
        """
        self._require_running()
        checked_limit("timeout_ms", timeout_ms, 0)
        checked_limit("count_max", count_max, 1)
        self._consume_returned()
        now = self.client.monotonic_ms()
        if self._auto_commit and now - self._committed_ms >= self.config.auto_commit_interval_ms:
            await self._commit()
        deadline = now + timeout_ms
        while not self._returned:
            left_ms = deadline - self.client.monotonic_ms()
            if left_ms <= 0:
                break
            await self._buffered.wait(left_ms)
            self._returned = self._buffered.take(count_max)
        return [message for _, message in self._returned]

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages one by one, without end; each counts as consumed when the next is taken."""
        while True:
            for message in await self.poll(count_max=1):
                yield message

    async def commit(self) -> None:
        """Commit what polls returned; sent one-way, as upstream does."""
        self._require_running()
        self._consume_returned()
        await self._commit()

    async def _commit(self) -> None:
        self._committed_ms = self.client.monotonic_ms()
        self._note_positions(self._assignments)
        await self._offsets.persist(tuple(self._assignments))

    def _note_positions(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            if queue in self._positions:
                self._offsets.table.update(queue, self._positions[queue], increase_only=False)

    async def committed_offset(self, queue: MessageQueue) -> int:
        """Return the committed offset of the group in a queue; -1: none.

        Raises:
            OffsetUnknownError: no broker could be queried.
        """
        return await self.client.calls.consumer_offset(self._address(queue), self.group, queue)

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, regardless of other members of the group.

        Args:
            queues: Instead of those that were assigned before.

        Raises:
            ClientStateError: the consumer is not running, or subscribes to a topic.
        """
        self._require_running()
        if self._subscriptions and self._assigned is None:
            raise ClientStateError(
                f"consumer {self.group}", "it subscribes to topics", "assign or subscribe, not both"
            )
        wanted = tuple(dict.fromkeys(checked_values("queues", queues, MessageQueue) or ()))
        for topic in dict.fromkeys(queue.topic for queue in wanted):
            await self.client.routes.refresh(topic)
        self._assigned = wanted
        self._subscriptions = {
            queue.topic: Subscription.of(queue.topic, "*", self._started_ms) for queue in wanted
        }
        await self.rebalance()

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic, as a name server lists them now.

        Raises:
            NoRouteError: no name server knows the topic.
            RemotingError: none answered.
        """
        return await self.client.routes.current_queues(topic)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at a queue offset and drop what was fetched of the queue.

        Raises:
            ClientStateError: the queue is not read here.
        """
        checked_type("queue", queue, MessageQueue)
        checked_limit("offset", offset, 0)
        assignment = self._assignments.get(queue)
        if assignment is None or assignment.is_closing:
            raise ClientStateError(f"queue {queue}", "it is not assigned to this consumer", "see `queues`")
        self._returned = [one for one in self._returned if one[0] is not assignment]
        await self._restart(assignment, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message of a queue; see `seek`."""
        await self.seek(queue, await self.client.calls.min_offset(self._address(queue), queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the last message of a queue; see `seek`."""
        await self.seek(queue, await self.client.calls.max_offset(self._address(queue), queue))

    def pause_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Stop fetching from these queues."""
        self._paused.update(checked_values("queues", queues, MessageQueue) or ())

    def resume_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch from these queues again."""
        self._paused.difference_update(checked_values("queues", queues, MessageQueue) or ())

    # --- for the client instance

    async def rebalance(self) -> bool:
        """Take the assigned queues and drop the others; return whether all of that succeeded."""
        if self._assigned is None:
            return await super().rebalance()
        wanted = self._assigned
        await self._drop_all([queue for queue in self._assignments if queue not in wanted])
        return await self._take([queue for queue in wanted if queue not in self._assignments])

    async def persist_offsets(self) -> None:
        """Do nothing: polls commit, and only with `auto_commit`."""

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Return that the message was not consumed: there is no listener."""
        return ConsumeMessageDirectlyResult(
            consume_result=ConsumeResult.LATER, remark=f"a lite-pull consumer polls; {message} not consumed"
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._returned = []  # the program may not have processed all of them
        await super().__aexit__(kind, error, trace)

    def passed(self, assignment: Assignment, offset: int) -> None:
        """Continue at a queue offset: all messages before it were consumed, or do not match."""
        self._positions[assignment.queue] = offset

    async def _continue_at(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset from which the program continues; `commit` sets it for the group."""
        self._positions[queue] = offset

    async def _drop(self, assignment: Assignment) -> bool:
        """Drop a queue. The messages returned last may not have been consumed."""
        if self._auto_commit:
            self._note_positions([assignment.queue])
        self._positions.pop(assignment.queue, None)
        return await super()._drop(assignment)

    async def _stop_consuming(self) -> None:
        if self._auto_commit:
            self._consume_returned()
            self._note_positions(self._assignments)
        for assignment in self._assignments.values():
            assignment.messages.dropped = True

    def _consume_returned(self) -> None:
        for assignment, message in self._returned:
            if not assignment.messages.dropped:
                offset = assignment.messages.remove([message])
                if offset != NOTHING_CONSUMED:
                    self._positions[assignment.queue] = offset
                assignment.moved.set()
        self._returned = []

    def _address(self, queue: MessageQueue) -> str:
        checked_type("queue", queue, MessageQueue)
        address, _ = self.client.routes.reader(queue.broker_name)
        return address

    def _require_running(self) -> None:
        if not self._running:
            raise ClientStateError(f"consumer {self.group}", "it does not run", "start it, or use `with`")
