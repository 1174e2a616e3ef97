"""How many requests may be in flight at once."""

import asyncio
from collections import OrderedDict

from pyledger.errors import RemotingTooMuchRequestError


class Permits:
    """A counted number of permits; waiters get them in the order they came.

    Invariant: while somebody waits, no permit is free.
    """

    __slots__ = ("_waiters", "free", "limit", "setting")

    def __init__(self, setting: str, limit: int) -> None:
        self.setting = setting
        self.limit = limit
        self.free = limit
        self._waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    def try_take(self) -> bool:
        """Take a permit if one is free."""
        if self.free:
            self.free -= 1
            return True
        return False

    async def take(self, timeout_ms: float, address: str) -> None:
        """Take a permit for a request to `address`, waiting for one at most `timeout_ms`.

        Raises:
            RemotingTooMuchRequestError: none became free in time.
        """
        if self.try_take():
            return
        if timeout_ms <= 0:
            raise self.exhausted(address)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except BaseException as error:
            if self._waiters.pop(waiter, self) is self and not waiter.cancelled():
                self.give()  # it was given to us too late
            if isinstance(error, TimeoutError):
                raise self.exhausted(address) from None
            raise

    def give(self) -> None:
        """Give a permit back."""
        while self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free += 1

    def exhausted(self, address: str) -> RemotingTooMuchRequestError:
        """The error of a request to `address` that got none."""
        return RemotingTooMuchRequestError(address, self.limit, self.setting)
