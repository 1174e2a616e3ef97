"""Recovery of a ledger on asyncio: a shell around `protocol.bookkeeper.ledger_recovery`."""

import asyncio
from functools import partial
from typing import Any

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.metadata_updates import MetadataUpdateLoop
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.errors import LedgerPasswordError, LedgerRecoveryError, PyLedgerError
from pyledger.metadata.ledgers import LedgerTable, StoredMetadata
from pyledger.protocol.bookkeeper.ledger_recovery import LedgerRecovery
from pyledger.protocol.bookkeeper.ledger_writer import Proposal, SendBatch
from pyledger.protocol.bookkeeper.messages import PRIORITY_HIGH, AddRequest, ReadRequest
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_entry
from pyledger.wire.bookkeeper.response_entries import added_result, read_result


class RecoveryShell:
    """One recovery, from start to end."""

    def __init__(
        self,
        bookies: BookieWatcher,
        table: LedgerTable,
        stored: StoredMetadata,
        digest: EntryDigest,
        password: bytes,
        config: BookkeeperConfig,
    ) -> None:
        """Start with the stored metadata."""
        self._bookies, self._config, self._digest = bookies, config, digest
        self._ledger_id, self._key = stored.ledger_id, master_key(password)
        self._changes = MetadataUpdateLoop(table, stored, config)
        self._machine = LedgerRecovery(
            stored.metadata, bookies.replace, read_ahead=config.recovery_read_batch_size
        )
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[Result] = self._loop.create_future()
        self._storing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._problems: dict[str, str] = {}
        """Reasons why bookies gave no response."""

    async def run(self) -> StoredMetadata:
        """Fence the ledger, copy its last entries and close it; return its metadata.

        Raises:
            LedgerRecoveryError: The last entry cannot be determined now; the ledger stays in recovery.
            LedgerPasswordError: A bookie rejects the password.
            MetadataUnreachableError: It is not known whether a change was stored.
        """
        self._follow()
        try:
            result = await self._done
        finally:
            if self._storing is not None:
                self._storing.cancel()
            if self._timer is not None:
                self._timer.cancel()
        if result is Result.UNAUTHORIZED:
            raise LedgerPasswordError(
                self._ledger_id, result, "a bookie rejects its password, or requires TLS"
            )
        if result is not Result.OK:
            why = "; ".join(f"{bookie}: {problem}" for bookie, problem in self._problems.items())
            problem = f"its recovery failed with {result.name}; {why or 'too many bookies failed'}"
            raise LedgerRecoveryError(self._ledger_id, result, problem)
        return self._changes.stored

    def _follow(self) -> None:
        while (ready := self._machine.ready()) is not None:
            for read in ready.reads:
                reading = ReadRequest(
                    ledger_id=self._ledger_id,
                    entry_id=read.entry_id,
                    fence=read.fence,
                    master_key=self._key if read.fence else None,
                    priority=PRIORITY_HIGH,
                )
                done = partial(self._read_answered, read.bookie, read.entry_id)
                self._bookies.request(read.bookie, reading, self._config.read_timeout_ms, done)
            for add in ready.adds:
                request = self._add(add)
                for bookie in add.bookies:
                    done = partial(self._add_answered, bookie, request.entry_id)
                    self._bookies.request(bookie, request, self._config.add_timeout_ms, done)
            if ready.proposal is not None:
                self._storing = self._loop.create_task(self._store(ready.proposal))
            if ready.done is not None and not self._done.done():
                self._done.set_result(ready.done)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline_ms := self._machine.deadline_ms()) is not None:
            self._timer = self._loop.call_at(deadline_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._machine.tick(int(self._loop.time() * 1000))
        self._follow()

    def _add(self, add: SendBatch) -> AddRequest:
        """Return the request for a batch of one entry."""
        (payload,), entry_id = add.payloads, add.first_entry_id
        length = add.length + len(payload)
        entry = pack_entry(self._digest, self._ledger_id, entry_id, add.last_add_confirmed, length, payload)
        return AddRequest(
            ledger_id=self._ledger_id,
            entry_id=entry_id,
            master_key=self._key,
            entry=entry,
            recovery=add.recovery,
            priority=PRIORITY_HIGH,
        )

    def _read_answered(self, bookie: str, entry_id: int, response: Any) -> None:
        result, entry = read_result(self._digest, self._ledger_id, entry_id, response)
        if response is None:
            self._note_silence(bookie)
        self._machine.read_answered(bookie, entry_id, result, entry, int(self._loop.time() * 1000))
        self._follow()

    def _add_answered(self, bookie: str, entry_id: int, response: Any) -> None:
        result = added_result(response)
        if response is None:
            self._note_silence(bookie)
        elif result is not Result.OK:
            self._bookies.note_failure(bookie)
            self._problems[bookie] = f"it rejects entry {entry_id}: {result.name}"
        self._machine.add_answered(bookie, entry_id, result)
        self._follow()

    def _note_silence(self, bookie: str) -> None:
        self._bookies.note_failure(bookie)
        self._problems[bookie] = self._bookies.problem(bookie)

    async def _store(self, proposal: Proposal) -> None:
        try:
            stored = await self._changes.put(proposal.wanted)
        except PyLedgerError as error:
            if not self._done.done():
                self._done.set_exception(error)
            return
        on_stored = self._machine.stored if stored else self._machine.rejected
        on_stored(self._changes.stored.metadata)
        self._follow()
