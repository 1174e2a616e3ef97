"""A store on a DLedger log: records in entries, only what is committed, the same end for every reader."""

import asyncio
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyledger import arrow
from pyledger._core import CommitLog, scan
from pyledger.clock import SystemClock
from pyledger.config.dledger_store import DLedgerStoreConfig
from pyledger.errors import (
    CorruptRecordError,
    RecordTooLargeError,
    StoreClosedError,
    StoreFormatError,
)
from pyledger.model.message import Message
from pyledger.protocol.dledger.messages import TermState
from pyledger.store.dledger.reader import DLedgerReader
from pyledger.store.dledger.store import DLedgerStore
from pyledger.store.dledger.verify import verify_dledger
from pyledger.store.maintenance.rebuild import rebuild
from pyledger.store.maintenance.verify import verify
from pyledger.store.messages.dledger_message_store import MemberStore
from pyledger.store.messages.message_store import MessageStore
from pyledger.store.reading.reader import StoreReader
from pyledger.wire.record.batch import BatchItem, encode_batch
from pyledger.wire.record.record import decode_records
from tests.core.log.log_files import RecordFields

FILE_BYTES = 4096
SMALL = DLedgerStoreConfig(data_file_size_bytes=FILE_BYTES, index_file_size_bytes=320)
HEAD = 48


def write_entries(path: Path, records: list[RecordFields], terms: list[int]) -> list[int]:
    """A node's folder as Java writes it, field by field; where the records stand."""
    data, units, places = bytearray(), bytearray(), []
    for index, (record, term) in enumerate(zip(records, terms, strict=True)):
        size = HEAD + len(record.encode(0))
        room = FILE_BYTES - len(data) % FILE_BYTES
        if size + 8 > room:
            data += struct.pack(">ii", -1, room).ljust(room, b"\0")
        pos = len(data)
        data += struct.pack(">iiqqqiiii", 1, size, index, term, pos, 0, 0, 0, size - HEAD)
        data += record.encode(pos + HEAD)
        units += struct.pack(">iqiqq", 1, pos, size, index, term)
        places.append(pos + HEAD)
    for folder, content, file_bytes in (("data", data, FILE_BYTES), ("index", units, 320)):
        home = path / "dledger-n0" / folder
        home.mkdir(parents=True)
        for start in range(0, len(content), file_bytes):
            part = content[start : start + file_bytes]
            (home / f"{start:020d}").write_bytes(part.ljust(file_bytes, b"\0"))
    (path / "dledger-n0" / "currterm").write_text("currTerm=3\n")
    return places


def numbered(count: int) -> list[RecordFields]:
    return [
        RecordFields(
            topic=b"T%d" % (n % 3), body=b"body %d " % n * (n % 23), queue_offset=n // 3,
            properties={"KEYS": f"k{n}"}, store_timestamp=1_700_000_000_000 + n,
        )
        for n in range(count)
    ]  # fmt: skip


def test_a_log_as_java_writes_it_is_read_like_any_other(tmp_path: Path) -> None:
    records = numbered(100)
    places = write_entries(tmp_path, records, [1 + n // 40 for n in range(100)])
    wanted = [(place, record.body) for place, record in zip(places, records, strict=True)]
    with StoreReader.open(tmp_path) as reader:
        assert [(m.physical_offset, m.body) for m in reader.messages()] == wanted
        assert {name: held.max_offset for name, held in reader.queues().items()} == {
            ("T0", 0): 34, ("T1", 0): 33, ("T2", 0): 33,
        }  # fmt: skip
        in_queues = sorted((m.physical_offset, m.body) for m in reader.messages(order="queue"))
        assert in_queues == wanted
        assert [m.body for m in reader.query("T1", "k64")] == [records[64].body]
        assert [m.body for m in reader.messages(tail=2)] == [records[98].body, records[99].body]
        since = 1_700_000_000_000 + 60
        assert [m.body for m in reader.messages(since=since)] == [r.body for r in records[60:]]
        assert reader.max_offset == places[-1] + len(records[-1].encode(0))
    columns = ["physicalOffset", "body"]
    rows = arrow.scan(tmp_path, columns=columns).read_all()
    assert [(row["physicalOffset"], row["body"]) for row in rows.to_pylist()] == wanted
    for size in (1 << 9, 1 << 11, 1 << 13):
        parts = arrow.plan(tmp_path, max_partition_bytes=size)
        batches = [batch for part in parts for batch in arrow.read_partition(part, columns=columns)]
        assert [place for batch in batches for place in batch["physicalOffset"].to_pylist()] == places
    assert {problem.severity for problem in verify(tmp_path)} == {"note"}


def test_what_a_truncation_left_is_no_message(tmp_path: Path) -> None:
    """Java's truncation leaves bytes: sound records, but of a lower term or of no next index."""
    records = [RecordFields(body=b"%04d" % n, queue_offset=n) for n in range(20)]
    write_entries(tmp_path, records, [1] * 20)
    with DLedgerReader.open(tmp_path / "dledger-n0") as reader:
        tenth = list(reader.entries())[10]
    file = tmp_path / "dledger-n0" / "data" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    content[tenth.pos + 16 : tenth.pos + 24] = struct.pack(
        ">q", 2
    )  # written anew in term 2; the next is of 1
    file.write_bytes(content)
    with StoreReader.open(tmp_path) as opened:
        assert [m.body for m in opened.messages()] == [b"%04d" % n for n in range(11)]


def test_damage_in_an_entry_is_found(tmp_path: Path) -> None:
    places = write_entries(tmp_path, numbered(60), [1] * 60)
    file = tmp_path / "dledger-n0" / "data" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    content[places[5] + 90] ^= 1  # within the body
    file.write_bytes(content)
    found = [problem for problem in verify(tmp_path) if problem.severity == "error"]
    assert [(problem.kind, problem.offset) for problem in found] == [("damaged-record", places[5] - HEAD)]
    with StoreReader.open(tmp_path, on_corrupt="skip") as reader:
        assert [m.physical_offset for m in reader.messages()] == places[:5] + places[6:]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2500), min_size=1, max_size=40), st.booleans())
