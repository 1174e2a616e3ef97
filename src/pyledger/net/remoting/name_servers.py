"""Which name server a client uses.

The list is shuffled when it is set, and each new choice takes the next one, so that many clients spread out.

Source: RocketMQ remoting/.../netty/NettyRemotingClient.java (updateNameServerAddressList).
"""

from collections.abc import Iterable
from random import Random


class NameServerList:
    """Addresses of name servers in the order in which they are tried."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = random.randrange(999)
        self.addresses: tuple[str, ...] = ()

    def update(self, addresses: Iterable[str]) -> bool:
        """Take a new list; returns whether it differs from the last one, in whatever order."""
        wanted = list(dict.fromkeys(addresses))
        if sorted(wanted) == sorted(self.addresses):
            return False
        self._random.shuffle(wanted)
        self.addresses = tuple(wanted)
        return True

    def rotation(self) -> list[str]:
        """All addresses, from the next choice on. The choice moves on by one."""
        if not self.addresses:
            return []
        self._next = (self._next + 1) % len(self.addresses)
        return [*self.addresses[self._next :], *self.addresses[: self._next]]


def parse_addresses(text: str) -> list[str]:
    """The addresses of `host:port;host:port`."""
    return [part.strip() for part in text.split(";") if part.strip()]
