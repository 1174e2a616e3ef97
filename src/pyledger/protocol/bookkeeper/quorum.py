"""Which answers are enough: write sets, acknowledgements, coverage.

Source: BookKeeper client/RoundRobinDistributionSchedule.java.
"""

from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.result_codes import ABSENT, Result


class Coverage:
    """Whether so many bookies of an ensemble have answered that an entry confirmed before could not hide.

    Every run of a write quorum of neighbours must hold fewer silent places than an ack quorum has.
    """

    __slots__ = ("_ack_quorum", "_known", "_write_quorum")

    def __init__(self, metadata: LedgerMetadata) -> None:
        """Nobody has answered."""
        self._write_quorum, self._ack_quorum = metadata.write_quorum, metadata.ack_quorum
        self._known = [False] * metadata.ensemble_size

    def answered(self, place: int, result: Result) -> None:
        """A bookie answered; whatever is neither good nor a promise of absence leaves its place silent."""
        if result is Result.OK or result in ABSENT:
            self._known[place] = True

    @property
    def covered(self) -> bool:
        """Whether the answers are enough."""
        size = len(self._known)
        return all(
            sum(not self._known[(first + at) % size] for at in range(self._write_quorum)) < self._ack_quorum
            for first in range(size)
        )


def absent_after(metadata: LedgerMetadata) -> int:
    """How many bookies of a write set must deny an entry, so that it cannot have been confirmed."""
    return metadata.write_quorum - metadata.ack_quorum + 1
