"""What a bookie answers, and what must be on disk before it answers.

The server journals the records of an outcome in order, and sends the response once they are on disk. As
upstream, entries can be read before they are durable.

Three rules are stricter than upstream's. A fence is durable before the response to the read that set it. The
key of a ledger is journaled before its fence. An add is rejected if its entry has other ids than its request;
upstream stores such an entry under its own ids, and acknowledges those of the request.

Source: BookKeeper bookie/BookieImpl.java, LedgerDescriptorImpl.java, proto/ReadEntryProcessorV3.java,
WriteEntryProcessorV3.java, ReadLacProcessorV3.java.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Protocol

from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.messages import INVALID_ENTRY_ID, Status

MASTER_KEY_BYTES = 20
BATCH_BYTES_MAX = 5 << 20
BATCH_ENTRIES_MAX = BATCH_BYTES_MAX // 4
BATCH_HEAD_BYTES = 36
"""Size that the head of a batched response counts."""
ENTRY_HEAD_BYTES = 4
PACKET_BYTES_MAX = 256
"""Limit of a LAC packet; with the longest digest it has 36 bytes."""
_IDS_AND_LAC = struct.Struct(">qqq")
_PACKET_LAC = struct.Struct(">8xq")


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """An entry, as the journal stores it."""

    ledger_id: int
    entry_id: int
    entry: bytes


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """The master key of a ledger: its first record."""

    ledger_id: int
    master_key: bytes


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """A ledger is fenced."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class LacRecord:
    """The last confirmed entry, which a writer sent apart from its entries."""

    ledger_id: int
    packet: bytes


Record = EntryRecord | KeyRecord | FenceRecord | LacRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """The records to journal, and the response.

    Attributes:
        response: The response; None: the connection has to be closed.
        records: To be journaled, in this order.
        early: The response may be sent before they are on disk.
    """

    response: m.Response | None
    records: tuple[Record, ...] = ()
    early: bool = False


