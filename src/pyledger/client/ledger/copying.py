"""Copies of entries from the bookies that have them to those that should: byte for byte as they were made.

Source: BookKeeper client/LedgerFragmentReplicator.java.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from itertools import islice
from typing import Any

from pyledger.client.ledger.bookies import Bookies
from pyledger.client.ledger.pace import Pace
from pyledger.client.ledger.reader import AsyncLedgerReader
from pyledger.config.ledger import LedgerConfig
from pyledger.errors import AddFailedError
from pyledger.metadata.signal import Signal
from pyledger.protocol.bookkeeper.messages import BatchReadRequest, BatchReadResponse, Status
from pyledger.protocol.bookkeeper.repair import Repair
from pyledger.protocol.bookkeeper.results import Result
from pyledger.wire.ledger.answers import added_result
from pyledger.wire.ledger.entry import EntryDigest, count_whole, pack_entry

Copies = list[tuple[int, tuple[str, ...]]]
"""Entries with the bookies that get them."""
WAITING_BYTES_MAX = 8 << 20
"""Bytes that are sent and not acknowledged yet."""


class FragmentCopier:
    """Copies of one ledger. Belongs to one event loop."""

    def __init__(
        self,
        bookies: Bookies,
        reader: AsyncLedgerReader,
        digest: EntryDigest,
        key: bytes,
        config: LedgerConfig,
        pace: Pace,
        ahead: int,
    ) -> None:
        """Nothing is copied yet.

        Args:
            bookies: Whom to ask.
            reader: Of the ledger.
            digest: Of the ledger.
            key: That its bookies ask for.
            config: Times and limits.
            pace: Bounds how fast it goes.
            ahead: Entries to read at once.
        """
        self._bookies, self._reader, self._digest, self._key = bookies, reader, digest, key
        self._config, self._pace, self._ahead = config, pace, ahead
        self._waiting_bytes = 0
        self._failure: AddFailedError | None = None
        self._progress = Signal()
        self._fenced: set[str] = set()

    async def copy(self, repair: Repair) -> int:
        """Give its successors their entries; how many bytes that were. All are on disk then.

        Raises:
            EntryReadError: An entry cannot be read from any bookie now.
            NoSuchEntryError: All of its bookies deny an entry.
            AddFailedError: A successor does not take an entry.
        """
        copied = 0
        async for chunk in self._entries(repair):
            for entry_id, entry, targets in chunk:
                for bookie in targets:
                    self._send(bookie, entry_id, entry)
                    copied += len(entry)
            await self._drain(WAITING_BYTES_MAX)
            await self._pace.wait(sum(len(entry) for _, entry, _ in chunk))
        await self._drain(0)
        return copied

    # --- reading

    async def _entries(
        self, repair: Repair
    ) -> AsyncGenerator[list[tuple[int, bytes, tuple[str, ...]]], None]:
        """Entries to copy, some at a time; the next ones are read meanwhile."""
        plan = repair.copies(self._reader.metadata)
        avoid = [repair.fragment.ensemble[place] for place in repair.successors]
        loop = asyncio.get_running_loop()
        reading: asyncio.Task[list[bytes]] | None = None
        copies: Copies = []
        try:
            while following := list(islice(plan, self._ahead)):
                task = loop.create_task(self._read(following, avoid))
                if reading is not None:
                    done, reading = reading, task
                    yield joined(copies, await done)
                reading, copies = task, following
            if reading is not None:
                yield joined(copies, await reading)
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, copies: Copies, avoid: list[str]) -> list[bytes]:
        found: list[bytes] = []
        metadata = self._reader.metadata
        if self._config.batch_read_enabled and metadata.ensemble_size == metadata.write_quorum:
            found = await self._batch(copies, avoid)
        reads = (self._single(entry_id) for entry_id, _ in copies[len(found) :])
        return found + await asyncio.gather(*reads)

    async def _batch(self, copies: Copies, avoid: list[str]) -> list[bytes]:
        """As many entries as one bookie gives at a time, until it gives none: perhaps not all."""
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
            if not isinstance(response, BatchReadResponse) or response.status is not Status.EOK:
                break
            entries = response.entries[: last + 1 - at]
            whole = count_whole(self._digest, self._reader.ledger_id, at, entries)
            found += entries[:whole]
            if not whole or whole < len(entries):
                break
        return found

    async def _single(self, entry_id: int) -> bytes:
        """One entry from any bookie: the same bytes, since a digest leaves no choice."""
        one = await self._reader.entry(entry_id, unconfirmed=True)
        return pack_entry(
            self._digest, one.ledger_id, one.entry_id, one.last_add_confirmed, one.length, one.payload
        )

    # --- adding

    def _send(self, bookie: str, entry_id: int, entry: bytes) -> None:
        asked = self._bookies.frames.ask_add(
            self._reader.ledger_id, entry_id, self._key, entry, recovery=bookie in self._fenced
        )
        self._waiting_bytes += len(entry)
        done = partial(self._answered, bookie, entry_id, entry)
        self._bookies.send(bookie, asked, self._config.add_timeout_ms, done)

    def _answered(self, bookie: str, entry_id: int, entry: bytes, response: Any) -> None:
        self._waiting_bytes -= len(entry)
        result = added_result(response)
        if result is Result.LEDGER_FENCED and self._failure is None:
            # Most bookies never heard of a fence; there an ordinary add says the same and is sooner done.
            self._fenced.add(bookie)
            self._send(bookie, entry_id, entry)
            return
        if result is not Result.OK and self._failure is None:
            self._bookies.note_failure(bookie)
            problem = f"bookie {bookie} does not take a copy of entry {entry_id}: {result.name}"
            self._failure = AddFailedError(self._reader.ledger_id, result, problem)
        self._progress.give()

    async def _drain(self, bytes_max: int) -> None:
        """Wait until no more bytes than that are not acknowledged."""
        while self._failure is None and self._waiting_bytes > bytes_max:
            await self._progress.wait(self._progress.count)
        if self._failure is not None:
            raise self._failure


def joined(copies: Copies, entries: Iterable[bytes]) -> list[tuple[int, bytes, tuple[str, ...]]]:
    """Entries with what is to be done with them."""
    return [(entry_id, entry, targets) for (entry_id, targets), entry in zip(copies, entries, strict=True)]