def test_records_become_entries(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seal: bool
) -> None:
    """What the commit log appends is what a node reads: entries without a gap, with their units."""
    path = tmp_path_factory.mktemp("member")
    config = DLedgerStoreConfig(data_file_size_bytes=4096, index_file_size_bytes=320, seal_entries=seal)
    with DLedgerStore(str(path / "dledger-n0"), config) as entries:
        log = CommitLog(entries.log.data, entries=entries.log)
        entries.save_term_state(TermState(7, "n0"))
        entries.log.term = 7
        places = [log.append("T", 0, bytes(size))[:2] for size in sizes]
        assert scan(entries.log.data.view(), 0).record_count == len(sizes)
        entries.flush()
    with DLedgerReader.open(path / "dledger-n0") as reader:
        assert [p for p in verify_dledger(reader) if p.severity == "error"] == []
        found = list(reader.entries())
    assert [(entry.index, entry.term) for entry in found] == [(n, 7) for n in range(len(sizes))]
    assert [(entry.pos + HEAD, len(entry.body)) for entry in found] == places
    records = [decode_records(entry.body)[0] for entry in found]
    assert [(r.physical_offset, r.queue_offset, len(r.body)) for r in records] == [
        (place, n, size) for n, ((place, _), size) in enumerate(zip(places, sizes, strict=True))
    ]


def test_batches_and_limits(tmp_path: Path) -> None:
    with DLedgerStore(str(tmp_path / "dledger-n0"), SMALL) as entries:
        log = CommitLog(entries.log.data, entries=entries.log)
        bodies = [b"a" * 300, b"b" * 400, b"c"]
        for _ in range(12):
            log.append_encoded_batch("T", 1, encode_batch([BatchItem(body) for body in bodies]))
        log.appender("T", 1).put_many([b"d" * 10] * 20)
        with pytest.raises(RecordTooLargeError):
            log.append("T", 0, bytes(FILE_BYTES - HEAD - 90))
        assert entries.end_index == 12 * 3 + 20 - 1
        assert [len(decode_records(entries.entry(n).body)[0].body) for n in range(3)] == [300, 400, 1]
    with StoreReader.open(tmp_path) as reader:
        assert reader.queues()["T", 1].max_offset == 12 * 3 + 20
        assert [m.queue_offset for m in reader.messages()] == list(range(12 * 3 + 20))


