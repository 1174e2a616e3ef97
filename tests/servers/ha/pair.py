"""A name server, a master and slaves for the length of a block."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from pyledger.config.broker import BrokerConfig
from pyledger.config.delivery import DeliveryConfig
from pyledger.config.ha import HaConfig
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import TlsConfig
from pyledger.config.store import StoreConfig
from pyledger.servers.broker.ha.replication import SlaveReplication
from pyledger.servers.broker.server import Broker
from pyledger.servers.namesrv.server import NameServer
from pyledger.store.messages.store_engine import StoreEngine
from tests.servers.ha.consumer_view import ConsumerView, same_for_consumers

SMALL = {"mapped_file_size_bytes": 1 << 20, "index_slots": 1000, "index_entries": 4000}
QUICK = {
    "reconnect_interval_ms": 20,
    "sync_first_ms": 50,
    "sync_interval_ms": 100,
    "slave_timeout_ms": 3_600_000,
    "silence_max_ms": 3_600_000,
}


class Pair:
    """Brokers of one name."""

    def __init__(
        self, folder: Path, stack: AsyncExitStack, name_server: NameServer, tls: TlsConfig | None = None
    ) -> None:
        self.folder = folder
        self._tls = tls
        self.name_server = name_server
        self._stack = stack

    async def start(
        self,
        number: int,
        role: str,
        *,
        ha: Mapping[str, Any] | None = None,
        store: Mapping[str, Any] | None = None,
        clock: Any = None,
        **settings: Any,
    ) -> Broker:
        """A broker in the folder of its number; 0 is the master."""
        broker = Broker(
            BrokerConfig(
                **{
                    "port": 0,
                    "broker_id": number,
                    "name_servers": self.name_server.address,
                    "store_path": str(self.folder / str(number)),
                    "admin_enabled": True,
                    **settings,
                }
            ),
            delivery=DeliveryConfig(auto_create_topics=True, slave_read=True, property_filter=True),
            store=StoreConfig(**{**SMALL, **(store or {})}),
            ha=HaConfig(**{"role": role, **QUICK, **(ha or {})}),
            clock=clock,
            tls=self._tls,
        )
        self._stack.push_async_callback(broker.close)
        await broker.start()
        return broker


@asynccontextmanager
async def brokers(folder: Path, *, tls: TlsConfig | None = None) -> AsyncIterator[Pair]:
    """A name server, and brokers as they are started; all are closed at the end."""
    async with AsyncExitStack() as stack:
        name_server = NameServer(NamesrvConfig(port=0, kv_config_path=str(folder / "kv.json")), tls=tls)
        await name_server.start()
        stack.push_async_callback(name_server.close)
        yield Pair(folder, stack, name_server, tls)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; the test's own limit ends it otherwise."""
    while not holds():
        await asyncio.sleep(0.002)


def log_bytes(store: StoreEngine, start: int = 0) -> bytes:
    """The log's bytes from a physical offset on."""
    view = store.log_view()
    size, at, parts = view.file_size_bytes, max(start, view.start_offset), []
    while at < view.end_offset:
        length = min(view.end_offset, at - at % size + size) - at
        parts.append(view.read(at, length))
        at += length
    return b"".join(parts)


def replication(slave: Broker) -> SlaveReplication:
    """The slave's side of a broker."""
    assert slave.context is not None
    found = slave.context.replication
    assert isinstance(found, SlaveReplication)
    return found


async def caught_up(master: Broker, slave: Broker) -> None:
    """Wait until a slave's log ends where the master's does."""
    await until(lambda: slave.store.confirmed_where == master.store.max_offset)


async def same_view(master: Broker, slave: Broker, *, tables: bool = True) -> ConsumerView:
    """Wait until a consumer sees at a slave what it sees at its master; the logs have the same bytes, too.

    Args:
        master: Whose messages they are.
        slave: Has them, as far back as its log goes.
        tables: Whether topics, groups and offsets are compared, which come by the clock.
    """
    await caught_up(master, slave)
    assert log_bytes(slave.store) == log_bytes(master.store, slave.store.min_offset)
    return await same_for_consumers(port_of(master), port_of(slave), tables=tables)


def port_of(one: Broker) -> int:
    """Where a broker takes requests."""
    return int(one.address.rpartition(":")[2])
