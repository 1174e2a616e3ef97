"""The port to a cluster's metadata: a tree of small nodes, as ZooKeeper has it.

A node has data and a version that grows with each change. Ephemeral nodes end with their maker's session.
Watches tell states, not events: what lies between two states that are told may be missed, the last never is.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Self

from pyledger.errors import NodeExistsError, NoNodeError

SEQUENCE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Node:
    """One state of a node."""

    data: bytes
    version: int
    ephemeral: bool = False


class MetadataStore(ABC):
    """One session with a store. Belongs to one event loop. Use it with `async with`, or start and close it.

    Paths begin with `/`. Whatever reaches the store late or not at all raises MetadataUnreachableError; a
    change that raises it may have been made: whoever goes on has to look.
    """

    @abstractmethod
    async def start(self) -> None:
        """Connect.

        Raises:
            MetadataUnreachableError: Nobody answers.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the session, and with it its ephemeral nodes. Idempotent."""

    @abstractmethod
    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Make a node; its path, which has a number of ten digits more when `sequence` is asked for.

        Raises:
            NodeExistsError: There is one.
            NoNodeError: Its parent is missing.
        """

    @abstractmethod
    async def get(self, path: str) -> Node | None:
        """A node; None: there is none."""

    @abstractmethod
    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Change a node that still has a version; the new version. None: whatever version it has.

        Raises:
            NodeVersionError: Somebody else has changed it.
            NoNodeError: There is none.
        """

    @abstractmethod
    async def delete(self, path: str, version: int | None = None) -> None:
        """Remove a node that still has a version. None: whatever version it has.

        Raises:
            NodeVersionError: Somebody else has changed it.
            NodeNotEmptyError: It has children.
            NoNodeError: There is none.
        """

    @abstractmethod
    async def children(self, path: str) -> tuple[str, ...]:
        """Names of a node's children, sorted.

        Raises:
            NoNodeError: There is no such node.
        """

    @abstractmethod
    def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        """A node as it is now, then as it is after changes; None while there is none."""

    @abstractmethod
    def watch_children(self, path: str) -> AsyncGenerator[tuple[str, ...] | None, None]:
        """Names of a node's children now, then after changes; None while there is no such node."""

    @abstractmethod
    def sessions(self) -> AsyncGenerator[str, None]:
        """Name of the session, then of each that follows one that was lost.

        A lost session has taken its ephemeral nodes with it: whoever made them makes them again.
        """

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def ensure(self, path: str) -> None:
        """Make a node without data, and all above it, where they are missing."""
        at = ""
        for name in path.strip("/").split("/"):
            at = f"{at}/{name}"
            if await self.get(at) is None:
                try:
                    await self.create(at)
                except NodeExistsError:
                    continue

    async def walk(self, path: str) -> AsyncIterator[tuple[str, Node]]:
        """A node and all below it, parents first, siblings by name; without nodes that vanish meanwhile."""
        node = await self.get(path)
        if node is None:
            return
        yield path, node
        try:
            names = await self.children(path)
        except NoNodeError:
            return
        for name in names:
            async for found in self.walk(f"{path.rstrip('/')}/{name}"):
                yield found
