"""Making the ledgers of lost bookies whole again by hand: without autorecovery, and at once.

Each ledger is looked at anew, so it does no harm when autorecovery mends it meanwhile: the metadata names a
successor only while it still names the bookie that is lost.

Source: BookKeeper client/BookKeeperAdmin.java (recoverBookieData).
"""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from enum import Enum

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.client.bookkeeper.fragment_replicator import LedgerReplication
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
    """What became of a ledger."""

    WHOLE = "whole"
    """Nothing was missing."""
    MENDED = "mended"
    LACKING = "lacking"
    """Nothing was tried."""
    FAILED = "failed"


@dataclass(slots=True)
class MendedLedger:
    """One ledger of a lost bookie.

    Attributes:
        ledger_id: Which.
        outcome: What became of it.
        fragments: So many lacked copies.
        closed: Whether it had to be fenced and closed, or would have to be.
        copied_bytes: What was copied.
        problem: Why it failed.
    """

    ledger_id: int
    outcome: Outcome = Outcome.WHOLE
    fragments: int = 0
    closed: bool = False
    copied_bytes: int = 0
    problem: str = ""


async def mend_ledgers_of(
    client: AsyncLedgerClient, bookie_ids: Collection[str], *, dry_run: bool = False
) -> AsyncIterator[MendedLedger]:
    """Give all ledgers their copies again that some bookies had; each ledger when it is done.

    A ledger that nobody closed, with such a bookie where its writer adds, is fenced off and closed.

    Args:
        client: Started.
        bookie_ids: The bookies; none of them runs.
        dry_run: Look, and change nothing.

    Raises:
        BookieExistsError: One of them runs.
        MetadataUnreachableError: Nobody answers.
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
                yield await _mended(repairs, ledger_id, dry_run)
        except NoSuchLedgerError:
            continue  # deleted meanwhile: it lacks nothing


async def _mended(repairs: LedgerReplication, ledger_id: int, dry_run: bool) -> MendedLedger:
    done = MendedLedger(ledger_id)
    try:
        for _ in range(ROUNDS_MAX):
            found = await repairs.examine(ledger_id)
            step = found.next_step(found.left_to_writer)
            if step is Step.DONE:
                return done
            done.fragments = max(done.fragments, len(found.missing_replicas))
            done.closed |= bool(found.left_to_writer)
            if dry_run:
                done.outcome = Outcome.LACKING
                return done
            done.outcome = Outcome.MENDED
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
    done.problem = done.problem or "copies of it do not last"
    return done
