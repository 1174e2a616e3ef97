"""The interface between a client instance and its producers and consumers."""

from collections.abc import Collection, Mapping
from typing import Protocol

from pyledger.model.message import MessageQueue
from pyledger.wire.record.record import ReceivedMessage
from pyledger.wire.remoting.bodies.heartbeat import ConsumerEntry
from pyledger.wire.remoting.bodies.statistics import ConsumeMessageDirectlyResult, ConsumerRunning
from pyledger.wire.remoting.headers.send import CheckTransactionStateRequestHeader


class ProducerMember(Protocol):
    """A producer."""

    @property
    def group(self) -> str:
        """Its group."""

    def topics(self) -> Collection[str]:
        """Topics that it has sent to."""

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage
    ) -> None:
        """Check a transaction and send its state to the broker at `address`."""


class ConsumerMember(Protocol):
    """A consumer."""

    @property
    def group(self) -> str:
        """Its group."""

    def topics(self) -> Collection[str]:
        """Topics that it subscribes to."""

    def entry(self) -> ConsumerEntry:
        """Return its entry in a heartbeat."""

    async def rebalance(self) -> bool:
        """Take the assigned queues and drop the others; return whether all of that succeeded."""

    async def persist_offsets(self) -> None:
        """Persist the offsets that have changed."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other queue offsets."""

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the queue offset from which it continues, for each queue of a topic."""

    def running(self) -> ConsumerRunning:
        """Return its settings, subscriptions, queues and rates."""

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Consume one message now, regardless of flow control."""
