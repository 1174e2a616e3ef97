"""A peer of a bookie that speaks its protocol frame by frame."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

from pyledger.config.bookie import BookieConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.servers.bookkeeper.server import BookieServer
from pyledger.store.bookkeeper.folder import BookiePaths
from pyledger.wire.bookkeeper import version3
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_entry

DIGEST = EntryDigest(DigestType.CRC32C)
KEY = master_key(b"")
PATIENT = BookkeeperConfig(
    add_timeout_ms=60_000, read_timeout_ms=60_000, connect_timeout_ms=60_000, speculative_read_timeout_ms=0
)
"""For clients of bookies on a disk that may take seconds to sync."""


def entry_of(ledger_id: int, entry_id: int, payload: bytes = b"x", *, lac: int | None = None) -> bytes:
    confirmed = entry_id - 1 if lac is None else lac
    return pack_entry(DIGEST, ledger_id, entry_id, confirmed, len(payload) * (entry_id + 1), payload)


class Peer:
    """One connection in version 3: requests by their class, answers in any order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._txn_id = 0
        self._answers: dict[int, m.Response] = {}

    @classmethod
    async def connect(cls, address: str) -> Self:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send_frame(self, body: bytes) -> None:
        self.writer.write(len(body).to_bytes(4, "big") + body)

    async def frame(self) -> bytes:
        """The next frame without its length; empty when the bookie closed the connection."""
        try:
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    def send(self, kind: type[m.Request], **fields: Any) -> int:
        self._txn_id += 1
        self.send_frame(version3.encode_request(kind(txn_id=self._txn_id, **fields)))
        return self._txn_id

    async def answer(self, txn_id: int) -> Any:
        while txn_id not in self._answers:
            frame = await self.frame()
            if not frame:
                raise ConnectionResetError
            response = version3.decode_response(memoryview(frame))
            self._answers[response.txn_id] = response
        return self._answers.pop(txn_id)

    async def ask(self, kind: type[m.Request], **fields: Any) -> Any:
        return await self.answer(self.send(kind, **fields))

    def send_add(self, ledger_id: int, entry_id: int, payload: bytes = b"x", **fields: Any) -> int:
        lac = fields.pop("lac", None)
        fields = {"master_key": KEY, "entry": entry_of(ledger_id, entry_id, payload, lac=lac)} | fields
        return self.send(m.AddRequest, ledger_id=ledger_id, entry_id=entry_id, **fields)

    async def add(self, ledger_id: int, entry_id: int, payload: bytes = b"x", **fields: Any) -> Any:
        return await self.answer(self.send_add(ledger_id, entry_id, payload, **fields))

    async def read(self, ledger_id: int, entry_id: int, **fields: Any) -> Any:
        return await self.ask(m.ReadRequest, ledger_id=ledger_id, entry_id=entry_id, **fields)

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def bookie(folder: Path, **settings: Any) -> AsyncIterator[BookieServer]:
    server = BookieServer(BookiePaths.below(folder), config=BookieConfig(**settings))
    await server.start()
    try:
        yield server
    finally:
        await server.close()
