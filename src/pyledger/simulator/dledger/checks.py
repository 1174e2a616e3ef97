"""What must hold in every history of a DLedger group; the first breach ends the run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyledger.protocol.dledger.messages import NO_INDEX, Entry
from pyledger.simulator.safety import require


@dataclass(slots=True)
class Committed:
    """An entry that some member took for committed, and the term of that member."""

    entry: Entry
    term: int


@dataclass
class DLedgerChecks:
    """All members together, as nobody inside can see them."""

    members: int
    """Of the group."""
    leaders: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By term: the one leader, with its life."""
    written: dict[tuple[int, int], tuple[Entry, int]] = field(default_factory=dict)
    """By index and term: the one entry, and the term of the one before it."""
    committed: list[Committed] = field(default_factory=list)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """By index: the body of an append that a client knows to be done."""
    highest_known: int = NO_INDEX
    """Highest index that some finished operation has seen."""

    def wrote(self, entry: Entry, term_before: int) -> None:
        """Log matching: index and term name one entry, and with it all before."""
        known, before = self.written.setdefault((entry.index, entry.term), (entry, term_before))
        same = known.same_as(entry) and before == term_before
        require(
            same, "log matching", f"{describe(known)} after {before}, {describe(entry)} after {term_before}"
        )

    def leads(self, member: str, life: int, term: int, log: Sequence[Entry]) -> None:
        """One leader per term, and it has all that was committed in terms before."""
        known = self.leaders.setdefault(term, (member, life))
        require(known == (member, life), "one leader per term", f"{known} and {(member, life)} in {term}")
        for index, one in enumerate(self.committed):
            if one.term < term:
                there = index < len(log) and log[index].same_as(one.entry)
                require(there, "leader completeness", f"{member} in {term} lacks {describe(one.entry)}")

    def commits(
        self,
        member: str,
        term: int,
        log: Sequence[Entry],
        old: int,
        new: int,
        holders: Callable[[Entry], int],
    ) -> None:
        """What is committed is on the disks of a majority, and the same for all, for ever."""
        require(old <= new < len(log), "committed entries are there", f"{member}: {old}, {new}, {len(log)}")
        for index in range(old + 1, new + 1):
            entry = log[index]
            if index == len(self.committed):
                count = holders(entry)
                require(count > self.members // 2, "a majority has it on disk", f"{describe(entry)}: {count}")
                self.committed.append(Committed(entry, term))
            known = self.committed[index].entry
            require(known.same_as(entry), "committed entries do not change", f"{member}: {describe(entry)}")

    def cut(self, member: str, index: int, committed_index: int) -> None:
        """A member never loses what it knew to be committed."""
        require(index >= committed_index, "nothing committed is cut", f"{member}: {index}, {committed_index}")

    def appended(self, index: int, body: bytes, known_before: int) -> None:
        """An append was acknowledged; it comes after all that was known when it was asked for."""
        require(index < len(self.committed), "acknowledged is committed", index)
        entry = self.committed[index].entry
        require(entry.body == body, "acknowledged is stored", f"{describe(entry)} is not {body!r}")
        require(index > known_before, "linearizable appends", f"{index} after {known_before}")
        self.acknowledged[index] = body
        self.highest_known = max(self.highest_known, index)

    def read(self, index: int, known_before: int) -> None:
        """A read sees all that was known when it was asked for."""
        require(index >= known_before, "linearizable reads", f"{index} after {known_before}")
        require(index < len(self.committed), "reads see what is committed", index)
        self.highest_known = max(self.highest_known, index)

    def whole(self, member: str, log: Sequence[Entry]) -> None:
        """At the end every member has everything."""
        for index, one in enumerate(self.committed):
            there = index < len(log) and log[index].same_as(one.entry)
            require(there, "committed is never lost", f"{member} lacks {describe(one.entry)}")
        for index, body in self.acknowledged.items():
            require(log[index].body == body, "acknowledged is never lost", f"{member}: {body!r}")


def describe(entry: Entry) -> str:
    """An entry in a few characters."""
    return f"{entry.index}@{entry.term}={entry.body.decode(errors='replace')}"
