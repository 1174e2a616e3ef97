"""Single rules of ledgers: quorums, fences over a restart, what a recovery keeps, reads of one entry."""

from collections.abc import Mapping
from itertools import product

import pytest

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import BookieRules, FenceRecord, KeyRecord
from pyledger.protocol.bookkeeper.entry import DigestType, LedgerEntry
from pyledger.protocol.bookkeeper.entry_reader import EntryRead, SendRead
from pyledger.protocol.bookkeeper.ledger_recovery import LedgerRecovery
from pyledger.protocol.bookkeeper.ledger_writer import Added, LedgerWriter, Replacements, SendBatch
from pyledger.protocol.bookkeeper.messages import Status
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, LedgerState, Segment
from pyledger.protocol.bookkeeper.quorum import Coverage
from pyledger.protocol.bookkeeper.result_codes import Result
from pyledger.simulator.bookkeeper.bookie import EntriesInMemory
from pyledger.wire.bookkeeper.entry import EntryDigest, master_key, pack_entry

LEDGER = 7
KEY = master_key(b"")
DIGEST = EntryDigest(DigestType.CRC32C)


def metadata_of(ensemble: int, write: int, ack: int) -> LedgerMetadata:
    bookies = tuple(f"b{at}" for at in range(ensemble))
    segments = (Segment(0, bookies),)
    return LedgerMetadata(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, segments=segments)


@pytest.mark.parametrize(
    ("shape", "fewest", "most_without"),
    [
        ((3, 3, 2), 2, 1),
        ((4, 3, 2), 3, 2),
        ((5, 3, 2), 4, 3),
        ((5, 3, 3), 2, 2),
        ((3, 2, 2), 2, 1),
        ((3, 2, 1), 3, 2),
        ((5, 3, 1), 5, 4),
    ],
)
def test_coverage(shape: tuple[int, int, int], fewest: int, most_without: int) -> None:
    """The fewest answers that can cover, and the most that may still not."""
    covering, failing = set(), set()
    for answers in product((False, True), repeat=shape[0]):
        coverage = Coverage(metadata_of(*shape))
        for place, answered in enumerate(answers):
            coverage.answered(place, Result.NO_SUCH_ENTRY if answered else Result.TIMEOUT)
        (covering if coverage.covered else failing).add(sum(answers))
    assert (min(covering), max(failing)) == (fewest, most_without)


def test_write_set_counts_from_the_ledgers_start() -> None:
    metadata = metadata_of(4, 3, 2).with_ensemble(7, ("b0", "b9", "b2", "b3"))
    assert [metadata.write_set(entry) for entry in (0, 1, 2, 3, 7)] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 0),
        (3, 0, 1),
        (3, 0, 1),
    ]
    assert metadata.segment_of(6).ensemble[1] == "b1"
    assert metadata.segment_of(7).ensemble[1] == "b9"


@pytest.mark.parametrize("known", [False, True])
def test_a_fence_outlives_a_restart(*, known: bool) -> None:
    rules = BookieRules(EntriesInMemory())
    journal = []
    if known:
        journal += rules.handle(entry_to_add(0)).records
    fence = m.ReadRequest(ledger_id=LEDGER, entry_id=-1, fence=True, master_key=KEY)
    outcome = rules.handle(fence)
    assert FenceRecord(LEDGER) in outcome.records, "the answer waits for it"
    journal += outcome.records
    assert isinstance(journal[0], KeyRecord), (
        "a fence means nothing to a reader of the journal without its key"
    )
    restarted = BookieRules(EntriesInMemory())
    for record in journal:
        restarted.replay(record)
    answer = restarted.handle(entry_to_add(1)).response
    assert answer is not None
    assert answer.status is Status.EFENCED


def entry_to_add(entry_id: int) -> m.AddRequest:
    writer = LedgerWriter(metadata_of(1, 1, 1), no_others, last_add_confirmed=entry_id - 1)
    writer.add([b"payload"], 0)
    ready = writer.ready()
    assert ready is not None
    return add_request(ready.sends[0])


def add_request(send: SendBatch) -> m.AddRequest:
    (payload,), entry_id = send.payloads, send.first_entry_id
    sizes = send.last_add_confirmed, send.length + len(payload)
    entry = pack_entry(DIGEST, LEDGER, entry_id, *sizes, payload)
    return m.AddRequest(ledger_id=LEDGER, entry_id=entry_id, master_key=KEY, entry=entry)


