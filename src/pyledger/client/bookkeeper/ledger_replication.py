"""Under-replicated ledgers on asyncio: a shell around `protocol.bookkeeper.fragments` and `.re_replication`.

Source: BookKeeper client/BookKeeperAdmin.java, LedgerChecker.java.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyledger.client.bookkeeper.bookie_watcher import BookieWatcher
from pyledger.client.bookkeeper.fragment_replicator import FragmentReplicator
from pyledger.client.bookkeeper.reader import AsyncLedgerReader
from pyledger.client.bookkeeper.recovery import RecoveryShell
from pyledger.client.bookkeeper.throttle import Throttle
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
    """The result of checking a ledger for missing replicas.

    Attributes:
        stored: The metadata that was checked.
        last_add_confirmed: Id of its last entry, or the largest that bookies report.
        there: Bookies that were registered.
        missing_replicas: By fragment.
    """

    stored: StoredMetadata
    last_add_confirmed: int
    there: frozenset[str]
    missing_replicas: tuple[MissingReplicas, ...]

    def next_step(self, waited_for: Collection[str]) -> Step:
        """Return what to do next; see `protocol.bookkeeper.re_replication.next_step`."""
        found = self.stored.metadata, self.last_add_confirmed, self.missing_replicas, self.there
        return next_step(*found, waited_for)

    @property
    def left_to_writer(self) -> frozenset[str]:
        """Bookies that only its writer can replace."""
        found = self.stored.metadata, self.last_add_confirmed, self.missing_replicas, self.there
        return left_to_writer(*found)


class LedgerReplication:
    """Checks and re-replicates ledgers. Their passwords are read from the metadata."""

    def __init__(
        self,
        bookies: BookieWatcher,
        table: LedgerTable,
        config: BookkeeperConfig,
        settings: AutoRecoveryConfig,
    ) -> None:
        """Made by `AsyncLedgerClient.repairs`."""
        self._bookies, self._table, self._config, self._settings = bookies, table, config, settings
        self._throttle = Throttle(settings.replication_rate_by_bytes)

    async def examine(self, ledger_id: int, *, every_entry: bool = False) -> Examination:
        """Find the missing replicas of a ledger.

        Args:
            ledger_id: The ledger.
            every_entry: Read every entry; otherwise the first and the last one of each bookie in a fragment.

        Raises:
            NoSuchLedgerError: The ledger does not exist.
            EntryReadError: It is open, and too few bookies report their last confirmed entry.
        """
        stored = await self._table.get(ledger_id)
        if not stored.metadata.closed:
            # What is left to its writer depends on which bookies are registered now.
            await self._bookies.look()
        digest, _ = self._guard(stored)
        reader = self._reader(stored, digest)
        if not stored.metadata.closed:
            await reader.read_last_confirmed()
        registered = self._bookies.registered
        there = frozenset({*registered.writable, *registered.read_only})
        check = LedgerCheck(stored.metadata, reader.last_add_confirmed, there, every_entry=every_entry)
        await self._run(check, ledger_id, digest)
        return Examination(stored, reader.last_add_confirmed, there, check.missing_replicas)

    async def copy(self, found: Examination) -> int:
        """Create the missing replicas of sealed fragments, as far as bookies are available.

        Returns:
            Bytes copied; -1 if no bookie is available for any of them.

        Raises:
            LedgerOperationError: An entry cannot be read, or a bookie rejects it.
            NoSuchLedgerError: The ledger was deleted.
        """
        digest, key = self._guard(found.stored)
        reader = self._reader(found.stored, digest)
        await self._bookies.look()  # a bookie that was just lost cannot be a target
        copied, replicated = 0, False
        for missing in found.missing_replicas:
            repair = self._bookies.successors(missing) if missing.fragment.sealed else None
            if repair is None:
                continue
            copier = FragmentReplicator(
                self._bookies,
                reader,
                digest,
                key,
                self._config,
                self._throttle,
                self._settings.rereplication_read_ahead_entries,
            )
            copied += await copier.copy(repair)
            await self._name_successors(found.stored, repair)
            replicated = True
        return copied if replicated else -1

    async def close_ledger(self, found: Examination) -> None:
        """Fence and close a ledger.

        Raises:
            LedgerRecoveryError: Its last entry cannot be determined now.
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
        """Return the digest of a ledger's entries and its master key."""
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
        """Write the new ensemble to the metadata, unless another worker has re-replicated the fragment."""
        while (wanted := repair.repaired(stored.metadata)) is not None:
            if wanted.segments == stored.metadata.segments:
                return
            try:
                await self._table.put(stored, wanted)
            except NodeVersionError:
                stored = await self._table.get(stored.ledger_id)
            else:
                return


def bookies_without_replicas(missing: tuple[MissingReplicas, ...]) -> tuple[str, ...]:
    """Return the bookies whose replicas are missing, without duplicates."""
    found: Mapping[str, None] = dict.fromkeys(bookie for one in missing for bookie in one.bookies)
    return tuple(found)
