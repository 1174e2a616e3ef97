"""Ledgers of lost bookies are re-replicated on request, without autorecovery."""

from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, AsyncLedgerWriter
from pyledger.errors import BookieExistsError, LedgerFencedError
from pyledger.servers.autorecovery.recover_bookies import Outcome, ReplicatedLedger, replicate_ledgers_of
from tests.servers.autorecovery.cluster import RecoveryCluster, play

PAYLOADS = [b"%d" % at * (at % 7) for at in range(60)]


async def replicated(
    client: AsyncLedgerClient, *bookies: str, dry_run: bool = False
) -> list[ReplicatedLedger]:
    return [one async for one in replicate_ledgers_of(client, bookies, dry_run=dry_run)]


async def at_b1(client: AsyncLedgerClient, *sizes: int) -> AsyncLedgerWriter:
    """Return a writer of a ledger with `b1` in its ensemble."""
    while True:
        writer = await client.create(
            ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2], password=b"pw"
        )
        if "b1" in writer.metadata.segments[0].ensemble:
            return writer
        await writer.close()


def test_closed_and_open_ledgers(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        closed = await at_b1(client, 4, 3, 2)
        await closed.add_many(PAYLOADS)
        await closed.close()
        left = await at_b1(client, 3, 3, 3)
        await left.add_many(PAYLOADS)
        await left.abandon()
        empty = await at_b1(client, 4, 2, 2)
        await empty.close()
        with pytest.raises(BookieExistsError):
            await replicated(client, "b1")
        await made.lose("b1")
        before = [await client.metadata(ledger_id) async for ledger_id in client.ledgers()]
        found = await replicated(client, "b1", dry_run=True)
        assert [(one.ledger_id, one.outcome, one.closed) for one in found] == [
            (closed.ledger_id, Outcome.UNDER_REPLICATED, False),
            (left.ledger_id, Outcome.UNDER_REPLICATED, True),
        ]
        assert found[0].fragments == 1
        assert [await client.metadata(ledger_id) async for ledger_id in client.ledgers()] == before
        found = await replicated(client, "b1")
        assert [(one.ledger_id, one.outcome, one.closed) for one in found] == [
            (closed.ledger_id, Outcome.REPLICATED, False),
            (left.ledger_id, Outcome.REPLICATED, True),
        ]
        assert found[0].copied_bytes > sum(map(len, PAYLOADS))
        for ledger_id in (closed.ledger_id, left.ledger_id):
            await made.whole(ledger_id)
            assert "b1" not in await made.names(ledger_id)
            reader = await client.open(ledger_id, b"pw")
            assert [entry.payload async for entry in reader.read()] == PAYLOADS
        assert await replicated(client, "b1") == []

    play(tmp_path, scenario, bookies=5)


def test_a_writer_at_a_lost_bookie_is_fenced(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await writer.add_many(PAYLOADS)
        lost = writer.metadata.segments[0].ensemble[1]
        await made.lose(lost)
        (found,) = await replicated(client, lost)
        assert (found.outcome, found.closed) == (Outcome.REPLICATED, True)
        with pytest.raises(LedgerFencedError):
            await writer.add(b"late")
        await writer.abandon()
        await made.whole(writer.ledger_id)
        assert lost not in await made.names(writer.ledger_id)

    play(tmp_path, scenario)


def test_without_another_bookie_it_fails_with_the_reason(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await writer.add_many(PAYLOADS)
        await writer.close()
        await made.lose("b2")
        (found,) = await replicated(client, "b2")
        assert (found.outcome, found.fragments, found.copied_bytes) == (Outcome.FAILED, 1, 0)
        assert "bookies" in found.problem
        assert "b2" in await made.names(writer.ledger_id), "only bookies with replicas are named"

    play(tmp_path, scenario, bookies=3)
