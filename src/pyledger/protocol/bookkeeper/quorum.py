"""How many responses are enough: write sets, ack quorums, coverage.

Source: BookKeeper client/RoundRobinDistributionSchedule.java.
"""

from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.result_codes import ABSENT, Result


class Coverage:
    """Whether enough bookies of an ensemble have answered that no confirmed entry can be missed.

    In every write set, fewer bookies than an ack quorum may be without a response.
    """

    __slots__ = ("_ack_quorum", "_known", "_write_quorum")

    def __init__(self, metadata: LedgerMetadata) -> None:
        """No bookie has answered."""
        self._write_quorum, self._ack_quorum = metadata.write_quorum, metadata.ack_quorum
        self._known = [False] * metadata.ensemble_size

    def answered(self, index: int, result: Result) -> None:
        """Handle a response; only good results and those that state an absence count."""
        if result is Result.OK or result in ABSENT:
            self._known[index] = True

    @property
    def covered(self) -> bool:
        """Whether the responses are enough."""
        size = len(self._known)
        return all(
            sum(not self._known[(first + at) % size] for at in range(self._write_quorum)) < self._ack_quorum
            for first in range(size)
        )


def absent_after(metadata: LedgerMetadata) -> int:
    """Return how many bookies of a write set must report no entry before it counts as never confirmed."""
    return metadata.write_quorum - metadata.ack_quorum + 1
