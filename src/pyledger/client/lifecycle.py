"""The base class of asyncio clients: `start`, `close`, and `async with` for both."""

from types import TracebackType
from typing import Self


class Lifecycle:
    """Started on entry of `async with`, closed at its end."""

    async def start(self) -> None:
        """Start."""
        raise NotImplementedError

    async def close(self) -> None:
        """Complete what is in flight, and release all resources."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
