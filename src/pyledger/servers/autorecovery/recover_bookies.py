"""Re-replicate the ledgers of lost bookies on request: immediately, and without autorecovery.

Autorecovery may re-replicate the same ledger at the same time: a ledger is examined again before each step,
and its metadata names a successor only while it still names the lost bookie.

Source: BookKeeper client/BookKeeperAdmin.java (recoverBookieData).
"""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from enum import Enum

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.ledger_replication import LedgerReplication
from pyledger.errors import (
    BookieExistsError,
    LedgerError,
    MetadataUnreachableError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from pyledger.protocol.bookkeeper.fragments import keeps_entries
from pyledger.protocol.bookkeeper.re_replication import Step
from pyledger.servers.autorecovery.replication_worker import ROUNDS_MAX


class Outcome(Enum):
    """The result for one ledger."""

    WHOLE = "whole"
    """No replica was missing."""
    REPLICATED = "replicated"
    UNDER_REPLICATED = "underReplicated"
    """A dry run changed nothing."""
    FAILED = "failed"


@dataclass(slots=True)
class ReplicatedLedger:
    """One ledger of a lost bookie.

    Attributes:
        ledger_id: Its id.
        outcome: The result.
        fragments: Number of under-replicated fragments.
        closed: Whether it was fenced and closed; in a dry run, whether it would be.
        copied_bytes: Bytes of the copied entries.
        problem: Why it failed.
    """

    ledger_id: int
    outcome: Outcome = Outcome.WHOLE
    fragments: int = 0
    closed: bool = False
    copied_bytes: int = 0
    problem: str = ""


async def replicate_ledgers_of(
    client: AsyncLedgerClient, bookie_ids: Collection[str], *, dry_run: bool = False
) -> AsyncIterator[ReplicatedLedger]:
    """Re-replicate all ledgers with replicas on some lost bookies; yield each ledger when it is done.

    An open ledger whose last ensemble has such a bookie is fenced and closed.

    Args:
        client: A started client.
        bookie_ids: The lost bookies.
        dry_run: Report only, and change nothing.

    Raises:
        BookieExistsError: One of them is running.
        MetadataUnreachableError: The metadata store does not answer.
    """
    found = await client.bookies()
    for bookie_id in bookie_ids:
        if bookie_id in found.writable or bookie_id in found.read_only:
            raise BookieExistsError(bookie_id)
    repairs = client.repairs()
    async for ledger_id in client.ledgers():
        try:
            metadata = await client.metadata(ledger_id)
            if any(keeps_entries(metadata, bookie_id) for bookie_id in bookie_ids):
                yield await _replicate(repairs, ledger_id, dry_run)
        except NoSuchLedgerError:
            continue  # deleted in the meantime


async def _replicate(repairs: LedgerReplication, ledger_id: int, dry_run: bool) -> ReplicatedLedger:
    done = ReplicatedLedger(ledger_id)
    try:
        for _ in range(ROUNDS_MAX):
            found = await repairs.examine(ledger_id)
            step = found.next_step(found.left_to_writer)
            if step is Step.DONE:
                return done
            done.fragments = max(done.fragments, len(found.missing_replicas))
            done.closed |= bool(found.left_to_writer)
            if dry_run:
                done.outcome = Outcome.UNDER_REPLICATED
                return done
            done.outcome = Outcome.REPLICATED
            if step is Step.CLOSE:
                await repairs.close_ledger(found)
                continue
            copied = await repairs.copy(found)
            if copied < 0:
                raise NotEnoughBookiesError(len(found.missing_replicas), 0)
            done.copied_bytes += copied
    except (MetadataUnreachableError, NoSuchLedgerError):
        raise
    except LedgerError as error:
        done.problem = str(error)
    done.outcome = Outcome.FAILED
    done.problem = done.problem or "its new replicas are lost again"
    return done
