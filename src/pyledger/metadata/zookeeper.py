"""The metadata store in ZooKeeper, as Java's clients and bookies use it.

A lost connection is reopened: in the same session while the servers keep it, then in a new one.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from pyledger.errors import (
    MetadataUnreachableError,
    MissingExtraError,
    NodeExistsError,
    NodeNotEmptyError,
    NodeVersionError,
    NoNodeError,
)
from pyledger.log_events import logger
from pyledger.metadata.change_signal import Signal
from pyledger.metadata.store import MetadataStore, Node

try:
    from kazoo import exceptions as faults
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.protocol.states import KazooState
except ImportError as error:
    raise MissingExtraError("ZooKeeper", "kazoo", "ledger") from error

log = logger("metadata.zookeeper")
# Nothing is printed unless the application adds a handler: all failures are also raised.
log.addHandler(logging.NullHandler())

T = TypeVar("T")

SESSION_TIMEOUT_MS = 10_000
ANY_VERSION = -1
FOR_EVER = {"max_tries": -1, "max_delay": 1}
"""By default kazoo gives up a connection after one attempt."""
_FAULTS: dict[type[Exception], type[Exception]] = {
    faults.NodeExistsError: NodeExistsError,
    faults.NoNodeError: NoNodeError,
    faults.NoChildrenForEphemeralsError: NoNodeError,
    faults.BadVersionError: NodeVersionError,
    faults.NotEmptyError: NodeNotEmptyError,
}


class ZooKeeperStore(MetadataStore):
    """A session with ZooKeeper."""

    def __init__(self, hosts: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        """Create a session; `start` begins it.

        Args:
            hosts: `host:port,host:port`.
            session_timeout_ms: Silence after which servers end the session; also a call's timeout.
        """
        self.hosts = hosts
        self._timeout_s = session_timeout_ms / 1000
        self._client: Any = KazooClient(
            hosts=hosts, timeout=self._timeout_s, connection_retry=FOR_EVER, logger=log
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connected = Signal()
        self._closed = False

    async def start(self) -> None:
        """Connect."""
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._state_changed)
        try:
            await asyncio.to_thread(self._client.start, timeout=self._timeout_s)
        except (KazooTimeoutError, OSError) as error:
            await self.close()
            raise MetadataUnreachableError(self.hosts, str(error)) from None

    async def close(self) -> None:
        """Close the session."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._client.stop)
        await asyncio.to_thread(self._client.close)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """See `MetadataStore`."""
        made = partial(self._client.create_async, path, data, ephemeral=ephemeral, sequence=sequence)
        return str(await self._change(path, made))

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore`."""
        try:
            data, stat = await self._read(path, partial(self._client.get_async, path))
        except NoNodeError:
            return None
        return Node(data, stat.version, stat.ephemeralOwner != 0)

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """See `MetadataStore`."""
        expected = ANY_VERSION if version is None else version
        stat = await self._change(path, partial(self._client.set_async, path, data, expected))
        return int(stat.version)

    async def delete(self, path: str, version: int | None = None) -> None:
        """See `MetadataStore`."""
        expected = ANY_VERSION if version is None else version
        await self._change(path, partial(self._client.delete_async, path, expected))

    async def children(self, path: str) -> tuple[str, ...]:
        """See `MetadataStore`."""
        return tuple(sorted(await self._read(path, partial(self._client.get_children_async, path))))

    async def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        """See `MetadataStore`."""

        async def read(changed: Callable[[Any], None]) -> Node | None:
            # For a missing node, only `exists` sets a watch on its creation.
            await self._read(path, partial(self._client.exists_async, path, watch=changed))
            return await self.get(path)

        async for state in self._states(read):
            yield state

    async def watch_children(self, path: str) -> AsyncGenerator[tuple[str, ...] | None, None]:
        """See `MetadataStore`."""

        async def read(changed: Callable[[Any], None]) -> tuple[str, ...] | None:
            while True:
                try:
                    names = partial(self._client.get_children_async, path, watch=changed)
                    return tuple(sorted(await self._read(path, names)))
                except NoNodeError:
                    exists = partial(self._client.exists_async, path, watch=changed)
                    if await self._read(path, exists) is None:
                        return None

        async for state in self._states(read):
            yield state

    async def sessions(self) -> AsyncGenerator[str, None]:
        """See `MetadataStore`."""

        async def read(_changed: Callable[[Any], None]) -> str:
            return f"{(self._client.client_id or (0,))[0]:x}"

        async for state in self._states(read):
            yield state

    # --- inside

    async def _states(self, read: Callable[[Callable[[Any], None]], Awaitable[T]]) -> AsyncGenerator[T, None]:
        """Yield the result of `read` each time it may have changed: after a watch or a new connection."""
        signal = Signal()

        def changed(_event: Any) -> None:
            self._from_thread(signal.give)

        async def reconnected() -> None:
            seen = self._connected.count
            while True:
                await self._connected.wait(seen)
                seen = self._connected.count
                signal.give()

        follows = asyncio.get_running_loop().create_task(reconnected())
        try:
            seen = signal.count
            yielded = await read(changed)
            yield yielded
            while True:
                await signal.wait(seen)
                seen = signal.count
                try:
                    state = await read(changed)
                except MetadataUnreachableError:
                    if self._closed:
                        raise
                    continue  # the next connection repeats it
                if state != yielded:
                    yielded = state
                    yield state
        finally:
            follows.cancel()

    async def _read(self, path: str, begin: Callable[[], Any]) -> Any:
        """Repeat a read on the next connection, until its timeout."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            try:
                return await self._change(path, begin)
            except MetadataUnreachableError:
                if self._closed or asyncio.get_running_loop().time() >= deadline:
                    raise

    async def _change(self, path: str, begin: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            raise MetadataUnreachableError(self.hosts, "this session is closed")
        begin().rawlink(lambda result: self._from_thread(partial(settle, future, result)))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            raise MetadataUnreachableError(self.hosts, "it does not respond") from None
        except tuple(_FAULTS) as fault:
            raise _FAULTS[next(kind for kind in _FAULTS if isinstance(fault, kind))](path) from None
        except (faults.KazooException, KazooTimeoutError) as fault:
            problem = f"{type(fault).__name__} {fault}".strip()
            raise MetadataUnreachableError(self.hosts, problem) from None

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._from_thread(self._connected.give)

    def _from_thread(self, call: Callable[[], None]) -> None:
        # The loop may be closed when a late response arrives.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call)


def settle(future: asyncio.Future[Any], result: Any) -> None:
    """Complete a future with the result of a call."""
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)
