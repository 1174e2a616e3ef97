"""Model of a broker's delivery: how many records of each message its log may hold.

Every record of a message is there because a client asked for it, or because the message is of a kind that the
broker stores again, a bounded number of times:

==========================  ==================================================================
what happens                records of the message that it may add
==========================  ==================================================================
a send, a message sent back 1, and 1 more where it waits for its time first
a half message              1
its end                     as a send
a round of checks           1 for each message in the half topic: put back, or given up
a pop                       1 for each message in it that is not acknowledged: put back
anything else               none: not the passing of time, not a restart
==========================  ==================================================================
"""

from collections import Counter
from collections.abc import Iterable


class Descendants:
    """Counts what may be; messages are told apart by their bodies."""

    def __init__(self) -> None:
        self.allowed: Counter[bytes] = Counter()

    def stored(self, body: bytes, *, waits: bool) -> None:
        """A client has stored a message, or a folder came with it."""
        self.allowed[body] += 2 if waits else 1

    def may_be_put_back(self, bodies: Iterable[bytes]) -> None:
        """A round of checks, or a pop."""
        self.allowed.update(bodies)

    def excess(self, bodies: Iterable[bytes]) -> dict[bytes, int]:
        """Records beyond what may be, by body, of a log that holds these."""
        found = Counter(bodies)
        return {body: found[body] - self.allowed[body] for body in found if found[body] > self.allowed[body]}
