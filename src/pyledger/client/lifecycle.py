"""What all clients on asyncio have in common: they start, they close, `async with` does both."""

from types import TracebackType
from typing import Self


class Lifecycle:
    """Started on entry of `async with`, closed at its end."""

    async def start(self) -> None:
        """Begin."""
        raise NotImplementedError

    async def close(self) -> None:
        """End, in good order."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
