"""The interface to a cluster's metadata: a tree of small nodes, as in ZooKeeper.

A node has data and a version that grows with each change. Ephemeral nodes end with the session that created
them. Watches yield states, not events: states in between may be missed, the last one never is.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Self

from pyledger.errors import NodeExistsError, NoNodeError

SEQUENCE_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Node:
    """State of a node."""

    data: bytes
    version: int
    ephemeral: bool = False


class MetadataStore(ABC):
    """One session with a store. Belongs to one event loop. Use it with `async with`, or start and close it.

    Paths begin with `/`. A call that gets no response in time raises MetadataUnreachableError. A change that
    raises it may have been made; the caller must read to find out.
    """

    @abstractmethod
    async def start(self) -> None:
        """Connect.

        Raises:
            MetadataUnreachableError: No server responds.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the session and delete its ephemeral nodes. Idempotent."""

    @abstractmethod
    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a node and return its path; `sequence` appends a number of ten digits to it.

        Raises:
            NodeExistsError: The node exists.
                NoNodeError: Its parent is missing.
        """

    @abstractmethod
    async def get(self, path: str) -> Node | None:
        """Return a node; None if it does not exist."""

    @abstractmethod
    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Change a node if it has this version (None: any version); return the new version.

        Raises:
            NodeVersionError: Another client has changed it.
            NoNodeError: It does not exist.
        """

    @abstractmethod
    async def delete(self, path: str, version: int | None = None) -> None:
        """Delete a node if it has this version (None: any version).

        Raises:
            NodeVersionError: Another client has changed it.
            NodeNotEmptyError: It has children.
            NoNodeError: It does not exist.
        """

    @abstractmethod
    async def children(self, path: str) -> tuple[str, ...]:
        """Return the names of a node's children, sorted.

        Raises:
            NoNodeError: The node does not exist.
        """

    @abstractmethod
    def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        """Yield a node now and after changes; None while it does not exist."""

    @abstractmethod
    def watch_children(self, path: str) -> AsyncGenerator[tuple[str, ...] | None, None]:
        """Yield the names of a node's children now and after changes; None while it does not exist."""

    @abstractmethod
    def sessions(self) -> AsyncGenerator[str, None]:
        """Yield the name of the session, then of each session that replaces a lost one.

        The ephemeral nodes of a lost session are gone; the caller must recreate them.
        """

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def ensure(self, path: str) -> None:
        """Create a node without data and its parents, if they do not exist."""
        at = ""
        for name in path.strip("/").split("/"):
            at = f"{at}/{name}"
            if await self.get(at) is None:
                try:
                    await self.create(at)
                except NodeExistsError:
                    continue

    async def walk(self, path: str) -> AsyncIterator[tuple[str, Node]]:
        """Yield a node and all below it, parents first, siblings by name; skip nodes deleted meanwhile."""
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
