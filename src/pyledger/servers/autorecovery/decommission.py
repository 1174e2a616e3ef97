"""Decommission a bookie: re-replicate its ledgers to others, then delete its cookie.

Source: BookKeeper client/BookKeeperAdmin.java (decommissionBookie).
"""

import contextlib
from collections.abc import Callable

from pyledger.client.bookkeeper.client import AsyncLedgerClient
from pyledger.config.autorecovery import AutoRecoveryConfig
from pyledger.errors import AutoRecoveryDisabledError, BookieExistsError, NoNodeError, NoSuchLedgerError
from pyledger.protocol.bookkeeper.fragments import keeps_entries
from pyledger.servers.autorecovery.auditor import Auditor
from pyledger.servers.autorecovery.clock import SystemClock


async def decommission(
    client: AsyncLedgerClient, bookie_id: str, *, forget: bool = False, on_progress: Callable[[int], None]
) -> int:
    """Mark all ledgers of a stopped bookie, wait until they are re-replicated, and return how many there are.

    Args:
        client: A started client.
        bookie_id: The stopped bookie.
        forget: Delete its cookie at the end, so that the old folders cannot be used under its name again.
        on_progress: Called with the number of ledgers left, at the start and after each one.

    Raises:
        BookieExistsError: The bookie is running.
        AutoRecoveryDisabledError: No worker would re-replicate the ledgers.
        NoNodeError: There is no such bookie, or, without `forget`, it has no cookie and no ledger names it.
    """
    found = await client.bookies()
    if bookie_id in found.writable or bookie_id in found.read_only:
        raise BookieExistsError(bookie_id)
    if not await client.cluster.marks.enabled():
        raise AutoRecoveryDisabledError
    known = bookie_id in await client.cluster.bookies.known()
    if forget and not known:
        raise NoNodeError(bookie_id)
    await client.cluster.marks.prepare()
    auditor = Auditor(client, AutoRecoveryConfig(), SystemClock())
    await auditor.mark_ledgers_of(frozenset((bookie_id,)))
    left = [ledger_id async for ledger_id in client.ledgers() if await _keeps(client, ledger_id, bookie_id)]
    if not left and not known:
        raise NoNodeError(bookie_id)
    on_progress(len(left))
    for done, ledger_id in enumerate(left, 1):
        with contextlib.suppress(NoSuchLedgerError):
            states = client.cluster.ledgers.watch(ledger_id)
            async with contextlib.aclosing(states):
                async for stored in states:
                    if not keeps_entries(stored.metadata, bookie_id):
                        break
        on_progress(len(left) - done)
    if forget:
        await client.cluster.bookies.delete_cookie(bookie_id)
    return len(left)


async def _keeps(client: AsyncLedgerClient, ledger_id: int, bookie_id: str) -> bool:
    with contextlib.suppress(NoSuchLedgerError):
        return keeps_entries(await client.metadata(ledger_id), bookie_id)
    return False