def no_others(_ensemble: tuple[str, ...], _failed: Mapping[int, str], _needed: bool) -> Replacements:
    return Replacements({})


def test_a_recovery_keeps_what_an_older_segment_holds() -> None:
    """A segment begins behind the last confirmed entry: so those before it are confirmed, whoever answers."""
    metadata = metadata_of(3, 3, 2).with_ensemble(2, ("b7", "b8", "b9"))
    recovery = LedgerRecovery(metadata, no_others)
    ready = recovery.ready()
    assert ready is not None
    assert ready.proposal is not None
    recovery.stored(ready.proposal.wanted)
    fences = recovery.ready()
    assert fences is not None
    assert fences.reads == tuple(SendRead(bookie, -1, fence=True) for bookie in ("b7", "b8", "b9"))
    for bookie in ("b7", "b8"):
        recovery.read_answered(bookie, -1, Result.NO_SUCH_LEDGER, None, 0)
    ready = recovery.ready()
    assert ready is not None
    assert ready.reads == tuple(SendRead(bookie, 1) for bookie in ("b1", "b2", "b0"))
    recovery.read_answered("b2", 1, Result.OK, LedgerEntry(LEDGER, 1, 0, 30, b"x" * 20), 0)
    probes = recovery.ready()
    assert probes is not None
    assert {read.entry_id for read in probes.reads} == {2}
    for bookie in ("b9", "b7"):
        recovery.read_answered(bookie, 2, Result.NO_SUCH_ENTRY, None, 0)
    closing = recovery.ready()
    assert closing is not None
    assert closing.proposal is not None
    closed = closing.proposal.wanted
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 1, 30)


def test_a_damaged_last_entry_is_not_an_answer() -> None:
    recovery = LedgerRecovery(metadata_of(3, 3, 2).recovering(), no_others)
    recovery.ready()
    recovery.read_answered("b0", -1, Result.OK, None, 0)
    recovery.read_answered("b1", -1, Result.NO_SUCH_ENTRY, None, 0)
    assert recovery.ready() is None, "one good answer of three is not enough"
    recovery.read_answered("b2", -1, Result.TIMEOUT, None, 0)
    ready = recovery.ready()
    assert ready is not None
    assert ready.done is Result.LEDGER_RECOVERY


def b9_instead(_ensemble: tuple[str, ...], failed: Mapping[int, str], _needed: bool) -> Replacements:
    return Replacements(dict.fromkeys(failed, "b9"))


def test_nothing_is_confirmed_while_bookies_are_replaced() -> None:
    writer = LedgerWriter(metadata_of(3, 3, 2), b9_instead)
    for _ in range(2):
        writer.add([b"x"], 0)
    writer.ready()
    for bookie in ("b0", "b2"):
        writer.answered(bookie, 1, Result.OK)
    writer.answered("b1", 0, Result.TIMEOUT)
    for bookie in ("b0", "b2"):
        writer.answered(bookie, 0, Result.OK)
    assert writer.describe() == "lap=1 lac=-1 pending=[0:[0, 2] 1:[0, 2]] changing"
    ready = writer.ready()
    assert ready is not None
    assert not ready.added
    assert ready.proposal is not None
    assert ready.proposal.wanted.segments == (Segment(0, ("b0", "b9", "b2")),)
    writer.stored(ready.proposal.wanted)
    after = writer.ready()
    assert after is not None
    assert after.added == (Added(0, Result.OK), Added(1, Result.OK))
    assert [(send.bookies, send.first_entry_id) for send in after.sends] == [(("b9",), 0), (("b9",), 1)]


def test_a_fenced_writer_confirms_nothing_more() -> None:
    writer = LedgerWriter(metadata_of(3, 3, 2), no_others)
    writer.add([b"x"], 0)
    writer.answered("b0", 0, Result.OK)
    writer.answered("b1", 0, Result.LEDGER_FENCED)
    writer.answered("b2", 0, Result.OK)
    writer.add([b"y"], 0)
    ready = writer.ready()
    assert ready is not None
    assert ready.added == (Added(0, Result.LEDGER_FENCED), Added(1, Result.LEDGER_FENCED))


def test_an_entry_that_waits_too_long_ends_the_writer() -> None:
    writer = LedgerWriter(metadata_of(3, 3, 2), no_others, add_quorum_timeout_ms=100)
    writer.add([b"x"], 1_000)
    assert writer.deadline_ms() == 1_100
    writer.tick(1_099)
    assert writer.failure is None
    writer.tick(1_100)
    assert writer.failure is Result.ADD_QUORUM_TIMEOUT


