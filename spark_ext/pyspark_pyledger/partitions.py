"""What a task reads: a range of a folder, or of a queue at a broker."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pyledger.arrow import Partition
from pyledger.model.message import MessageQueue


@dataclass(frozen=True, slots=True)
class BrokerRange:
    """Queue offsets [start, end) of one queue at one broker."""

    broker_name: str
    topic: str
    queue_id: int
    start: int
    end: int
    addresses: tuple[tuple[int, str], ...] = ()
    """Ids and addresses of the brokers of this name when it was planned: a task needs no name server."""

    @property
    def queue(self) -> MessageQueue:
        """As the client names it."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


AnyPartition = Partition | BrokerRange


class LedgerPartition(InputPartition):
    """A partition as Spark carries it."""

    def __init__(self, part: AnyPartition) -> None:
        super().__init__(part)
