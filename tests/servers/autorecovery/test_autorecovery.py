"""Bookies are lost, and the ledgers that lacked copies have them all again, byte for byte."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, DigestType
from pyledger.errors import LedgerFencedError, NoSuchLedgerError
from pyledger.protocol.bookkeeper.messages import AddRequest, AddResponse, Request, Response, Status
from pyledger.wire.bookkeeper.bookies import Endpoint, Registration
from pyledger.wire.bookkeeper.underreplication import EVERY_ENTRY
from tests.servers.autorecovery.cluster import RecoveryCluster, play, until

PAYLOADS = [b"%d" % at * (at % 9) for at in range(120)]
WEEK_MS = 604_800_000
HOUR_MS = 3_600_000


async def filled(client: AsyncLedgerClient, *sizes: int, close: bool = True, **options: object) -> int:
    writer = await client.create(
        ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2], **options
    )  # type: ignore[arg-type]
    await writer.add_many(PAYLOADS)
    await (writer.close() if close else writer.abandon())
    return writer.ledger_id


@pytest.mark.parametrize(
    ("sizes", "digest"),
    [
        *(((3, 2, 2), digest) for digest in DigestType),
        ((3, 3, 2), DigestType.CRC32C),
        ((2, 2, 1), DigestType.CRC32C),
    ],
    ids=lambda one: one.name if isinstance(one, DigestType) else "/".join(map(str, one)),
)
def test_lost_ledgers_are_replicated(tmp_path: Path, digest: DigestType, sizes: tuple[int, int, int]) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledgers: list[int] = []
        while not any(["b1" in await made.names(one) for one in ledgers]):
            ledgers.append(await filled(client, *sizes, digest=digest, password=b"pw"))
        await made.lose("b1")
        async with made.recovery():
            await made.without("b1", *ledgers)
            await until(made.none_marked)
        for ledger_id in ledgers:
            await made.whole(ledger_id)
            reader = await client.open(ledger_id, b"pw")
            assert [entry.payload async for entry in reader.read()] == PAYLOADS

    play(tmp_path, scenario)


def test_a_single_lost_bookie_is_acted_on_after_the_delay(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 4, 3, 2)
        async with made.recovery(lost_bookie_recovery_delay_s=100):
            port = made.bench.bookies["b0"].port
            await made.cluster.bookies.unregister("b0")
            await made.wait_for_waiter(100_000)
            made.clock.pass_time(99_999)
            await made.cluster.bookies.register("b0", Registration((Endpoint("bookie", port, "127.0.0.1"),)))

            async def waits_no_more() -> bool:
                return 1 not in made.clock.waits

            await until(waits_no_more)
            made.clock.pass_time(2)
            assert await made.marked() == []
            await made.lose("b0")
            await made.wait_for_waiter(100_000)
            made.clock.pass_time(100_000)

            async def marked() -> bool:
                return await made.marked() == [ledger_id]

            await until(marked)

    play(tmp_path, scenario)


def test_without_another_bookie_the_mark_stays_until_one_comes(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        spare = Registration((Endpoint("bookie", made.bench.bookies["b3"].port, "127.0.0.1"),))
        await made.cluster.bookies.unregister("b3")
        await made.cluster.bookies.delete_cookie("b3")
        await client.bookies()
        ledger_id = await filled(client, 3, 3, 2)
        await made.lose("b0")
        async with made.recovery(lock_release_of_failed_ledger_grace_period_ms=320_000):
            await made.wait_for_waiter(10_000)
            assert await made.marked() == [ledger_id]
            made.clock.pass_time(10_000)

            await made.wait_for_waiter(20_000)
            await made.know("b3")
            await made.cluster.bookies.register("b3", spare)
            await until(made.none_marked)
        assert await made.names(ledger_id) == {"b1", "b2", "b3"}
        await made.whole(ledger_id)

    play(tmp_path, scenario)


def test_a_writer_that_replaces_its_bookie_is_not_fenced(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await writer.add_many(PAYLOADS)
        lost = writer.metadata.segments[-1].ensemble[0]
        await made.lose(lost)
        async with made.recovery():
            await made.wait_for_waiter(30_000)
            while lost in writer.metadata.segments[-1].ensemble:
                last = await writer.add(b"more")
            # What the first fragment lacks is copied when the time is over; what is on its way comes before.
            await made.arrived(writer.ledger_id, last)
            made.clock.pass_time(30_000)
            await until(made.none_marked)
            assert lost not in await made.names(writer.ledger_id)
            last = await writer.add(b"last")
            await writer.close()
        await made.whole(writer.ledger_id)
        reader = await client.open(writer.ledger_id)
        assert (await reader.entry(last)).payload == b"last"

    play(tmp_path, scenario)


def test_a_writer_that_is_gone_is_fenced(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, password=b"pw")
        await writer.add_many(PAYLOADS)
        lost = writer.metadata.segments[-1].ensemble[0]
        await made.lose(lost)
        async with made.recovery():
            await made.wait_for_waiter(30_000)
            assert not (await client.metadata(writer.ledger_id)).closed
            made.clock.pass_time(30_000)
            await until(made.none_marked)
        found = await client.metadata(writer.ledger_id)
        assert found.closed
        assert found.last_entry_id == len(PAYLOADS) - 1
        await made.whole(writer.ledger_id)
        with pytest.raises(LedgerFencedError):
            await writer.add(b"late")

    play(tmp_path, scenario)


def test_nothing_happens_while_it_is_disabled(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        lost = min(await made.names(ledger_id))
        await made.cluster.marks.set_enabled(False)
        async with made.recovery():
            await made.lose(lost)
            await made.cluster.marks.mark(ledger_id, [lost], 0)
            made.clock.pass_time(2 * WEEK_MS)
            assert await made.names(ledger_id) >= {lost}
            await made.cluster.marks.set_enabled(True)
            await until(made.none_marked)
        assert lost not in await made.names(ledger_id)
        await made.whole(ledger_id)

    play(tmp_path, scenario)


def test_a_check_finds_missing_replicas(tmp_path: Path) -> None:
    """All bookies run; one has lost its first entries, and one all entries of another ledger."""

    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledgers = [await filled(client, 3, 3, 2) for _ in range(3)]
        async with made.recovery():

            async def checked() -> bool:
                return WEEK_MS in [wait for wait in made.clock.waits if wait > 24 * HOUR_MS]

            await until(checked)
            for ledger_id in ledgers[:2]:
                await made.whole(ledger_id)
                name = min(await made.names(ledger_id))
                held = made.bench.bookies[name].rules.storage.ledgers[ledger_id]
                for entry_id in range(5 if ledger_id == ledgers[0] else len(PAYLOADS)):
                    del held[entry_id]
            made.clock.pass_time(WEEK_MS)
            await until(checked)
            await until(made.none_marked)
            assert await made.cluster.marks.last_check_ms() == made.clock.now_ms()
        for ledger_id in ledgers:
            await made.whole(ledger_id)

    play(tmp_path, scenario)


def test_a_mark_may_request_every_entry(tmp_path: Path) -> None:
    """One bookie has lost an entry in the middle, which the ends of its part do not show."""

    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        await made.whole(ledger_id)
        name = min(await made.names(ledger_id))
        del made.bench.bookies[name].rules.storage.ledgers[ledger_id][len(PAYLOADS) // 2]
        await made.cluster.marks.prepare()
        await made.cluster.marks.mark(ledger_id, [name], 0)
        async with made.recovery():
            await until(made.none_marked)
            assert not all(len(copies) == 3 for copies in await made.copies(ledger_id))
            await made.cluster.marks.mark(ledger_id, [name, EVERY_ENTRY], 0)
            await until(made.none_marked)
        await made.whole(ledger_id)

    play(tmp_path, scenario)


def test_another_auditor_follows(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        election = made.cluster.election
        async with made.recovery("two"):

            async def elected() -> bool:
                return await election.auditor() == "two"

            await until(elected)
            async with made.recovery("one"):
                assert await election.auditor() == "two"
            async with made.recovery("three"):
                pass
            assert await election.auditor() == "two"
            lost = min(await made.names(ledger_id))
            await made.lose(lost)
            await until(made.none_marked)
            await made.without(lost, ledger_id)

    play(tmp_path, scenario)


def test_an_audit_can_be_requested(tmp_path: Path) -> None:
    """Upstream's tools set the delay to its current value."""

    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        lost = min(await made.names(ledger_id))
        async with made.recovery(lost_bookie_recovery_delay_s=1000):
            await made.lose(lost)

            await made.wait_for_waiter(1_000_000)
            await made.cluster.marks.set_delay_s(1000)
            await made.without(lost, ledger_id)

    play(tmp_path, scenario)


