"""What a client instance knows of the producers and consumers that it serves."""

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
        """Find out what became of a transaction, and tell the broker at `address`."""


class ConsumerMember(Protocol):
    """A consumer."""

    @property
    def group(self) -> str:
        """Its group."""

    def topics(self) -> Collection[str]:
        """Topics that it subscribes to."""

    def entry(self) -> ConsumerEntry:
        """What heartbeats say of it."""

    async def rebalance(self) -> bool:
        """Take the queues that are due and drop the others; returns whether nothing is left undone."""

    async def persist_offsets(self) -> None:
        """Tell how far it is."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go to another place in some queues."""

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Where it stands in each queue of a topic."""

    def running(self) -> ConsumerRunning:
        """All about it."""

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Consume one message now, whatever else there is."""
