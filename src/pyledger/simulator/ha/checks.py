"""Rules that must hold for a master and its slaves; the first violation ends the run."""

from typing import NamedTuple

from pyledger.simulator.ha.log import SimulatedLog
from pyledger.simulator.safety import require


class Acknowledged(NamedTuple):
    """A message whose send was answered with success."""

    number: int
    offset: int
    """Physical offset (bytes) of its record."""
    record: bytes


class HaChecks:
    """Checks acknowledgements, logs and consumer offsets."""

    def __init__(self) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.consumed: dict[int, bytes] = {}
        """The message that the consumer read last at each queue offset."""

    def acknowledge(self, one: Acknowledged, replicas: list[SimulatedLog], wanted: int) -> None:
        """Check at a successful send that `wanted` slaves have the message on disk."""
        end = one.offset + len(one.record)
        have = sum(log.durable_end >= end and log.data[one.offset : end] == one.record for log in replicas)
        require(
            have >= wanted,
            "acknowledged messages are in the logs of slaves",
            f"{one.number}: {have} of {wanted}",
        )
        self.acknowledged.append(one)

    def prefix(self, slave: str, log: SimulatedLog, master: SimulatedLog) -> None:
        """Check that a slave's log is a prefix of what its master has on disk."""
        require(master.data.startswith(log.data), "a slave's log is a prefix of its master's", slave)
        require(log.end <= master.durable_end, "a slave has no bytes that its master may lose", slave)

    def known(self, slave: str, believed: int, log: SimulatedLog) -> None:
        """Check the physical offset (bytes) up to which a master counts on a slave."""
        require(
            believed <= log.durable_end,
            "a master's record of a slave's offset is correct",
            f"{slave} {believed}",
        )

    def leads(self, name: str, log: SimulatedLog) -> None:
        """Check that a new or restarted master has every acknowledged message."""
        for one in self.acknowledged:
            found = log.data[one.offset : one.offset + len(one.record)]
            require(found == one.record, "no acknowledged message is lost", f"{one.number} at {name}")

    def consumed_before(self, name: str, offset: int, log: SimulatedLog) -> None:
        """Check that the consumer has read all messages of a broker before its consumer offset (units)."""
        require(offset <= len(log.ends), "a consumer offset is within the queue", f"{offset} at {name}")
        for number in range(offset):
            same = self.consumed.get(number) == log.message(number)
            require(same, "messages below a consumer offset were consumed", f"{number} at {name}")
