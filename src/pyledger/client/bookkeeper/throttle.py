"""A limit on the rate of adds or copies."""

import asyncio


class Throttle:
    """Limits bytes or entries per second. Belongs to one event loop."""

    def __init__(self, per_second: int) -> None:
        """Set the limit; 0 or less means no limit."""
        self._rate = per_second
        self._free_at = 0.0

    async def wait(self, count: int) -> None:
        """Wait until `count` more bytes or entries are within the limit."""
        if self._rate > 0:
            now = asyncio.get_running_loop().time()
            self._free_at = max(now, self._free_at) + count / self._rate
            await asyncio.sleep(self._free_at - now)
