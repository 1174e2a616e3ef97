"""A name server and a broker on a thread of their own, for programs that do not use asyncio: mostly tests."""

from pathlib import Path

from pyledger.config.store import StoreConfig
from pyledger.servers.local.rocketmq import SingleNode
from pyledger.servers.local.thread import BackgroundService
from pyledger.store.messages.message_store import MessageStore

TINY_STORE = StoreConfig(mapped_file_size_bytes=16 << 20, index_slots=10_000, index_entries=100_000)
"""Files that a test can make and remove in no time; a message may still have 4 MiB."""


class BackgroundNode(BackgroundService[SingleNode]):
    """A `SingleNode` that serves within a `with` block."""

    def __init__(self, folder: Path, store: StoreConfig = TINY_STORE) -> None:
        """A node with its store in `folder`, which is made when it is missing."""
        super().__init__(SingleNode(folder, store=store), "pyledger-broker")

    @property
    def address(self) -> str:
        """`host:port` of the name server: what clients need to know."""
        return self._service.address

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker."""
        return self._service.broker.address

    @property
    def folder(self) -> Path:
        """Folder of the store."""
        return self._service.folder

    @property
    def store(self) -> MessageStore:
        """The broker's open store, to look into; messages go in through a producer."""
        return self._service.broker.store

    def bodies(self, topic: str) -> list[bytes]:
        """Bodies of all messages of a topic, unpacked, in the order in which they were stored."""
        return [message.plain_body for message in self.store.messages() if message.topic == topic]
