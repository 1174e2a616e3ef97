"""A broker as a process of its own, by a `broker.conf`, that a test kills and starts again."""

import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from pyledger.store.reading.reader import StoreReader
from tests.cli.command_line import COMMAND, ENVIRONMENT
from tests.net.peers import RawPeer, raw


class BrokerProcess:
    """`pyledger broker --config broker.conf` on a free port of loopback."""

    def __init__(self, folder: Path, **settings: object) -> None:
        """A broker with its store in `folder`; settings by upstream's names."""
        self.store = folder / "store"
        self._config = folder / "broker.conf"
        given = {
            "listenPort": 0,
            "storePathRootDir": self.store,
            "flushDiskType": "SYNC_FLUSH",
            "mappedFileSizeCommitLog": 1 << 20,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 4000,
            "autoCreateTopicEnable": "true",
            "flushConsumerOffsetInterval": 10,
            **settings,
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._process = subprocess.Popen(
            [*COMMAND, "broker", "--config", str(self._config), "--log-level", "error"],
            stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("READY broker "), line
        self.port = int(line.rpartition(":")[2])

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            assert self._process.returncode == -signal.SIGKILL, "it ended by itself"
            self._process = None

    def bodies(self, topic: str) -> list[bytes]:
        """Bodies of a topic as consumers reach them, read from the folder while the broker runs."""
        with StoreReader.open(self.store) as reader:
            topics = {name for name, _ in reader.queues()}
            return (
                [message.body for message in reader.messages(order="queue", topics=[topic])]
                if topic in topics
                else []
            )

    @asynccontextmanager
    async def peer(self) -> AsyncIterator[RawPeer]:
        """A connection to it for the length of a block."""
        async with raw(self.port) as connection:
            yield connection


@contextmanager
def broker_process(folder: Path, **settings: object) -> Iterator[BrokerProcess]:
    """A running broker for the length of a block."""
    one = BrokerProcess(folder, **settings)
    one.start()
    try:
        yield one
    finally:
        one.kill()
