"""Storage of a group's offsets: at its brokers, or in a local file.

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
    """Stores the offsets of one group."""

    table: OffsetTable

    async def read(self, queue: MessageQueue) -> int:
        """Return the stored offset; -1 if there is none.

        Raises:
            OffsetUnknownError: it cannot be read now.
        """

    async def persist(self, queues: Collection[MessageQueue], *, last: bool = False) -> None:
        """Store the changed offsets of some queues; those that cannot be stored now are stored next time.

        Args:
            queues: The queues.
            last: There is no next time: return when the offsets are stored.
        """


class RemoteOffsets:
    """Offsets stored by the broker of each queue."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group
        self.table = OffsetTable()

    async def read(self, queue: MessageQueue) -> int:
        """Query the broker; see `OffsetStore`."""
        try:
            address, _ = self._client.routes.reader(queue.broker_name)
            offset = await self._client.calls.consumer_offset(address, self._group, queue)
        except RemotingError as error:
            raise OffsetUnknownError(self._group, text(queue), str(error)) from error
        if offset >= 0:
            self.table.known(queue, offset)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, last: bool = False) -> None:
        """Send the offsets to the brokers: one-way as upstream, except the last time; see `OffsetStore`."""
        # One-way requests may have been lost: the last time all offsets are sent again.
        changed = self.table.changed(queues) if last else self.table.unpersisted(queues)
        await asyncio.gather(
            *[self._send(queue, offset, oneway=not last) for queue, offset in changed.items()]
        )

    async def _send(self, queue: MessageQueue, offset: int, *, oneway: bool) -> None:
        try:
            address, _ = self._client.routes.reader(queue.broker_name)
            await self._client.calls.update_consumer_offset(
                address, self._group, queue, offset, oneway=oneway
            )
        except PyLedgerError as error:
            event(log, logging.WARNING, "offset not persisted", queue=text(queue), error=error)
        else:
            self.table.on_persisted(queue, offset)


class LocalOffsets:
    """Offsets stored in upstream's `offsets.json`, for broadcasting."""

    def __init__(self, folder: str, client_id: str, group: str) -> None:
        if "/" in client_id:
            raise ConfigError("instance_name", f"{client_id!r} cannot name a folder", "leave out the /")
        base = Path(folder) if folder else Path.home() / ".rocketmq_offsets"
        self.path = base / client_id / group / "offsets.json"
        self._group = group
        self._stored: dict[MessageQueue, int] | None = None
        self._writing = asyncio.Lock()
        self.table = OffsetTable()

    async def read(self, queue: MessageQueue) -> int:
        """Read the file; see `OffsetStore`."""
        offset = self._load().get(queue, -1)
        if offset >= 0:
            self.table.known(queue, offset)
        return offset

    async def persist(self, queues: Collection[MessageQueue], *, last: bool = False) -> None:  # noqa: ARG002
        """Rewrite the file if an offset changed; see `OffsetStore`."""
        async with self._writing:
            changed = self.table.unpersisted(queues)
            if not changed:
                return
            stored = {**self._load(), **changed}
            try:
                await asyncio.to_thread(self._write, QueueOffsets(offset_table=stored).encode())
            except OSError as error:
                event(log, logging.WARNING, "offsets not persisted", path=self.path, error=error)
                return
            self._stored = stored
            for queue, offset in changed.items():
                self.table.on_persisted(queue, offset)

    def _write(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, content)

    def _load(self) -> Mapping[MessageQueue, int]:
        if self._stored is None:
            found = self._read_file(self.path)
            self._stored = dict((self._read_file(backup_of(self.path)) if found is None else found) or {})
        return self._stored

    def _read_file(self, path: Path) -> Mapping[MessageQueue, int] | None:
        """Return the offsets in a file; None if it is missing, empty or damaged."""
        try:
            data = path.read_bytes()
            return QueueOffsets.decode(data).offset_table if data.strip() else None
        except FileNotFoundError:
            return None
        except (OSError, MalformedBodyError) as error:
            event(log, logging.WARNING, "offsets not read", path=path, error=error)
            return None


def text(queue: MessageQueue) -> str:
    """Return a queue as `topic/broker/id`, for log lines."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
