"""How fast something goes at most."""

import asyncio


class Pace:
    """So much a second at most: bytes, or entries. Belongs to one event loop."""

    def __init__(self, per_second: int) -> None:
        """0 or less: any number."""
        self._rate = per_second
        self._free_at = 0.0

    async def wait(self, count: int) -> None:
        """Wait until so much may be done, after what came before."""
        if self._rate > 0:
            now = asyncio.get_running_loop().time()
            self._free_at = max(now, self._free_at) + count / self._rate
            await asyncio.sleep(self._free_at - now)
