"""Answers that cost as much as a whole table: other connections are served while one is made.

A request of a few bytes may ask for all that others have registered. So an answer is kept as long as the
table stands, one is made at a time, and who asks while one is made waits for it, or for the next.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

KEPT_MAX = 8


class Made(NamedTuple):
    """An answer that was made."""

    number: int
    """How many were begun before it, and one."""
    edition: Hashable
    """Of the table, when it was begun."""
    body: bytes


class LargeAnswers:
    """The answers about one table."""

    def __init__(self, edition: Callable[[], Hashable]) -> None:
        """None is made yet.

        Args:
            edition: Differs after each change of the table.
        """
        self._edition = edition
        self._making = asyncio.Lock()
        self._begun = 0
        self._made: dict[Hashable, Made] = {}

    async def body(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The body of an answer, not older than the question.

        Args:
            key: What is asked for.
            make: Makes it, without holding up the event loop.
        """
        asked = self._begun
        async with self._making:
            made = self._made.get(key)
            if made is None or (made.edition != self._edition() and made.number <= asked):
                self._begun += 1
                begun = self._begun, self._edition()
                self._made.pop(key, None)
                made = self._made[key] = Made(*begun, await make())
                while len(self._made) > KEPT_MAX:
                    del self._made[next(iter(self._made))]
            return made.body