class Member:
    """A leader's log without a group: what is committed is said by the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = DLedgerStore(str(path / "dledger-n0"), SMALL)

    def open(self, *, leads: bool = True) -> MemberStore:
        store = MemberStore.open_on(
            str(self.path), self.entries, leads=leads, clock=SystemClock(), index_slots=100, index_entries=400
        )
        self.entries.log.term = 1
        return store

    def commit(self, store: MemberStore, index: int) -> None:
        self.entries.set_committed(index)
        store.commit(self.entries.committed_position)


def test_only_what_is_committed_can_be_read(tmp_path: Path) -> None:
    async def work() -> None:
        member = Member(tmp_path)
        with member.open() as store:
            grown: list[int] = []
            store.grown = lambda: grown.append(member.entries.end_index)
            waits = []
            for number in range(30):
                place = store.append(Message("T", b"%d" % number, keys=f"k{number}"))
                waits.append(store.until_durable(place.physical_offset + place.size_bytes))
            assert grown == list(range(30))
            assert store.queues() == {}
            member.commit(store, 9)
            assert [await wait for wait in waits[:10] if wait is not None] == [True] * 10
            assert not any(wait is None or wait.done() for wait in waits[10:])
            assert [m.body for m in store.get("T", 0, 0).messages] == [b"%d" % n for n in range(10)]
            assert [m.body for m in store.query("T", "k9")] == [b"9"]
            assert store.query("T", "k10") == []
            store.stand_down()
            ends = await asyncio.gather(*(wait for wait in waits[10:] if wait), return_exceptions=True)
            assert [type(end) for end in ends] == [StoreClosedError] * 20
            with pytest.raises(StoreClosedError):
                store.append(Message("T", b"late"))
            member.commit(store, 29)
            assert store.queue_range("T", 0).max_offset == 10
        # The next leader is this member again: entries of before count, though they are not committed.
        with member.open() as store:
            assert store.append(Message("T", b"30")).queue_offset == 30
            assert store.queue_range("T", 0).max_offset == 30
            member.commit(store, 30)
            assert store.queue_range("T", 0).max_offset == 31
        member.commit(store, 30)  # it is closed, and the group goes on
        store.stand_down()
        member.entries.close()
        assert [p for p in verify(tmp_path) if p.severity != "note"] == []

    asyncio.run(work())


def test_what_speaks_of_messages_is_written_when_they_are_committed(tmp_path: Path) -> None:
    """Offsets that pass popped messages are on disk only when the group has the records of those."""
    member = Member(tmp_path)
    with member.open() as store, ThreadPoolExecutor(2) as threads:
        store.append(Message("T", b"0"))
        until_committed = threads.submit(store.flush_log)
        while not member.entries.log.data.flushed_where:  # the local flush comes first
            time.sleep(0.001)
        assert not until_committed.done()
        member.commit(store, 0)
        until_committed.result()
        store.flush_log()
        store.append(Message("T", b"1"))
        until_deposed = threads.submit(store.flush_log)
        store.stand_down()
        with pytest.raises(StoreClosedError):
            until_deposed.result()
        with pytest.raises(StoreClosedError):
            store.flush_log()
    member.entries.close()


def test_units_of_what_was_never_committed_go(tmp_path: Path) -> None:
    """A crash: queues are ahead of the checkpoint, and a new leader has other entries."""
    member = Member(tmp_path)
    store = member.open()
    for number in range(10):
        store.append(Message("T", b"%d" % number))
    member.commit(store, 9)
    store.dispatch()
    store.close()
    member.entries.set_committed(3)  # as far as the checkpoint knew
    (tmp_path / "abort").write_text("1")
    with member.open(leads=False) as follower:
        assert follower.queue_range("T", 0).max_offset == 4
        with pytest.raises(StoreClosedError):
            follower.append(Message("T", b"x"))
        member.commit(follower, 9)
        assert follower.queue_range("T", 0).max_offset == 10
    member.entries.close()


def test_a_follower_whose_log_is_restarted_continues_there(tmp_path: Path) -> None:
    """Its leader has removed what it lacks."""
    leader, late = Member(tmp_path / "leader"), Member(tmp_path / "late")
    with leader.open() as store, late.open(leads=False) as follower:
        for number in range(60):
            store.append(Message("T", b"%d" % number, keys="k"))
        for number in range(5):
            late.entries.append_entries([leader.entries.entry(number)])
        late.commit(follower, 4)
        assert follower.queue_range("T", 0).max_offset == 5
        late.entries.truncate(leader.entries.entry(50))
        late.entries.append_entries([leader.entries.entry(number) for number in range(51, 60)])
        late.commit(follower, 59)
        found = follower.get("T", 0, 50)
        assert [m.body for m in found.messages] == [b"%d" % n for n in range(50, 60)]
        assert follower.queue_range("T", 0).max_offset == 60
        assert [m.body for m in follower.query("T", "k")][-1] == b"59"
    for member in (leader, late):
        member.entries.close()


def test_writers_of_plain_logs_leave_it_alone(tmp_path: Path) -> None:
    write_entries(tmp_path, numbered(5), [1] * 5)
    for change in (MessageStore.open, rebuild):
        with pytest.raises(StoreFormatError, match="kept by DLedger in dledger-n0"):
            change(tmp_path)
    plain = tmp_path / "plain"
    with MessageStore.open(plain) as store:
        store.put(Message("T", b"x"))
    with (
        DLedgerStore(str(plain / "dledger-n0"), SMALL) as entries,
        pytest.raises(StoreFormatError, match="group"),
    ):
        MemberStore.open_on(str(plain), entries, leads=True, clock=SystemClock())


def test_a_member_rejects_entries_without_records(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.entries.append_bodies(1, [b"no record"])
    with pytest.raises(CorruptRecordError):
        member.open()
    member.entries.close()
