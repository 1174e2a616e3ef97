"""Answers about all topics or all brokers: other connections are served while one is made.

A request of a few bytes may ask for all topics that brokers have registered, or for the few of them that have
a flag. So an answer is kept as long as the route table stands, one is made at a time, and who asks while one
is made waits for it, or for the next.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Hashable, Iterable
from itertools import groupby, islice
from typing import NamedTuple

from pyledger.protocol.namesrv.route_rules import TOPICS_AT_ONCE
from pyledger.protocol.namesrv.route_table import RouteTable
from pyledger.wire.remoting.bodies.topic_config import encode_topic_names, topic_list_of

KEPT_MAX = 8


class Made(NamedTuple):
    """An answer that was made."""

    number: int
    """How many were begun before it, and one."""
    generation: int
    """Of the table, when it was begun."""
    body: bytes


class LargeAnswers:
    """The answers of one route table."""

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
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
            if made is None or (made.generation != self._routes.generation and made.number <= asked):
                self._begun += 1
                begun = self._begun, self._routes.generation
                self._made.pop(key, None)
                made = self._made[key] = Made(*begun, await make())
                while len(self._made) > KEPT_MAX:
                    del self._made[next(iter(self._made))]
            return made.body


async def topic_list(parts: Iterable[list[str]]) -> bytes:
    """A list of topics in the order of their names, each once.

    Args:
        parts: The names, in parts that cost little each; one may come twice.
    """
    ordered = []
    for part in parts:
        ordered.append(sorted(part))
        await asyncio.sleep(0)
    names = (name for name, _ in groupby(heapq.merge(*ordered)))
    encoded = []
    while some := list(islice(names, TOPICS_AT_ONCE)):
        encoded.append(encode_topic_names(some))
        await asyncio.sleep(0)
    return topic_list_of(encoded)
