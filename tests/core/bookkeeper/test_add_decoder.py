"""The native intake of adds does what the rules of a bookie do, or leaves an add to them."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger._core import AddIntake, JournalWriter
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import BookieRules, EntryRecord, LedgerAtBookie
from pyledger.simulator.bookkeeper.bookie import EntriesInMemory
from pyledger.wire.bookkeeper import version2, version3
from pyledger.wire.bookkeeper.entry import master_key
from pyledger.wire.bookkeeper.journal import HEADER_BYTES, encode_record, header, records
from pyledger.wire.bookkeeper.protocol_version import PROTOBUF, ProtocolVersion, encode_response
from tests.servers.bookkeeper.bookie_peer import KEY, entry_of

OTHER_KEY = master_key(b"other")
KNOWN, FENCED, UNKNOWN = 1, 2, 3
ENTRY_ID_MAX, STEP_MAX = 1000, 900

adds = st.builds(
    m.AddRequest,
    txn_id=st.integers(0, 2**64 - 1),
    priority=st.sampled_from([0, 0, 0, 100]),
    version=st.sampled_from([3, 3, 3, 2]),
    ledger_id=st.sampled_from([KNOWN, FENCED, UNKNOWN, 2**62]),
    entry_id=st.sampled_from([0, 1, 127, STEP_MAX - 1, ENTRY_ID_MAX, ENTRY_ID_MAX + 1, -1]),
    master_key=st.sampled_from([KEY, KEY, KEY, OTHER_KEY, b""]),
    entry=st.builds(
        entry_of,
        st.sampled_from([KNOWN, KNOWN, FENCED, UNKNOWN]),
        st.sampled_from([0, 1, 127, STEP_MAX - 1, ENTRY_ID_MAX, ENTRY_ID_MAX + 1, -1]),
        st.binary(max_size=200),
        lac=st.integers(-1, 50),
    )
    | st.binary(max_size=40),
    recovery=st.booleans(),
    deferred_sync=st.sampled_from([False, False, True]),
) | st.builds(
    lambda entry_id, lac: m.AddRequest(
        txn_id=1,
        ledger_id=KNOWN,
        entry_id=entry_id,
        master_key=KEY,
        entry=entry_of(KNOWN, entry_id, lac=lac),
    ),
    st.sampled_from([0, 1, 127, 128, STEP_MAX - 1, STEP_MAX, ENTRY_ID_MAX, ENTRY_ID_MAX + 1]),
    st.integers(-1, 50),
)
BOUNDS = {"entry_id_max": ENTRY_ID_MAX, "step_max": STEP_MAX}
others = st.builds(m.ReadRequest, txn_id=st.just(1), ledger_id=st.just(KNOWN), entry_id=st.just(0))


def fresh_ledgers() -> dict[int, LedgerAtBookie]:
    return {KNOWN: LedgerAtBookie(KEY), FENCED: LedgerAtBookie(KEY, fenced=True)}


class Bounded(EntriesInMemory):
    """Takes what the native one must not take itself: it is asked about nothing else."""

    def can_hold(self, ledger_id: int, entry_id: int) -> bool:
        last = self.last_entry_id(ledger_id)
        return entry_id <= min(ENTRY_ID_MAX, (-1 if last is None else last) + STEP_MAX)


class Intake:
    """The native one with all that it writes to."""

    def __init__(self) -> None:
        self.writer = JournalWriter(file_bytes_max=1 << 30, allocate_bytes=0)
        self.ledgers, self.last_ids = fresh_ledgers(), dict[int, int]()
        self.cache: dict[int, dict[int, bytes]] = {}
        self._native = AddIntake((self.writer,), self.ledgers, self.last_ids, **BOUNDS)

    def take(self, frames: list[bytes], at: int, *, v2: bool) -> tuple[int, bytes, int, list[int]]:
        return self._native.take([memoryview(one) for one in frames], at, self.cache, version2=v2)


def encoded(request: m.Request, *, v2: bool) -> bytes:
    return (version2 if v2 else version3).encode_request(request)


@given(st.lists(adds | others, min_size=1, max_size=12), st.booleans())
def test_it_does_what_the_rules_do(requests: list[m.Request], v2: bool) -> None:
    if v2:
        requests = [
            one
            for one in requests
            if isinstance(one, m.ReadRequest)
            or (isinstance(one, m.AddRequest) and not one.deferred_sync and len(one.master_key) == 20)
        ]
    frames = [encoded(request, v2=v2) for request in requests]
    intake, storage = Intake(), Bounded()
    rules = BookieRules(storage, fresh_ledgers())
    at = appended = 0
    while at < len(frames):
        count, answers, entry_bytes, touched = intake.take(frames, at, v2=v2)
        expected, expected_bytes, ledgers = b"", 0, list[int]()
        for frame in frames[at : at + count]:
            request = (version2 if v2 else version3).decode_request(memoryview(frame))
            outcome = rules.handle(request)
            assert outcome.response is not None
            (record,) = outcome.records  # it takes nothing that needs more
            assert isinstance(record, EntryRecord)
            expected += b"".join(
                encode_response(outcome.response, ProtocolVersion(False, 2) if v2 else PROTOBUF)
            )
            expected_bytes += len(record.entry)
            appended += len(encode_record(record))
            ledgers += [record.ledger_id] * (ledgers[-1:] != [record.ledger_id])
        assert (answers, entry_bytes, touched) == (expected, expected_bytes, ledgers)
        assert intake.writer.appended == appended
        at += count + 1  # what it leaves is the rules' own
    found = {(ledger, one): e for ledger, held in intake.cache.items() for one, e in held.items()}
    assert found == {
        (ledger, at): entry for ledger, held in storage.ledgers.items() for at, entry in held.items()
    }
    assert intake.ledgers == rules.ledgers
    assert intake.last_ids == {ledger: storage.last_entry_id(ledger) for ledger in storage.ledgers}


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v3"])
def test_it_takes_what_is_plain(v2: bool) -> None:
    plain: dict[str, Any] = {"ledger_id": KNOWN, "master_key": KEY}
    frames = [
        encoded(m.AddRequest(txn_id=at, entry_id=at, entry=entry_of(KNOWN, at), **plain), v2=v2)
        for at in range(300)
    ]
    assert Intake().take(frames, 0, v2=v2)[0] == 300


@given(st.binary(max_size=120), st.integers(0, 200), st.booleans())
def test_damaged_frames_are_left_to_others(noise: bytes, at: int, v2: bool) -> None:
    whole = m.AddRequest(txn_id=1, ledger_id=KNOWN, entry_id=0, master_key=KEY, entry=entry_of(KNOWN, 0))
    frame = encoded(whole, v2=v2)
    frame = frame[: at % len(frame)] + noise
    intake = Intake()
    count = intake.take([frame], 0, v2=v2)[0]
    if count:
        request = (version2 if v2 else version3).decode_request(memoryview(frame))
        assert isinstance(request, m.AddRequest)
        assert intake.cache[KNOWN] == {request.entry[15]: request.entry}


def test_taken_adds_are_in_the_journal(tmp_path: Path) -> None:
    intake = Intake()
    plain: dict[str, Any] = {"ledger_id": KNOWN, "master_key": KEY}
    sent = [m.AddRequest(txn_id=at, entry_id=at, entry=entry_of(KNOWN, at), **plain) for at in range(20)]
    assert intake.take([encoded(one, v2=False) for one in sent], 0, v2=False)[0] == 20
    path = tmp_path / "journal"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(file, header(sealed=True), 0)
    intake.writer.open_file(str(path), file, 1, HEADER_BYTES)
    thread = threading.Thread(target=intake.writer.run)
    thread.start()
    intake.writer.close()
    thread.join()
    os.close(file)
    data = memoryview(path.read_bytes())
    found = [one.record for one in records("journal", data, HEADER_BYTES)]
    assert found == [EntryRecord(KNOWN, one.entry_id, one.entry) for one in sent]
