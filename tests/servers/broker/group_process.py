"""Brokers of one DLedger group, each a process by a `broker.conf`, with a name server in this one."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from pyledger.config.namesrv import NamesrvConfig
from pyledger.servers.namesrv.server import NameServer
from tests.cli.command_line import COMMAND, ENVIRONMENT
from tests.support.ports import free_ports

NAME = "RaftNode00"
SETTINGS = {
    "brokerClusterName": "DLedgerCluster",
    "brokerName": NAME,
    "listenPort": 0,
    "enableDLegerCommitLog": "true",
    "dLegerGroup": NAME,
    "mappedFileSizeCommitLog": 1 << 20,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "autoCreateTopicEnable": "true",
    # A loaded machine may keep a leader from running for longer than our defaults allow.
    "heartBeatTimeIntervalMs": 400,
    "heart_beat_jitter_ms": 200,
    # No put is given up: what is late on a loaded machine comes.
    "syncFlushTimeout": 3_600_000,
}


class GroupProcesses:
    """`pyledger broker --config` for each member; the store of member `n0` is in the folder `n0`."""

    def __init__(
        self, folder: Path, size: int, name_server: NameServer, settings: Mapping[str, object]
    ) -> None:
        self.folder = folder
        self.name_server = name_server
        ports = free_ports(size)
        self.ids = [f"n{number}" for number in range(size)]
        self._settings = {**SETTINGS, **settings}
        self.peers = ";".join(f"{one}-127.0.0.1:{port}" for one, port in zip(self.ids, ports, strict=True))
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}

    @property
    def leader(self) -> str | None:
        """The member whose broker the name server knows as master."""
        route = self.name_server.routes.clusters().brokers.get(NAME)
        address = None if route is None else route.broker_addrs.get(0)
        return next((one for one in self.running if self.addresses.get(one) == address), None)

    async def start(self, one: str) -> None:
        """Start a member's broker, and wait until it answers."""
        conf = self.folder / f"{one}.conf"
        own = {
            "dLegerPeers": self.peers,
            "dLegerSelfId": one,
            "storePathRootDir": self.folder / one,
            "namesrvAddr": self.name_server.address,
        }
        conf.write_text("".join(f"{name}={value}\n" for name, value in {**self._settings, **own}.items()))
        with (self.folder / f"{one}.log").open("a") as log:
            started = subprocess.Popen(
                [*COMMAND, "broker", "--config", str(conf)],
                stdout=subprocess.PIPE, stderr=log, text=True, env=ENVIRONMENT,
            )  # fmt: skip
        self.running[one] = started
        assert started.stdout is not None
        line = await asyncio.to_thread(started.stdout.readline)
        assert line.startswith("READY broker "), (self.folder / f"{one}.log").read_text()[-2000:]
        self.addresses[one] = line.split()[2]

    async def lead(self, besides: str | None = None) -> str:
        """The leader, when there is one other than `besides`."""
        while (found := self.leader) is None or found == besides:
            await asyncio.sleep(0.02)
        return found

    async def end(self, one: str, number: signal.Signals) -> None:
        """End a member's broker by a signal."""
        process = self.running.pop(one)
        process.send_signal(number)
        await asyncio.to_thread(process.wait)
        assert process.stdout is not None
        process.stdout.close()
        assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0), one


@asynccontextmanager
async def group_of_brokers(folder: Path, size: int = 3, **settings: object) -> AsyncIterator[GroupProcesses]:
    """A name server, and the members as they are started; those that still run are killed at the end.

    Settings are by upstream's names, for all members.
    """
    name_server = NameServer(NamesrvConfig(port=0, kv_config_path=str(folder / "kv.json")))
    await name_server.start()
    group = GroupProcesses(folder, size, name_server, settings)
    try:
        yield group
    finally:
        for one in list(group.running):
            await group.end(one, signal.SIGKILL)
        await name_server.close()