class EntryStorage(Protocol):
    """The entries of a bookie, including those not on disk yet.

    None means that an entry was never stored: a failed read has to raise an exception.
    """

    def can_hold(self, ledger_id: int, entry_id: int) -> bool:
        """Whether it can store an entry with this id (0 or above)."""

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Store an entry; it replaces an older copy."""

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return an entry; None: it was never stored."""

    def following(self, ledger_id: int, entry_id: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Return consecutive entries that need no wait for the disk; each counts with 4 bytes more."""

    def last_entry_id(self, ledger_id: int) -> int | None:
        """Return the highest entry of a ledger; None: it has none."""

    def entry_ranges(self, ledger_id: int) -> Iterable[range]:
        """Yield the entries of a ledger as ranges without a hole, ascending."""


@dataclass(slots=True)
class LedgerAtBookie:
    """What a bookie stores of a ledger besides its entries."""

    master_key: bytes
    fenced: bool = False
    last_add_confirmed: int = -1
    packet: bytes | None = None

    def learn_confirmed(self, packet: bytes) -> None:
        """Update the LAC from a packet that a writer sent apart from its entries."""
        (confirmed,) = _PACKET_LAC.unpack_from(packet)
        self.packet = packet
        self.last_add_confirmed = max(self.last_add_confirmed, confirmed)


@dataclass(slots=True)
class BookieRules:
    """One bookie.

    Attributes:
        storage: Its entries.
        ledgers: All ledgers that it knows.
        read_only: Plain adds are rejected.
        takes_recovery_adds: A read-only bookie still takes adds of high priority.
    """

    storage: EntryStorage
    ledgers: dict[int, LedgerAtBookie] = field(default_factory=dict)
    read_only: bool = False
    takes_recovery_adds: bool = True

    def replay(self, record: Record) -> None:
        """Apply a record of the journal at a start. A fence rejects no entry that was acknowledged before."""
        if isinstance(record, KeyRecord):
            self.ledgers.setdefault(record.ledger_id, LedgerAtBookie(record.master_key))
            return
        if (ledger := self.ledgers.get(record.ledger_id)) is None:
            return  # deleted meanwhile
        if isinstance(record, FenceRecord):
            ledger.fenced = True
        elif isinstance(record, LacRecord):
            ledger.learn_confirmed(record.packet)
        else:
            self._put(ledger, record)

    def handle(self, request: m.Request) -> Outcome:
        """Answer a request of version 2 or 3.

        Raises:
            PyLedgerError: The storage failed; the answer is EIO.
        """
        match request:
            case m.AddRequest():
                return self._add(request)
            case m.ReadRequest():
                return self._read(request)
            case m.BatchReadRequest():
                return self._read_batch(request)
            case m.ReadLacRequest():
                return self._read_lac(request)
            case m.WriteLacRequest():
                return self._write_lac(request)
            case m.ListEntriesRequest():
                return self._list(request)
            case _:
                return Outcome(None)

    # --- adding

    def _add(self, request: m.AddRequest) -> Outcome:
        status, records = self._may_add(request)
        early = False
        if status is Status.EOK:
            record = EntryRecord(request.ledger_id, request.entry_id, request.entry)
            self._put(self.ledgers[record.ledger_id], record)
            records = (*records, record)
            early = request.deferred_sync
        answer = m.AddResponse(
            status=status, txn_id=request.txn_id, ledger_id=request.ledger_id, entry_id=request.entry_id
        )
        return Outcome(answer, records, early)

    def _may_add(self, request: m.AddRequest) -> tuple[Status, tuple[Record, ...]]:
        if len(request.entry) < _IDS_AND_LAC.size:
            return Status.EBADREQ, ()
        if self.read_only and not (request.priority > 0 and self.takes_recovery_adds):
            return Status.EREADONLY, ()
        ledger_id, entry_id, _ = _IDS_AND_LAC.unpack_from(request.entry)
        if (ledger_id, entry_id) != (request.ledger_id, request.entry_id) or ledger_id < 0 or entry_id < 0:
            return Status.EBADREQ, ()
        if not self.storage.can_hold(ledger_id, entry_id):
            return Status.EBADREQ, ()
        opened, records = self._open(ledger_id, request.master_key)
        if opened is None:
            return Status.EUA, ()
        if opened.fenced and not request.recovery:
            return Status.EFENCED, ()
        return Status.EOK, records

    def _put(self, ledger: LedgerAtBookie, record: EntryRecord) -> None:
        self.storage.put(record.ledger_id, record.entry_id, record.entry)
        _, _, confirmed = _IDS_AND_LAC.unpack_from(record.entry)
        ledger.last_add_confirmed = max(ledger.last_add_confirmed, confirmed)

    def _open(self, ledger_id: int, master_key: bytes) -> tuple[LedgerAtBookie | None, tuple[Record, ...]]:
        """Return the ledger, and the records to journal first; None: the key is wrong."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is not None:
            return (ledger if compare_digest(ledger.master_key, master_key) else None), ()
        if len(master_key) != MASTER_KEY_BYTES:
            return None, ()
        ledger = self.ledgers[ledger_id] = LedgerAtBookie(master_key)
        return ledger, (KeyRecord(ledger_id, master_key),)

    # --- reading

    def _read(self, request: m.ReadRequest) -> Outcome:
        if request.piggyback:
            return self._read_after(request)
        records: tuple[Record, ...] = ()
        if request.fence:
            status, records = self._fence(request.ledger_id, request.master_key)
            if status is not Status.EOK:
                return Outcome(_read_answer(request, status))
        status, entry = self._find(request.ledger_id, request.entry_id)
        ledger = self.ledgers.get(request.ledger_id)
        confirmed = None if request.fence or entry is None or ledger is None else ledger.last_add_confirmed
        return Outcome(_read_answer(request, status, entry, confirmed), records)

    def _read_after(self, request: m.ReadRequest) -> Outcome:
        """Read the entry after `previous_lac` once it is confirmed.

        The server does the waiting: it calls again after an add or at the timeout.
        """
        if request.entry_id != INVALID_ENTRY_ID or request.previous_lac is None:
            return Outcome(_read_answer(request, Status.EBADREQ))
        if (ledger := self.ledgers.get(request.ledger_id)) is None:
            return Outcome(_read_answer(request, Status.ENOLEDGER))
        confirmed = ledger.last_add_confirmed
        wanted = request.previous_lac + 1
        entry = self.storage.get(request.ledger_id, wanted) if confirmed >= wanted else None
        answer = m.ReadResponse(
            status=Status.EOK,
            txn_id=request.txn_id,
            ledger_id=request.ledger_id,
            entry_id=INVALID_ENTRY_ID if entry is None else wanted,
            entry=entry,
            max_lac=confirmed,
        )
        return Outcome(answer)

    def _fence(self, ledger_id: int, master_key: bytes | None) -> tuple[Status, tuple[Record, ...]]:
        if master_key is None:
            return Status.EUA, ()
        ledger, records = self._open(ledger_id, master_key)
        if ledger is None:
            return Status.EUA, ()
        # Journaled each time: an earlier record may not be on disk yet, but this response depends on it.
        ledger.fenced = True
        return Status.EOK, (*records, FenceRecord(ledger_id))

    def _find(self, ledger_id: int, entry_id: int) -> tuple[Status, bytes | None]:
        if ledger_id not in self.ledgers:
            return Status.ENOLEDGER, None
        if entry_id == INVALID_ENTRY_ID:
            last = self.storage.last_entry_id(ledger_id)
            entry = None if last is None else self.storage.get(ledger_id, last)
        else:
            entry = self.storage.get(ledger_id, entry_id)
        return (Status.ENOENTRY, None) if entry is None else (Status.EOK, entry)

    def _read_batch(self, request: m.BatchReadRequest) -> Outcome:
        records: tuple[Record, ...] = ()
        status = Status.EOK
        if request.fence:
            status, records = self._fence(request.ledger_id, request.master_key)
        entries: tuple[bytes, ...] = ()
        if status is Status.EOK:
            status, entries = self._batch(request)
        answer = m.BatchReadResponse(
            status=status,
            txn_id=request.txn_id,
            ledger_id=request.ledger_id,
            entry_id=request.entry_id,
            entries=entries,
        )
        return Outcome(answer, records)

    def _batch(self, request: m.BatchReadRequest) -> tuple[Status, tuple[bytes, ...]]:
        status, entry = self._find(request.ledger_id, request.entry_id)
        if entry is None:
            return status, ()
        budget = min(request.bytes_max, BATCH_BYTES_MAX)
        count_max = (request.count_max or BATCH_ENTRIES_MAX) - 1
        left = budget - BATCH_HEAD_BYTES - len(entry) - ENTRY_HEAD_BYTES
        more = self.storage.following(request.ledger_id, request.entry_id + 1, count_max, left)
        return Status.EOK, (entry, *more)

    # --- the last confirmed entry

    def _read_lac(self, request: m.ReadLacRequest) -> Outcome:
        _, last = self._find(request.ledger_id, INVALID_ENTRY_ID)
        ledger = self.ledgers.get(request.ledger_id)
        packet = None if ledger is None else ledger.packet
        answer = m.ReadLacResponse(
            status=Status.ENOENTRY if last is None and packet is None else Status.EOK,
            txn_id=request.txn_id,
            ledger_id=request.ledger_id,
            packet=packet,
            last_entry=last,
        )
        return Outcome(answer)

    def _write_lac(self, request: m.WriteLacRequest) -> Outcome:
        status = Status.EOK
        records: tuple[Record, ...] = ()
        if not _PACKET_LAC.size <= len(request.packet) <= PACKET_BYTES_MAX or request.ledger_id < 0:
            status = Status.EBADREQ
        else:
            ledger, opening = self._open(request.ledger_id, request.master_key)
            if ledger is None:
                status = Status.EUA
            else:
                ledger.learn_confirmed(request.packet)
                records = (*opening, LacRecord(request.ledger_id, request.packet))
        answer = m.WriteLacResponse(status=status, txn_id=request.txn_id, ledger_id=request.ledger_id)
        return Outcome(answer, records)

    def _list(self, request: m.ListEntriesRequest) -> Outcome:
        known = request.ledger_id in self.ledgers
        return Outcome(
            m.ListEntriesResponse(
                status=Status.EOK if known else Status.ENOLEDGER,
                txn_id=request.txn_id,
                ledger_id=request.ledger_id,
                ranges=tuple(self.storage.entry_ranges(request.ledger_id)) if known else None,
            )
        )


def _read_answer(
    request: m.ReadRequest, status: Status, entry: bytes | None = None, max_lac: int | None = None
) -> m.ReadResponse:
    return m.ReadResponse(
        status=status,
        txn_id=request.txn_id,
        ledger_id=request.ledger_id,
        entry_id=request.entry_id,
        entry=entry,
        max_lac=max_lac,
    )


_ANSWERS: dict[type[m.Request], type[m.Response]] = {
    m.AddRequest: m.AddResponse,
    m.ReadRequest: m.ReadResponse,
    m.BatchReadRequest: m.BatchReadResponse,
    m.WriteLacRequest: m.WriteLacResponse,
    m.ReadLacRequest: m.ReadLacResponse,
    m.ForceLedgerRequest: m.ForceLedgerResponse,
    m.ListEntriesRequest: m.ListEntriesResponse,
    m.BookieInfoRequest: m.BookieInfoResponse,
}


def rejection(request: m.Request, status: Status) -> m.Response:
    """Return a response with nothing but a status, of the type that the request needs."""
    txn_id = request.txn_id
    if (kind := _ANSWERS.get(type(request))) is not None:
        ids = {name: getattr(request, name) for name in ("ledger_id", "entry_id") if hasattr(request, name)}
        return kind(status=status, txn_id=txn_id, **ids)
    number = request.number if isinstance(request, m.UnknownRequest) else request.operation
    if number == m.Operation.ADD_ENTRY:
        return m.AddResponse(status=status, txn_id=txn_id, ledger_id=0, entry_id=0)  # as upstream
    return m.RejectedResponse(status=status, txn_id=txn_id, number=number)
