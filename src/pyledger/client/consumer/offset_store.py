"""Where the offsets of a group are kept: at its brokers, or in a file of this machine.

Source: RocketMQ client/.../consumer/store/RemoteBrokerOffsetStore.java, LocalFileOffsetStore.java.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from pyledger.atomic_file import backup_of, replace_file
from pyledger.client.instance import ClientInstance
from pyledger.errors import ConfigError, MalformedBodyError, OffsetUnknownError, PyLedgerError, RemotingError
from pyledger.log_events import event, logger
from pyledger.model.message import MessageQueue
from pyledger.protocol.client.offset_table import OffsetTable
from pyledger.wire.remoting.bodies.offsets import QueueOffsets

log = logger("client")


class OffsetStore(Protocol):
    """Keeps the offsets of one group."""

    table: OffsetTable

    async def read(self, queue: MessageQueue) -> int:
        """The offset that is kept; -1 when there is none.

        Raises:
            OffsetUnknownError: it cannot be found out now.
        """

    async def persist(self, queues: Collection[MessageQueue], *, last: bool = False) -> None:
        """Keep what moved of some queues; what cannot be kept now is kept the next time.

        Args:
            queues: Whose offsets.
            last: There is no next time: return when they are kept.
        """


class RemoteOffsets:
    """Kept by the broker of each queue."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group
        self.table = OffsetTable()

    async def read(self, queue: MessageQueue) -> int:
        """Ask the broker; see `OffsetStore`."""
        try:
            address, _ = self._client.routes.reader(queue.broker_name)
            offset = await self._client.calls.consumer_offset(address, self._group, queue)
        except RemotingError as error:
            raise OffsetUnknownError(self._group, text(queue), str(error)) from error
        if offset >= 0:
            self.table.known(queue, offset)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, last: bool = False) -> None:
        """Tell the brokers, one-way as upstream until the last time; see `OffsetStore`."""
        # What was told one-way may have been lost: the last time all of it is told again.
        moved = self.table.moved(queues) if last else self.table.untold(queues)
        await asyncio.gather(*[self._tell(queue, offset, oneway=not last) for queue, offset in moved.items()])

    async def _tell(self, queue: MessageQueue, offset: int, *, oneway: bool) -> None:
        try:
            address, _ = self._client.routes.reader(queue.broker_name)
            await self._client.calls.update_consumer_offset(
                address, self._group, queue, offset, oneway=oneway
            )
        except PyLedgerError as error:
            event(log, logging.WARNING, "offset not persisted", queue=text(queue), error=error)
        else:
            self.table.told(queue, offset)


class LocalOffsets:
    """Kept in upstream's `offsets.json`, for broadcasting."""

    def __init__(self, folder: str, client_id: str, group: str) -> None:
        if "/" in client_id:
            raise ConfigError("instance_name", f"{client_id!r} cannot name a folder", "leave out the /")
        base = Path(folder) if folder else Path.home() / ".rocketmq_offsets"
        self.path = base / client_id / group / "offsets.json"
        self._group = group
        self._kept: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()
        self.table = OffsetTable()

    async def read(self, queue: MessageQueue) -> int:
        """Look into the file; see `OffsetStore`."""
        offset = self._load().get(queue, -1)
        if offset >= 0:
            self.table.known(queue, offset)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, last: bool = False) -> None:  # noqa: ARG002
        """Write the file anew, if something moved; see `OffsetStore`."""
        async with self._writing:
            moved = self.table.untold(queues)
            if not moved:
                return
            kept = {**self._load(), **moved}
            try:
                await asyncio.to_thread(self._write, QueueOffsets(offset_table=kept).encode())
            except OSError as error:
                event(log, logging.WARNING, "offsets not persisted", path=self.path, error=error)
                return
            self._kept = kept
            for queue, offset in moved.items():
                self.table.told(queue, offset)

    def _write(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, content)

    def _load(self) -> Mapping[MessageQueue, int]:
        if self._kept is None:
            found = self._read_file(self.path)
            self._kept = dict((self._read_file(backup_of(self.path)) if found is None else found) or {})
        return self._kept

    def _read_file(self, path: Path) -> Mapping[MessageQueue, int] | None:
        """What one file holds; None when it is missing, empty or damaged."""
        try:
            data = path.read_bytes()
            return QueueOffsets.decode(data).offset_table if data.strip() else None
        except FileNotFoundError:
            return None
        except (OSError, MalformedBodyError) as error:
            event(log, logging.WARNING, "offsets not read", path=path, error=error)
            return None


def text(queue: MessageQueue) -> str:
    """A queue in one word."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
