"""Responses with a whole table: other connections are served while one is built.

A request of a few bytes may query all that others have registered. So a response is cached until the table
changes, and only one is built at a time; requests that arrive meanwhile wait for it, or for the next.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

KEPT_MAX = 8


class Made(NamedTuple):
    """A response that was built."""

    number: int
    """Sequence number, from 1."""
    edition: Hashable
    """Version of the table when the response was begun."""
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
        """The body of an answer, not older than the request.

        Args:
            key: Identifies the answer.
            make: Makes it, without holding up the event loop.
        """
        begun_before = self._begun
        async with self._making:
            made = self._made.get(key)
            if made is None or (made.edition != self._edition() and made.number <= begun_before):
                self._begun += 1
                begun = self._begun, self._edition()
                self._made.pop(key, None)
                made = self._made[key] = Made(*begun, await make())
                while len(self._made) > KEPT_MAX:
                    del self._made[next(iter(self._made))]
            return made.body
