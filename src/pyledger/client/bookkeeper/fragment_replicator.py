"""Copy entries, byte for byte, from the bookies that have them to those that miss them.

Source: BookKeeper client/LedgerFragmentReplicator.java.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Any

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.throttle import Throttle
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.errors import AddFailedError
from pyledger.metadata.change_signal import Signal
from pyledger.net.bookkeeper.bookie_client import RequestBatch
from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.messages import AddRequest, BatchReadRequest, BatchReadResponse, Status
from pyledger.protocol.bookkeeper.re_replication import Repair
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.wire.bookkeeper.entry import HEADER, EntryDigest, count_whole, pack_entry
from pyledger.wire.bookkeeper.response_entries import added_result
from pyledger.wire.remoting.native_codec import encode_adds

Copies = list[tuple[int, tuple[str, ...]]]
"""Entry ids with the target bookies."""
WAITING_BYTES_MAX = 8 << 20
"""Maximum of bytes sent and not acknowledged yet."""
READS_AHEAD = 2
LENGTH_BYTES = 4
"""Length prefix of an entry in a batch read response."""
FIRST_ENTRIES = 16
"""Entries of the first request, before their size is known."""


class FragmentReplicator:
    """Copies fragments of one ledger. Belongs to one event loop."""

    def __init__(
        self,
        bookies: BookieWatcher,
        reader: AsyncLedgerReader,
        digest: EntryDigest,
        key: bytes,
        config: BookkeeperConfig,
        throttle: Throttle,
        ahead: int,
    ) -> None:
        """Create a replicator; `copy` starts it.

        Args:
            bookies: Connections to the bookies.
            reader: Reader of the ledger.
            digest: Digest of its entries.
            key: Master key of the ledger.
            config: Timeouts and limits.
            throttle: Limit on the bytes copied per second.
            ahead: Maximum of entries to read at once.
        """
        self._bookies, self._reader, self._digest, self._key = bookies, reader, digest, key
        self._config, self._throttle, self._ahead = config, throttle, ahead
        self._loop = asyncio.get_running_loop()
        self._batches = config.batch_read_enabled
        self._waiting_bytes = 0
        self._failure: AddFailedError | None = None
        self._progress = Signal()
        self._fenced: set[str] = set()

    async def copy(self, repair: Repair) -> int:
        """Copy the entries of a repair to its successors; return the bytes, all on disk by then.

        Raises:
            EntryReadError: An entry cannot be read from any bookie now.
            NoSuchEntryError: All bookies of an entry report that they do not have it.
            AddFailedError: A successor rejects an entry.
        """
        copied = 0
        async with aclosing(self._entries(repair)) as chunks:
            async for copies, entries in chunks:
                for bookie in repair.successors.values():
                    pairs = zip(copies, entries, strict=True)
                    wanted = [entry for (_, targets), entry in pairs if bookie in targets]
                    copied += self._send(bookie, wanted)
                await self._drain(WAITING_BYTES_MAX)
                await self._throttle.wait(sum(map(len, entries)))
        await self._drain(0)
        return copied

    # --- reading

    async def _entries(self, repair: Repair) -> AsyncGenerator[tuple[Copies, list[bytes]], None]:
        """Yield entries to copy in chunks, while the next ones are being read."""
        plan = repair.copies(self._reader.metadata)
        avoid = [repair.fragment.ensemble[index] for index in repair.successors]
        step = min(FIRST_ENTRIES, self._ahead)
        reading: deque[tuple[Copies, asyncio.Task[list[bytes]]]] = deque()
        try:
            while True:
                while len(reading) < READS_AHEAD and (copies := list(islice(plan, step))):
                    reading.append((copies, self._loop.create_task(self._read(copies, avoid))))
                if not reading:
                    return
                copies, task = reading[0]
                entries = await task
                reading.popleft()
                # Bound the bytes that are read ahead, but request as much as is useful at once.
                bytes_each = sum(map(len, entries)) // len(entries) + LENGTH_BYTES
                step = max(1, min(self._ahead, self._config.batch_read_bytes // bytes_each))
                yield copies, entries
        finally:
            for _, task in reading:
                task.cancel()
            await asyncio.gather(*(task for _, task in reading), return_exceptions=True)

    async def _read(self, copies: Copies, avoid: list[str]) -> list[bytes]:
        found: list[bytes] = []
        metadata = self._reader.metadata
        if self._batches and metadata.ensemble_size == metadata.write_quorum:
            found = await self._batch(copies, avoid)
        left = [entry_id for entry_id, _ in copies[len(found) :]]
        return found + [self._packed(one) for one in await self._reader.entries(left)]

    async def _batch(self, copies: Copies, avoid: list[str]) -> list[bytes]:
        """Read entries in batches from one bookie until it returns none; perhaps not all of them."""
        found: list[bytes] = []
        first, last = copies[0][0], copies[-1][0]
        ensemble = self._reader.metadata.segment_of(first).ensemble
        bookie = self._bookies.prefer([one for one in ensemble if one not in avoid] or ensemble)[0]
        while (at := first + len(found)) <= last:
            request = BatchReadRequest(
                ledger_id=self._reader.ledger_id,
                entry_id=at,
                count_max=last + 1 - at,
                bytes_max=self._config.batch_read_bytes,
            )
            response = await self._bookies.answer(bookie, request, self._config.read_timeout_ms, version=2)
            if response is None:
                # Bookies before 4.17 drop the connection at this request.
                self._batches = False
            if not isinstance(response, BatchReadResponse) or response.status is not Status.EOK:
                break
            entries = response.entries[: last + 1 - at]
            whole = count_whole(self._digest, self._reader.ledger_id, at, entries)
            found += entries[:whole]
            if not whole or whole < len(entries):
                break
        return found

    def _packed(self, one: LedgerEntry) -> bytes:
        """Encode an entry to the same bytes that its bookies store."""
        return pack_entry(
            self._digest, one.ledger_id, one.entry_id, one.last_add_confirmed, one.length, one.payload
        )

    # --- adding

    def _send(self, bookie: str, entries: list[bytes]) -> int:
        """Send entries to a bookie, in one batch if possible; return their bytes."""
        size_bytes = sum(map(len, entries))
        self._waiting_bytes += size_bytes
        if bookie in self._fenced or any(map(self._is_long, entries)):
            for entry in entries:
                self._send_one(bookie, entry)
        elif entries:
            count = len(entries)
            number = self._bookies.frames.numbers(count)
            frames = encode_adds(number, self._reader.ledger_id, self._key, entries)
            batch = RequestBatch(number, number + count, partial(self._answered, bookie, entries, number))
            self._bookies.send_batch(bookie, batch, frames, self._config.add_timeout_ms)
        return size_bytes

    def _is_long(self, entry: bytes) -> bool:
        """Return whether an entry may exceed a frame of version 3."""
        return len(entry) > self._config.payload_max_bytes

    def _send_one(self, bookie: str, entry: bytes) -> None:
        request = AddRequest(
            ledger_id=self._reader.ledger_id,
            entry_id=entry_id_of(entry),
            master_key=self._key,
            entry=entry,
            recovery=bookie in self._fenced,
        )
        self._bookies.request(
            bookie, request, self._config.add_timeout_ms, partial(self._answered, bookie, [entry], 0, 0, 1)
        )

    def _answered(
        self, bookie: str, entries: list[bytes], first: int, number: int, count: int, response: Any
    ) -> None:
        result, sent = added_result(response), entries[number - first : number - first + count]
        if result is Result.LEDGER_FENCED and self._failure is None:
            # On bookies where the ledger is not fenced, a plain add does the same and is faster.
            self._fenced.add(bookie)
            for entry in sent:
                self._send_one(bookie, entry)
            return
        self._waiting_bytes -= sum(map(len, sent))
        if result is not Result.OK and self._failure is None:
            self._bookies.note_failure(bookie)
            problem = f"bookie {bookie} rejects a replica of entry {entry_id_of(sent[0])}: {result.name}"
            self._failure = AddFailedError(self._reader.ledger_id, result, problem)
        self._progress.give()

    async def _drain(self, bytes_max: int) -> None:
        """Wait until at most `bytes_max` bytes are unacknowledged."""
        while self._failure is None and self._waiting_bytes > bytes_max:
            await self._progress.wait(self._progress.count)
        if self._failure is not None:
            raise self._failure


def entry_id_of(entry: bytes) -> int:
    """Return the entry id in an entry's header."""
    return int(HEADER.unpack_from(entry)[1])