def test_a_read_goes_from_bookie_to_bookie() -> None:
    read = EntryRead(metadata_of(3, 3, 2), 1, 0, prefer=("b0",), speculative_ms=2_000)
    assert read.ready() == (SendRead("b0", 1),)
    read.tick(1_999)
    assert read.ready() == ()
    read.tick(2_000)
    assert read.ready() == (SendRead("b1", 1),), "b0 is slow"
    read.answered("b1", Result.OK, None, 2_001)
    assert read.ready() == (SendRead("b2", 1),), "what b1 sent was damaged"
    read.answered("b2", Result.NO_SUCH_ENTRY, None, 2_002)
    assert read.result is None, "b0 may still answer"
    read.answered("b0", Result.BOOKIE_NOT_AVAILABLE, None, 2_003)
    assert read.result is Result.DIGEST_MATCH, "damage is never ready as absence"


def test_an_entry_is_absent_only_when_its_whole_write_set_says_so() -> None:
    read = EntryRead(metadata_of(3, 3, 2), 0, 0, speculative_ms=None)
    for bookie in ("b0", "b1"):
        read.answered(bookie, Result.NO_SUCH_ENTRY, None, 0)
    read.answered("b2", Result.BOOKIE_NOT_AVAILABLE, None, 0)
    assert read.result is Result.BOOKIE_NOT_AVAILABLE, "b2 may have it"
    denied = EntryRead(metadata_of(3, 3, 2), 0, 0, speculative_ms=None)
    for bookie in ("b0", "b1", "b2"):
        denied.answered(bookie, Result.NO_SUCH_ENTRY, None, 0)
    assert denied.result is Result.NO_SUCH_ENTRY


@pytest.mark.parametrize("probes_fence", [True, False], ids=["ours", "bookkeeper-2614"])
def test_a_bookie_whose_fence_was_lost_is_fenced_when_it_denies_an_entry(*, probes_fence: bool) -> None:
    """Step by step: without the fence of the second read, an entry is confirmed behind the end."""
    bookies = {name: BookieRules(EntriesInMemory()) for name in ("b0", "b1")}
    metadata = metadata_of(2, 2, 2)
    writer = LedgerWriter(metadata, no_others)
    writer.add([b"x"], 0)
    sent = writer.ready()
    assert sent is not None
    (send,) = sent.sends
    assert send.bookies == ("b0", "b1")
    to_b0 = to_b1 = add_request(send)
    assert status_of(bookies["b0"], to_b0) is Status.EOK
    writer.answered("b0", 0, Result.OK)

    recovery = LedgerRecovery(metadata.recovering(), no_others)
    fences = recovery.ready()
    assert fences is not None
    assert fences.reads == (SendRead("b0", -1, fence=True), SendRead("b1", -1, fence=True))
    entry = LedgerEntry(LEDGER, 0, -1, 1, b"x")
    assert status_of(bookies["b0"], read_request(fences.reads[0])) is Status.EOK
    recovery.read_answered("b0", -1, Result.OK, entry, 0)  # what was sent to b1 is lost
    probes = recovery.ready()
    assert probes is not None
    probe = probes.reads[1] if probes_fence else SendRead("b1", 0, fence=False)
    assert probe.bookie == "b1"
    assert status_of(bookies["b1"], read_request(probe)) in (Status.ENOLEDGER, Status.ENOENTRY)
    recovery.read_answered("b1", 0, Result.NO_SUCH_LEDGER, None, 0)
    closing = recovery.ready()
    assert closing is not None
    assert closing.proposal is not None
    assert closing.proposal.wanted.last_entry_id == -1

    late = status_of(bookies["b1"], to_b1)
    writer.answered("b1", 0, Result.OK if late is Status.EOK else Result.LEDGER_FENCED)
    ready = writer.ready()
    assert ready is not None
    assert ready.added == (Added(0, Result.LEDGER_FENCED if probes_fence else Result.OK),)


def status_of(bookie: BookieRules, request: m.Request) -> Status:
    response = bookie.handle(request).response
    assert response is not None
    return response.status


def read_request(read: SendRead) -> m.ReadRequest:
    key = KEY if read.fence else None
    return m.ReadRequest(ledger_id=LEDGER, entry_id=read.entry_id, fence=read.fence, master_key=key)
