"""What must hold for brokers of one name, whatever goes wrong; the first breach ends the run."""

from typing import NamedTuple

from pyledger.simulator.ha.log import SimulatedLog
from pyledger.simulator.safety import require


class Acknowledged(NamedTuple):
    """A message whose sender was told that enough brokers have it."""

    number: int
    offset: int
    """Physical offset (bytes) of its record."""
    record: bytes


class HaChecks:
    """Looks at acknowledgements, logs and offsets of consumers."""

    def __init__(self) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.consumed: dict[int, bytes] = {}
        """What the consumer read last at each queue offset."""

    def acknowledge(self, one: Acknowledged, replicas: list[SimulatedLog], wanted: int) -> None:
        """A send is answered with success: so many logs of slaves must have the message, on disk."""
        end = one.offset + len(one.record)
        have = sum(log.durable_end >= end and log.data[one.offset : end] == one.record for log in replicas)
        require(have >= wanted, "acknowledged is on the logs of slaves", f"{one.number}: {have} of {wanted}")
        self.acknowledged.append(one)

    def prefix(self, slave: str, log: SimulatedLog, master: SimulatedLog) -> None:
        """A slave follows: its log begins as its master's does, and ends where that is on disk."""
        require(master.data.startswith(log.data), "a slave's log is a prefix of its master's", slave)
        require(log.end <= master.durable_end, "a slave has nothing that its master may lose", slave)

    def known(self, slave: str, believed: int, log: SimulatedLog) -> None:
        """A master counts a slave as having all before a physical offset (bytes)."""
        require(
            believed <= log.durable_end, "what a master believes of a slave is true", f"{slave} {believed}"
        )

    def leads(self, name: str, log: SimulatedLog) -> None:
        """A broker becomes master, or is again: nothing acknowledged is missing."""
        for one in self.acknowledged:
            found = log.data[one.offset : one.offset + len(one.record)]
            require(found == one.record, "no acknowledged message is lost", f"{one.number} at {name}")

    def consumed_before(self, name: str, offset: int, log: SimulatedLog) -> None:
        """By a broker the consumer is at a queue offset (units): it has read all before, as it is here."""
        require(offset <= len(log.ends), "an offset of a consumer is in the queue", f"{offset} at {name}")
        for number in range(offset):
            same = self.consumed.get(number) == log.message(number)
            require(same, "what counts as consumed was consumed", f"{number} at {name}")
