"""Ledgers that lack copies, on asyncio: a shell around `protocol.bookkeeper.fragments` and `.repair`.

Source: BookKeeper client/BookKeeperAdmin.java, LedgerChecker.java.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.entry_copier import FragmentReplicator
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.recovery import RecoveryShell
from pyledger.client.bookkeeper.throttle import Pace
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.config.bookkeeper_client import BookkeeperConfig
from pyledger.errors import NodeVersionError
from pyledger.metadata.change_signal import Signal
from pyledger.metadata.ledgers import LedgerTable, StoredMetadata
from pyledger.protocol.bookkeeper.entry import DigestType
from pyledger.protocol.bookkeeper.fragments import LedgerCheck, MissingReplicas
from pyledger.protocol.bookkeeper.messages import ReadRequest
from pyledger.protocol.bookkeeper.re_replication import Repair, Step, left_to_writer, next_step
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key
from pyledger.wire.bookkeeper.response_entries import read_result

READS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Examination:
    """What a ledger lacks.

    Attributes:
        stored: Its metadata, as it was examined.
        last_add_confirmed: Its last entry, or as far as bookies tell.
        there: Bookies that were registered.
        lacking: Fragments without some of their copies.
    """

    stored: StoredMetadata
    last_add_confirmed: int
    there: frozenset[str]
    lacking: tuple[MissingReplicas, ...]

    def next_step(self, waited_for: Collection[str]) -> Step:
        """What to do now; see `protocol.bookkeeper.repair.next_step`."""
        found = self.stored.metadata, self.last_add_confirmed, self.lacking, self.there
        return next_step(*found, waited_for)

    @property
    def left_to_writer(self) -> frozenset[str]:
        """Bookies that only its writer can replace."""
        return left_to_writer(self.stored.metadata, self.last_add_confirmed, self.lacking, self.there)


class LedgerReplication:
    """Examines and mends ledgers without their passwords, which the metadata tells."""

    def __init__(
        self,
        bookies: BookieWatcher,
        table: LedgerTable,
        config: BookkeeperConfig,
        settings: AutoRecoveryConfig,
    ) -> None:
        """Made by `AsyncLedgerClient.repairs`."""
        self._bookies, self._table, self._config, self._settings = bookies, table, config, settings
        self._pace = Pace(settings.replication_rate_by_bytes)

    async def examine(self, ledger_id: int, *, every_entry: bool = False) -> Examination:
        """Find out what a ledger lacks.

        Args:
            ledger_id: Which.
            every_entry: Read all of it; else the first and the last entry of each bookie's part.

        Raises:
            NoSuchLedgerError: There is none.
            EntryReadError: It is open, and too few bookies tell how far it goes.
        """
        stored = await self._table.get(ledger_id)
        if not stored.metadata.closed:
            # What is left to its writer depends on who is there now.
            await self._bookies.look()
        digest, _ = self._guard(stored)
        reader = self._reader(stored, digest)
        if not stored.metadata.closed:
            await reader.read_last_confirmed()
        registered = self._bookies.registered
        there = frozenset({*registered.writable, *registered.read_only})
        check = LedgerCheck(stored.metadata, reader.last_add_confirmed, there, every_entry=every_entry)
        await self._run(check, ledger_id, digest)
        return Examination(stored, reader.last_add_confirmed, there, check.lacking)

    async def copy(self, found: Examination) -> int:
        """Make the copies that its sealed fragments lack, as far as there are bookies; how many bytes, or -1.

        -1 says that no bookie is there for any of them.

        Raises:
            LedgerOperationError: An entry cannot be read, or a bookie does not take it.
            NoSuchLedgerError: It was deleted.
        """
        digest, key = self._guard(found.stored)
        reader = self._reader(found.stored, digest)
        await self._bookies.look()  # a bookie that was just lost takes no copies
        copied, mended = 0, False
        for lack in found.lacking:
            repair = self._bookies.successors(lack) if lack.fragment.sealed else None
            if repair is None:
                continue
            copier = FragmentReplicator(
                self._bookies,
                reader,
                digest,
                key,
                self._config,
                self._pace,
                self._settings.rereplication_read_ahead_entries,
            )
            copied += await copier.copy(repair)
            await self._name_successors(found.stored, repair)
            mended = True
        return copied if mended else -1

    async def close_ledger(self, found: Examination) -> None:
        """Fence a ledger's writer off, and close it.

        Raises:
            LedgerRecoveryError: Its end cannot be known now.
        """
        digest, _ = self._guard(found.stored)
        password = self._password(found.stored)
        shell = RecoveryShell(self._bookies, self._table, found.stored, digest, password, self._config)
        await shell.run()

    # --- inside

    def _reader(self, stored: StoredMetadata, digest: EntryDigest) -> AsyncLedgerReader:
        return AsyncLedgerReader(self._bookies, self._table, stored, digest, self._config)

    def _password(self, stored: StoredMetadata) -> bytes:
        found = stored.metadata.password
        return self._settings.bookie_recovery_passwd.encode() if found is None else found

    def _guard(self, stored: StoredMetadata) -> tuple[EntryDigest, bytes]:
        """Digest of a ledger's entries, and the key that its bookies ask for."""
        password = self._password(stored)
        kind = stored.metadata.digest or DigestType[self._settings.bookie_recovery_digest_type]
        return EntryDigest(kind, password), master_key(password)

    async def _run(self, check: LedgerCheck, ledger_id: int, digest: EntryDigest) -> None:
        progress = Signal()

        def answered(bookie: str, entry_id: int, response: Any) -> None:
            check.answered(bookie, entry_id, *read_result(digest, ledger_id, entry_id, response))
            progress.give()

        while True:
            seen = progress.count
            for read in check.ready(READS_AT_ONCE):
                request = ReadRequest(ledger_id=ledger_id, entry_id=read.entry_id)
                done = partial(answered, read.bookie, read.entry_id)
                self._bookies.request(read.bookie, request, self._config.read_timeout_ms, done)
            if check.done:
                return
            await progress.wait(seen)

    async def _name_successors(self, stored: StoredMetadata, repair: Repair) -> None:
        """Let the metadata name the bookies that have the copies now, unless somebody else has mended it."""
        while (wanted := repair.repaired(stored.metadata)) is not None:
            if wanted.segments == stored.metadata.segments:
                return
            try:
                await self._table.put(stored, wanted)
            except NodeVersionError:
                stored = await self._table.get(stored.ledger_id)
            else:
                return


def lacking_bookies(lacking: tuple[MissingReplicas, ...]) -> tuple[str, ...]:
    """Bookies whose copies are missing, each once."""
    found: Mapping[str, None] = dict.fromkeys(bookie for lack in lacking for bookie in lack.bookies)
    return tuple(found)
