"""A name server and a broker in one process with one folder, for development and tests."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.fields import checked_type
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig
from pyledger.config.store import StoreConfig
from pyledger.servers.broker.server import Broker
from pyledger.servers.local.thread import BackgroundService
from pyledger.servers.namesrv.server import NameServer
from pyledger.store.messages.message_store import MessageStore

KV_FILE = "kvConfig.json"
SMALL_STORE = StoreConfig(mapped_file_size_bytes=64 << 20, index_slots=500_000, index_entries=2_000_000)
"""Small files, which are created fast; existing files keep their size."""
OPEN_DELIVERY = DeliveryConfig(auto_create_topics=True, property_filter=True)


class LocalRocketMQ:
    """Listens on loopback, creates topics on first use, and takes administrative requests from any client."""

    def __init__(
        self,
        folder: Path,
        *,
        name_server_port: int = 0,
        port: int = 0,
        delivery: DeliveryConfig = OPEN_DELIVERY,
        store: StoreConfig = SMALL_STORE,
        net: NetConfig | None = None,
    ) -> None:
        """Create both servers without starting them.

        Args:
            folder: Folder of the store, created when it is missing.
            name_server_port: Port of the name server; 0 takes a free one.
            port: Port of the broker; 0 takes a free one.
            delivery: The rules of sending and consuming.
            store: Settings of the store.
            net: Limits of connections.
        """
        self.folder = folder
        self._net = net
        self.name_server = NameServer(
            NamesrvConfig(port=name_server_port, kv_config_path=str(folder / KV_FILE), admin_enabled=True),
            net=net,
        )
        self._config = BrokerConfig(port=port, store_path=str(folder), admin_enabled=True)
        self._delivery, self._store = delivery, store
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The running broker.

        Raises:
            RuntimeError: the node is not started.
        """
        if self._broker is None:
            raise RuntimeError("the node is not started")
        return self._broker

    @property
    def address(self) -> str:
        """`host:port` of the name server, for clients."""
        return self.name_server.address

    async def start(self) -> None:
        """Start the name server, then the broker; return when the broker is registered.

        Raises:
            ListenError: an address is in use.
            StoreError: the store cannot be opened.
        """
        await self.name_server.start()
        config = replace(self._config, name_servers=self.name_server.address)
        self._broker = Broker(
            config,
            delivery=self._delivery,
            store=self._store,
            net=self._net,
        )
        try:
            await self._broker.start()
        except BaseException:
            await self.name_server.close()
            raise

    async def close(self) -> None:
        """Stop both. Idempotent."""
        if self._broker is not None:
            await self._broker.close()
        await self.name_server.close()


TINY_STORE = StoreConfig(mapped_file_size_bytes=16 << 20, index_slots=10_000, index_entries=100_000)
"""Files that a test creates and removes fast; a message may still have 4 MiB."""


class LocalBroker(BackgroundService[LocalRocketMQ]):
    """A name server and a broker that serve within a `with` block, for tests."""

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, store: StoreConfig | None = None
    ) -> None:
        """Prepare a name server and a broker on free ports of loopback.

        Args:
            folder: Folder of the store, created when missing; None: a temporary one, deleted at the end.
            store: Settings of the store; None: small files, which are created and removed quickly.

        Raises:
            ConfigError: `store` has another type.
        """
        checked_type("store", store, StoreConfig | None)
        make = partial(LocalRocketMQ, store=store or TINY_STORE)
        super().__init__(None if folder is None else Path(folder), make, "pyledger-broker")

    @property
    def address(self) -> str:
        """`host:port` of the name server, for clients."""
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
        """The broker's open store, for reading; send messages with a producer."""
        return self._service.broker.store

    def bodies(self, topic: str) -> list[bytes]:
        """Return the decompressed bodies of all messages of a topic in the order of the log."""
        return [message.plain_body for message in self.store.messages() if message.topic == topic]
