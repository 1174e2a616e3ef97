"""A group of members of ours on loopback, in one process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pyledger.client.dledger import DLedgerClient
from pyledger.config.dledger import DLedgerConfig
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.config.net import NetConfig
from pyledger.errors import DLedgerRejectedError, OutcomeUnknownError
from pyledger.servers.dledger.server import DLedgerServer
from tests.support.ports import free_ports

SMALL = DLedgerStoreConfig(data_file_size_bytes=1 << 16, index_file_size_bytes=1 << 12)
CALM = DLedgerConfig(
    max_heart_beat_leak=1000,
    max_wait_ack_time_ms=60_000,
    rpc_timeout_ms=60_000,
    leadership_transfer_wait_timeout_ms=60_000,
)
"""For groups that must keep their leader, even if the machine pauses for a while."""
TIMEOUT_MS = 60_000


class Group:
    """Members by id; each may be stopped and started."""

    def __init__(
        self,
        folder: Path,
        size: int,
        config: DLedgerConfig | None = None,
        *,
        store: DLedgerStoreConfig = SMALL,
        net: NetConfig | None = None,
    ) -> None:
        self.folder, self.config, self.store, self.net = folder, config, store, net
        ports = free_ports(size)
        self.peers = ";".join(f"n{n}-127.0.0.1:{port}" for n, port in enumerate(ports))
        self.members: dict[str, DLedgerServer] = {}

    async def start(self, *ids: str) -> None:
        for one in ids:
            server = DLedgerServer(
                "g", one, self.peers, str(self.folder), config=self.config, store=self.store, net=self.net
            )
            await server.start()
            self.members[one] = server

    async def stop(self, one: str) -> None:
        await self.members.pop(one).close()

    async def leader(self) -> str:
        """Wait until a member leads in the highest term and the others follow it."""

        def found() -> str | None:
            leaders = {server.node.state.leader_id for server in self.members.values()}
            one = leaders.pop()
            return one if not leaders and one in self.members else None

        return str(await until(found))

    def path(self, one: str) -> Path:
        return self.folder / f"dledger-{one}"


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition returns a true value, and return it; the timeout is that of the test."""
    while not (found := condition()):
        await asyncio.sleep(0.01)
    return found


@asynccontextmanager
async def group_of(
    folder: Path, size: int, config: DLedgerConfig | None = None, **options: Any
) -> AsyncIterator[Group]:
    group = Group(folder, size, config, **options)
    await group.start(*(f"n{n}" for n in range(size)))
    try:
        yield group
    finally:
        for one in list(group.members):
            await group.stop(one)


async def append_surely(asking: DLedgerClient, body: bytes) -> int:
    """Retry an append until one is acknowledged; earlier ones may be in the log, too."""
    while True:
        try:
            return (await asking.append(body)).index
        except OutcomeUnknownError:
            continue


async def hand_over(asking: DLedgerClient, to: str) -> None:
    """Let a member lead. A transfer fails when a third member campaigns before the heartbeat arrives."""
    while (await asking.append(b"who leads?")).leader_id != to:
        with suppress(DLedgerRejectedError):
            await asking.transfer(to)


def client(group: Group, **options: Any) -> DLedgerClient:
    return DLedgerClient("g", group.peers, timeout_ms=TIMEOUT_MS, **options)


def on_a_loop(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]
