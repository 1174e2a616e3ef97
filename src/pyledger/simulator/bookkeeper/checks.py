"""Invariants of every history of ledgers, checked from outside the cluster."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from pyledger.protocol.bookkeeper.entry import LedgerEntry
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata
from pyledger.protocol.bookkeeper.result_codes import ABSENT, Result
from pyledger.simulator.safety import require


@dataclass(slots=True)
class LedgerHistory:
    """The history of one ledger.

    Attributes:
        payloads: By entry id, as written.
        confirmed: The last entry that was confirmed to its writer.
        lac_read: The highest last add confirmed that a reader has got.
        closed: Its metadata when it was first closed.
    """

    payloads: list[bytes] = field(default_factory=list)
    confirmed: int = -1
    lac_read: int = -1
    closed: LedgerMetadata | None = None
    repaired: dict[str, set[int]] = field(default_factory=dict)
    """Entries that bookies had on disk when a repair named them as successors, by bookie."""

    @property
    def last_add_pushed(self) -> int:
        """The last entry that its writer sent."""
        return len(self.payloads) - 1


@dataclass
class LedgerChecks:
    """The invariants of all ledgers."""

    ledgers: dict[int, LedgerHistory] = field(default_factory=dict)
    on_disk: Callable[[str, int], set[int]] = lambda _bookie, _ledger_id: set()
    """Returns the entries of a ledger that a bookie has on disk."""
    disk_failed: Callable[[str], bool] = lambda _bookie: False
    """Whether a bookie's disk is lost or bad, so that its replicas may be missing."""

    def pushed(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """A writer sent an entry."""
        history = self.ledgers[ledger_id]
        require(entry_id == history.last_add_pushed + 1, "entries have no gaps", (ledger_id, entry_id))
        history.payloads.append(payload)

    def confirmed(self, ledger_id: int, entry_id: int, last_add_confirmed: int) -> None:
        """An entry was confirmed to its writer."""
        history = self.ledgers[ledger_id]
        where = f"{ledger_id}:{entry_id}"
        require(entry_id == history.confirmed + 1, "entries are confirmed in order", where)
        require(entry_id <= last_add_confirmed <= history.last_add_pushed, "LAC ≤ LAP", where)
        if history.closed is not None:
            end = history.closed.last_entry_id
            require(entry_id <= end, "a fenced writer confirms nothing", f"{where}, closed at {end}")
        history.confirmed = entry_id

    def changed(self, ledger_id: int, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Metadata was stored."""
        require(old.state.value <= new.state.value, "states go one way", f"{old.state} to {new.state}")
        if old.closed:
            same = (old.last_entry_id, old.length) == (new.last_entry_id, new.length)
            require(same, "all openers agree on the end", f"{ledger_id}: {old}, {new}")
        before = old.segments if old.closed else old.segments[:-1]
        starts = [segment.first_entry_id for segment in new.segments[: len(before)]]
        kept = starts == [segment.first_entry_id for segment in before]
        require(kept, "what is confirmed stays where it is", f"{ledger_id}: {old}, {new}")
        self._moved(ledger_id, old, new, len(before))
        if new.closed and not old.closed:
            self._closed(ledger_id, new)

    def _moved(self, ledger_id: int, old: LedgerMetadata, new: LedgerMetadata, segments: int) -> None:
        """Bookies that were replaced in segments without a writer: the successors need the entries."""
        ends = [after.first_entry_id for _, after in pairwise(old.segments)] + [old.last_entry_id + 1]
        for was, now, end in zip(old.segments[:segments], new.segments, ends, strict=False):
            for index, (gone, named) in enumerate(zip(was.ensemble, now.ensemble, strict=True)):
                if gone == named:
                    continue
                wanted = {one for one in range(was.first_entry_id, end) if index in old.write_set(one)}
                missing = set() if self.disk_failed(named) else wanted - self.on_disk(named, ledger_id)
                where = f"{ledger_id}: {named} named for {gone} without {sorted(missing)}"
                require(not missing, "fragment repair never reduces replicas", where)
                self.ledgers[ledger_id].repaired.setdefault(named, set()).update(wanted)
        self.replicas_last(ledger_id, new)

    def replicas_last(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """Replicas that a repair relied on exist, unless a disk was lost or other bookies are named now."""
        for bookie, entry_ids in self.ledgers[ledger_id].repaired.items():
            named = {one for one in entry_ids if bookie in _named(metadata, one)}
            missing = set() if self.disk_failed(bookie) else named - self.on_disk(bookie, ledger_id)
            where = f"{ledger_id}: {bookie} has lost {sorted(missing)}"
            require(not missing, "fragment repair never reduces replicas", where)

    def missing_replicas(self, ledger_id: int, metadata: LedgerMetadata) -> set[tuple[str, int]]:
        """Return the replicas of a closed ledger that are on no disk, as bookie and entry."""
        found = set()
        for bookie in {bookie for segment in metadata.segments for bookie in segment.ensemble}:
            held = self.on_disk(bookie, ledger_id)
            for entry_id in range(metadata.last_entry_id + 1):
                if bookie in _named(metadata, entry_id) and entry_id not in held:
                    found.add((bookie, entry_id))
        return found

    def _closed(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        history, end = self.ledgers[ledger_id], metadata.last_entry_id
        require(
            history.confirmed <= end,
            "acknowledged entries are part of the ledger",
            f"{ledger_id}: {history.confirmed} was, closed at {end}",
        )
        require(
            history.lac_read <= end,
            "entries reported as confirmed stay confirmed",
            f"{ledger_id}: {history.lac_read}, {end}",
        )
        require(end <= history.last_add_pushed, "a ledger ends where its writer wrote", (ledger_id, end))
        length = sum(map(len, history.payloads[: end + 1]))
        require(metadata.length == length, "the length is that of the entries", f"{ledger_id}: {metadata}")
        history.closed = metadata

    def opened(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """A client opened a ledger with recovery."""
        closed = self.ledgers[ledger_id].closed
        known = closed is not None and (closed.last_entry_id, closed.length)
        found = metadata.closed and (metadata.last_entry_id, metadata.length)
        require(known == found, "all openers agree on the end", f"{ledger_id}: {known}, {found}")

    def lac_read(self, ledger_id: int, before: int, last_add_confirmed: int) -> None:
        """A reader got a last add confirmed; `before` is the one it had."""
        history = self.ledgers[ledger_id]
        require(last_add_confirmed >= before, "LAC never falls", f"{ledger_id}: {before}")
        most = history.last_add_pushed if history.closed is None else history.closed.last_entry_id
        require(last_add_confirmed <= most, "LAC ≤ LAP", f"{ledger_id}: {last_add_confirmed} of {most}")
        history.lac_read = max(history.lac_read, last_add_confirmed)

    def read(self, ledger_id: int, entry_id: int, result: Result, entry: LedgerEntry | None) -> None:
        """A reader got an entry, or the response that there is none."""
        history = self.ledgers[ledger_id]
        where = f"{ledger_id}:{entry_id}"
        if entry is not None:
            require(entry.payload == history.payloads[entry_id], "entries are what was written", where)
            length = sum(map(len, history.payloads[: entry_id + 1]))
            require(entry.length == length, "entries are what was written", where)
        elif result in ABSENT:
            certain = entry_id <= history.confirmed or history.closed is not None
            require(not certain, "an entry that is there is never denied", f"{where}, {result.name}")


def _named(metadata: LedgerMetadata, entry_id: int) -> tuple[str, ...]:
    """Return the bookies of an entry."""
    ensemble = metadata.segment_of(entry_id).ensemble
    return tuple(ensemble[index] for index in metadata.write_set(entry_id))
