"""A name server and a broker on a thread of their own, for programs that do not use asyncio: mostly tests."""

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from pyledger.broker.single_node import SingleNode
from pyledger.config.store import StoreConfig
from pyledger.net.loop import run
from pyledger.store.message_store import MessageStore

TINY_STORE = StoreConfig(mapped_file_size_bytes=16 << 20, index_slots=10_000, index_entries=100_000)
"""Files that a test can make and remove in no time; a message may still have 4 MiB."""


class BackgroundNode:
    """A `SingleNode` that serves within a `with` block."""

    def __init__(self, folder: Path, store: StoreConfig = TINY_STORE) -> None:
        """A node with its store in `folder`, which is made when it is missing."""
        self._node = SingleNode(folder, store=store)
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="pyledger-broker", daemon=True)

    @property
    def address(self) -> str:
        """`host:port` of the name server: what clients need to know."""
        return self._node.address

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker."""
        return self._node.broker.address

    @property
    def folder(self) -> Path:
        """Folder of the store."""
        return self._node.folder

    @property
    def store(self) -> MessageStore:
        """The broker's open store, to look into; messages go in through a producer."""
        return self._node.broker.store

    def bodies(self, topic: str) -> list[bytes]:
        """Bodies of all messages of a topic, unpacked, in the order in which they were stored."""
        return [message.plain_body for message in self.store.messages() if message.topic == topic]

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        try:
            run(self._main())
        except BaseException as failure:  # noqa: BLE001 - it belongs to the thread that waits
            self._failure = failure
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._node.start()
        try:
            self._ready.set()
            await self._stop.wait()
        finally:
            await self._node.close()
