"""The client of ledgers against bookies in memory: what it does when they fail, lie or are fenced."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyledger.bookkeeper import DigestType
from pyledger.errors import (
    AddFailedError,
    DuplicateEntryIdError,
    EntryReadError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerOperationError,
    LedgerPasswordError,
    LedgerRecoveryError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from pyledger.protocol.bookkeeper.messages import (
    AddRequest,
    BatchReadRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from tests.client.bookkeeper.model_bookie import Bench, bench

PAYLOADS = [bytes([at]) * (at + 1) for at in range(100)]


def run(folder: Path, scenario: Callable[[Bench], Awaitable[None]], bookies: int = 4) -> None:
    async def whole() -> None:
        async with bench(folder, bookies) as made:
            await scenario(made)

    asyncio.run(whole())


def silent(_request: Request, _response: Response) -> None:
    """Nothing is answered."""


def damaged(request: Request, response: Response) -> Response:
    """Entries come back with another last byte."""
    if isinstance(response, ReadResponse) and response.entry:
        return replace(response, entry=response.entry[:-1] + bytes([response.entry[-1] ^ 1]))
    return response


def refusing(status: Status) -> Callable[[Request, Response], Response]:
    return lambda _, response: replace(response, status=status)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 3, 2), (4, 2, 1), (3, 2, 2)])
@pytest.mark.parametrize("digest", DigestType)
def test_write_and_read(tmp_path: Path, digest: DigestType, sizes: tuple[int, int, int]) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client(reads_ahead=7, adds_pending_max=9) as client:
            writer = await client.create(
                ensemble_size=sizes[0],
                write_quorum_size=sizes[1],
                ack_quorum_size=sizes[2],
                digest=digest,
                password=b"pw",
                custom={"a": b"1"},
            )
            assert await writer.add(PAYLOADS[0]) == 0
            assert await writer.add_many(PAYLOADS[1:]) == 99
            closed = await writer.close()
            assert (closed.last_entry_id, closed.length) == (99, sum(map(len, PAYLOADS)))
            with pytest.raises(LedgerClosedError):
                await writer.add(b"late")
            reader = await client.open(writer.ledger_id, b"pw")
            assert [entry.payload async for entry in reader.read()] == PAYLOADS
            assert [entry.entry_id async for entry in reader.read(40, 60)] == list(range(40, 61))
            assert (await client.metadata(writer.ledger_id)).custom == {"a": b"1"}
            batched = any(isinstance(one, BatchReadRequest) for b in made.bookies.values() for one in b.seen)
            assert batched == (sizes[0] == sizes[1])
            with pytest.raises(LedgerPasswordError):
                await client.open(writer.ledger_id, b"other")
            assert [ledger_id async for ledger_id in client.ledgers()] == [writer.ledger_id]
            await client.delete(writer.ledger_id)
            with pytest.raises(NoSuchLedgerError):
                await client.open(writer.ledger_id, b"pw")

    run(tmp_path, scenario)


def test_too_few_bookies(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            with pytest.raises(NotEnoughBookiesError, match="5 bookies are needed, 4"):
                await client.create(ensemble_size=5, write_quorum_size=3, ack_quorum_size=2)
            assert [ledger_id async for ledger_id in client.ledgers()] == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("how", ["killed", "read-only"])
def test_a_bookie_that_fails_is_replaced(tmp_path: Path, how: str) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS[:50])
            lost = made.bookies[writer.metadata.segments[0].ensemble[1]]
            if how == "killed":
                await lost.stop()
            else:
                lost.twist = refusing(Status.EREADONLY)
            await writer.add_many(PAYLOADS[50:])
            await writer.flush()
            # A confirmed entry needs two copies; the third one's failure is acted on with a later add.
            while len(writer.metadata.segments) == 1:
                await writer.add(b"more")
            assert lost.name not in writer.metadata.segments[-1].ensemble
            closed = await writer.close()
            reader = await client.open(writer.ledger_id)
            found = [entry.payload async for entry in reader.read()]
            assert found[:100] == PAYLOADS
            assert len(found) == closed.last_entry_id + 1

    run(tmp_path, scenario)


@pytest.mark.parametrize("how", ["killed", "refuses", "fenced"])
def test_a_bookie_fails_amid_many_adds(tmp_path: Path, how: str) -> None:
    """Of entries that were sent together, some are stored by a bookie that then fails, and some are not."""

    async def scenario(made: Bench) -> None:
        async with made.client(adds_pending_max=len(PAYLOADS) + 1) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
            await writer.add(b"first")  # so that connections stand
            lost = made.bookies[writer.metadata.segments[0].ensemble[1]]
            stopping: list[asyncio.Task[None]] = []

            def fail(request: Request, response: Response) -> Response | None:
                if not isinstance(request, AddRequest) or request.entry_id < 60:
                    return response
                if how == "killed":
                    stopping.append(asyncio.get_running_loop().create_task(lost.stop()))
                    return None
                return replace(response, status=Status.EIO if how == "refuses" else Status.EFENCED)

            lost.twist = fail
            if how == "fenced":
                with pytest.raises(LedgerFencedError):
                    await writer.add_many(PAYLOADS)
                assert writer.last_add_confirmed < 60
                return
            assert await writer.add_many(PAYLOADS) == len(PAYLOADS)
            assert writer.pending == 0
            assert [len(writer.metadata.segments), writer.metadata.segments[1].first_entry_id <= 60] == [
                2,
                True,
            ]
            await writer.close()
            reader = await client.open(writer.ledger_id)
            assert [entry.payload async for entry in reader.read()] == [b"first", *PAYLOADS]
            await asyncio.gather(*stopping)
            for name in writer.metadata.segments[-1].ensemble:
                held = made.bookies[name].rules.storage.ledgers[writer.ledger_id]
                assert set(held) >= set(range(writer.metadata.segments[1].first_entry_id, len(PAYLOADS) + 1))

    run(tmp_path, scenario)


def test_a_slow_bookie_is_not_left_behind_for_ever(tmp_path: Path) -> None:
    """Else its answers would come too late, and it would be taken for dead."""

    async def scenario(made: Bench) -> None:
        async with made.client(adds_pending_max=5) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add(b"first")  # so that connections stand
            slow = made.bookies[writer.metadata.segments[0].ensemble[2]]
            slow.twist = lambda request, response: None if isinstance(request, AddRequest) else response
            adding = asyncio.get_running_loop().create_task(writer.add_many(PAYLOADS))
            while writer.last_add_confirmed < 40:
                await asyncio.sleep(0)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert not adding.done()
            assert writer.last_add_pushed <= 8 * 5 + 5 + 1
            await slow.stop()
            assert await adding == len(PAYLOADS)
            assert slow.name not in writer.metadata.segments[-1].ensemble
            await writer.close()

    run(tmp_path, scenario)


def test_a_reader_finds_what_moved_after_it_opened_the_ledger(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
            reader = await client.open(writer.ledger_id, recover=False)
            first = made.bookies[writer.metadata.segments[0].ensemble[0]]
            first.twist = refusing(Status.EREADONLY)
            await writer.add(PAYLOADS[0])
            assert writer.metadata.segments[0].ensemble[0] != first.name
            assert (await reader.entry(0, unconfirmed=True)).payload == PAYLOADS[0]
            with pytest.raises(NoSuchEntryError):
                await reader.entry(1, unconfirmed=True)
            await writer.close()

    run(tmp_path, scenario)


def test_no_bookie_is_left(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
            await writer.add(b"safe")
            await made.bookies[writer.metadata.segments[0].ensemble[0]].stop()
            with pytest.raises(AddFailedError):
                await writer.add(b"unknown")
            with pytest.raises(AddFailedError):
                await writer.add(b"never sent")
            closed = await writer.close()
            assert closed.last_entry_id == 0

    run(tmp_path, scenario, bookies=3)


def test_a_second_opener_fences_the_writer(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client, made.client() as other:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS)
            reader = await other.open(writer.ledger_id)
            assert reader.closed
            assert [entry.payload async for entry in reader.read()] == PAYLOADS
            with pytest.raises(LedgerFencedError):
                await writer.add(b"late")
            assert (await writer.close()).last_entry_id == 99
            again = await other.open(writer.ledger_id)
            assert again.last_add_confirmed == 99

    run(tmp_path, scenario)


def test_an_abandoned_ledger_is_recovered_whole(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client, made.client() as one, made.client() as two:
            writer = await client.create(ensemble_size=4, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS)
            await writer.abandon()
            with pytest.raises(LedgerClosedError):
                await writer.add(b"late")
            found = await asyncio.gather(one.open(writer.ledger_id), two.open(writer.ledger_id))
            assert {reader.last_add_confirmed for reader in found} == {99}
            assert [entry.payload async for entry in found[0].read()] == PAYLOADS

    run(tmp_path, scenario)


def test_a_recovery_does_not_guess(tmp_path: Path) -> None:
    """With two of three bookies gone an entry may be on both of them: the ledger stays in recovery."""

    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS[:3])
            await writer.abandon()
            lost = [made.bookies[name] for name in writer.metadata.segments[0].ensemble[:2]]
            for bookie in lost:
                bookie.twist = refusing(Status.EIO)
            with pytest.raises(LedgerRecoveryError):
                await client.open(writer.ledger_id)
            assert (await client.metadata(writer.ledger_id)).state.name == "IN_RECOVERY"
            for bookie in lost:
                bookie.twist = None
            assert (await client.open(writer.ledger_id)).last_add_confirmed == 2

    run(tmp_path, scenario)


@pytest.mark.parametrize("batches", [True, False])
def test_a_damaged_copy_is_passed_over(tmp_path: Path, batches: bool) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client(batch_read_enabled=batches) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS)
            await writer.close()
            ensemble = writer.metadata.segments[0].ensemble
            for name in ensemble[:2]:
                made.bookies[name].twist = damaged
            reader = await client.open(writer.ledger_id)
            assert [entry.payload async for entry in reader.read()] == PAYLOADS
            made.bookies[ensemble[2]].twist = damaged
            with pytest.raises(EntryReadError, match="DIGEST_MATCH"):
                await reader.entry(5)
            made.bookies[ensemble[2]].twist = refusing(Status.ENOENTRY)
            with pytest.raises(EntryReadError, match="DIGEST_MATCH"):
                await reader.entry(5)  # a copy that is damaged was a copy
            for name in ensemble:
                made.bookies[name].twist = refusing(Status.ENOENTRY)
            with pytest.raises(NoSuchEntryError):
                await reader.entry(5)

    run(tmp_path, scenario)


def test_a_slow_bookie_is_not_waited_for(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client(speculative_read_timeout_ms=1) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS)
            await writer.close()
            for name in writer.metadata.segments[0].ensemble[:2]:
                made.bookies[name].twist = silent
            reader = await client.open(writer.ledger_id)
            assert (await reader.entry(42)).payload == PAYLOADS[42]

    run(tmp_path, scenario)


@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 2, 2)])
def test_follow_a_writer(tmp_path: Path, sizes: tuple[int, int, int]) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client, made.client(long_poll_ms=60_000) as other:
            writer = await client.create(
                ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2]
            )
            reader = await other.open(writer.ledger_id, recover=False)

            async def follow() -> list[bytes]:
                return [entry.payload async for entry in reader.tail()]

            following = asyncio.create_task(follow())
            for payload in PAYLOADS:
                await writer.add(payload)
            assert await reader.wait_beyond(97) >= 98, "the last but one is told by the last"
            await writer.close()
            assert await following == PAYLOADS
            assert reader.closed

    run(tmp_path, scenario)


def test_last_confirmed_needs_enough_answers(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add(b"0")
            await writer.add(b"1")
            reader = await client.open(writer.ledger_id, recover=False)
            assert reader.last_add_confirmed == 0
            assert (await reader.entry(1, unconfirmed=True)).payload == b"1"
            with pytest.raises(NoSuchEntryError):
                await reader.entry(1)
            for name in writer.metadata.segments[0].ensemble[:2]:
                made.bookies[name].twist = refusing(Status.EIO)
            with pytest.raises(EntryReadError):
                await reader.read_last_confirmed()

    run(tmp_path, scenario)


def test_explicit_lac(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client(explicit_lac_interval_ms=10) as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add(b"only one")
            reader = await client.open(writer.ledger_id, recover=False)
            while await reader.read_last_confirmed() < 0:
                await asyncio.sleep(0.01)
            assert (await reader.entry(0)).payload == b"only one"
            await writer.close()

    run(tmp_path, scenario)


def test_deferred_sync(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create(
                ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, deferred_sync=True
            )
            await writer.add_many(PAYLOADS)
            assert writer.last_add_confirmed == -1
            assert await writer.force() == 99
            adds = [one for b in made.bookies.values() for one in b.seen if isinstance(one, AddRequest)]
            assert all(one.deferred_sync for one in adds)
            made.bookies[writer.metadata.segments[0].ensemble[0]].twist = refusing(Status.EIO)
            with pytest.raises(AddFailedError):
                await writer.force()
            await writer.abandon()

    run(tmp_path, scenario)


def test_entries_of_chosen_ids(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create_advanced(
                ensemble_size=3, write_quorum_size=3, ack_quorum_size=2, ledger_id=77
            )
            added = [writer.submit_add_at(at, b"%d" % at) for at in (3, 0, 2, 1, 9)]
            assert await asyncio.gather(*added[:4]) == [3, 0, 2, 1]
            for taken in (1, 9):
                with pytest.raises(DuplicateEntryIdError):
                    await writer.add_at(taken, b"")
            assert (await writer.close()).last_entry_id == 3
            with pytest.raises(LedgerClosedError):
                await added[4]
            reader = await client.open(77)
            assert [entry.payload async for entry in reader.read()] == [b"0", b"1", b"2", b"3"]

    run(tmp_path, scenario)


@pytest.mark.parametrize("throttle", [0, 1_000_000])
def test_whose_turn_came_and_who_was_cancelled_gives_it_on(tmp_path: Path, throttle: int) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client(adds_pending_max=1, throttle=throttle) as client:
            writer = await client.create(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
            first = writer.submit_add(b"first")
            second, third = (asyncio.ensure_future(writer.add(b"later")) for _ in range(2))
            await asyncio.sleep(0)  # both wait
            # Called just when the answer is here, before the one that was woken goes on.
            first.add_done_callback(lambda _: second.cancel())
            assert await third == 1
            assert second.cancelled()
            await writer.close()

    run(tmp_path, scenario)


def test_a_payload_that_does_not_fit(tmp_path: Path) -> None:
    async def scenario(made: Bench) -> None:
        async with made.client(frame_max_bytes=2048) as client:
            writer = await client.create(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
            with pytest.raises(LedgerOperationError, match="does not fit"):
                await writer.add(bytes(2048))
            assert await writer.add(bytes(1024)) == 0
            await writer.close()

    run(tmp_path, scenario)


def test_recovery_reads_fence(tmp_path: Path) -> None:
    """Not only the question for the last entry: else an add could be confirmed behind the end."""

    async def scenario(made: Bench) -> None:
        async with made.client() as client:
            writer = await client.create(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.add_many(PAYLOADS[:3])
            await writer.abandon()
            for bookie in made.bookies.values():
                bookie.seen.clear()
            await client.open(writer.ledger_id)
            reads = [one for b in made.bookies.values() for one in b.seen if isinstance(one, ReadRequest)]
            assert all(one.fence and one.master_key for one in reads if one.entry_id != 1)
            assert {one.entry_id for one in reads if one.fence} >= {-1, 2, 3}

    run(tmp_path, scenario)