def test_every_day_lost_bookies_are_acted_on_again(tmp_path: Path) -> None:
    """A ledger names a lost bookie although no bookie has joined or left since."""

    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        await made.whole(ledger_id)
        before = await made.cluster.ledgers.get(ledger_id)
        lost = before.metadata.segments[0].ensemble[0]
        async with made.recovery():
            await made.lose(lost)
            await made.without(lost, ledger_id)
            await until(made.none_marked)

            stored = await made.cluster.ledgers.get(ledger_id)
            again = replace(stored.metadata, segments=before.metadata.segments)
            await made.cluster.ledgers.put(stored, again)
            await made.wait_for_waiter(24 * HOUR_MS)
            assert lost in await made.names(ledger_id)
            made.clock.pass_time(24 * HOUR_MS)
            await made.without(lost, ledger_id)
            await until(made.none_marked)
        await made.whole(ledger_id)

    play(tmp_path, scenario)


def test_a_worker_copies_no_faster_than_it_may(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        await made.whole(ledger_id)
        copied_bytes = sum(len(entry) for entry, *_ in await made.copies(ledger_id))
        lost = min(await made.names(ledger_id))
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        async with made.recovery(replication_rate_by_bytes=4 * copied_bytes):
            await made.lose(lost)
            await made.without(lost, ledger_id)
        assert loop.time() - begin_s >= 0.25 * 0.99

    play(tmp_path, scenario)


def test_a_deleted_ledger_is_not_re_replicated(tmp_path: Path) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        await made.cluster.marks.prepare()
        await made.cluster.marks.mark(ledger_id, ["b0"], 0)
        await client.delete(ledger_id)
        async with made.recovery():
            await until(made.none_marked)
        with pytest.raises(NoSuchLedgerError):
            await client.metadata(ledger_id)

    play(tmp_path, scenario)


def test_a_fenced_bookie_takes_copies(tmp_path: Path) -> None:
    """The bookie that gets the copies was fenced before it left the ensemble."""

    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2, close=False)
        reader = await client.open(ledger_id)
        assert reader.closed
        # A recovery needs no answer of the third one.
        name, bookie = next(
            (name, bookie)
            for name, bookie in made.bench.bookies.items()
            if (known := bookie.rules.ledgers.get(ledger_id)) is not None and known.fenced
        )
        bookie.rules.storage.ledgers.clear()
        stored = await made.cluster.ledgers.get(ledger_id)
        await made.cluster.marks.prepare()
        await made.cluster.marks.mark(ledger_id, [name], 0)
        for other in sorted({"b0", "b1", "b2", "b3"} - await made.names(ledger_id)):
            await made.cluster.bookies.unregister(other)
        async with made.recovery():
            await until(made.none_marked)
        assert (await made.cluster.ledgers.get(ledger_id)).version == stored.version, "nothing was replaced"
        await made.whole(ledger_id)

    play(tmp_path, scenario)


@pytest.mark.parametrize("first", [0, 100], ids="first={}".format)
def test_a_bookie_that_rejects_entries_is_skipped(tmp_path: Path, first: int) -> None:
    async def scenario(made: RecoveryCluster, client: AsyncLedgerClient) -> None:
        ledger_id = await filled(client, 3, 3, 2)
        lost = min(await made.names(ledger_id))
        others = sorted(made.bench.bookies.keys() - await made.names(ledger_id))
        refusing = ""

        def refuse(name: str, request: Request, response: Response) -> Response:
            nonlocal refusing
            if not isinstance(request, AddRequest) or request.entry_id < first:
                return response
            refusing = refusing or name
            assert isinstance(response, AddResponse)
            return replace(response, status=Status.EIO) if name == refusing else response

        for name in others:
            made.bench.bookies[name].twist = partial(refuse, name)
        await made.lose(lost)
        async with made.recovery():

            async def rested() -> bool:
                made.clock.pass_time(HOUR_MS)
                return await made.none_marked() and lost not in await made.names(ledger_id)

            await until(rested)
        assert {refusing, *await made.names(ledger_id)} >= {*others}
        assert refusing not in await made.names(ledger_id)
        await made.whole(ledger_id)

    play(tmp_path, scenario, bookies=5)
