"""Rules that must hold in every run of a DLedger group; the first violation ends the run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyledger.protocol.dledger.messages import NO_INDEX, Entry
from pyledger.simulator.safety import require


@dataclass(slots=True)
class Committed:
    """An entry that a member counted as committed, and the term of that member then."""

    entry: Entry
    term: int


@dataclass
class DLedgerChecks:
    """Checks that compare all members."""

    members: int
    """Number of members of the group."""
    leaders: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By term: the only leader, with the number of its process."""
    written: dict[tuple[int, int], tuple[Entry, int]] = field(default_factory=dict)
    """By index and term: the only entry, and the term of the entry before it."""
    committed: list[Committed] = field(default_factory=list)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """By index: the body of an acknowledged append."""
    highest_known: int = NO_INDEX
    """Highest index that a finished operation returned."""

    def wrote(self, entry: Entry, term_before: int) -> None:
        """Check log matching: index and term identify an entry and all before it."""
        known, before = self.written.setdefault((entry.index, entry.term), (entry, term_before))
        same = known.same_as(entry) and before == term_before
        require(
            same, "log matching", f"{describe(known)} after {before}, {describe(entry)} after {term_before}"
        )

    def leads(self, member: str, life: int, term: int, log: Sequence[Entry]) -> None:
        """Check that a term has one leader, and that it has all that was committed in earlier terms."""
        known = self.leaders.setdefault(term, (member, life))
        require(known == (member, life), "one leader per term", f"{known} and {(member, life)} in {term}")
        for index, one in enumerate(self.committed):
            if one.term < term:
                there = index < len(log) and log[index].same_as(one.entry)
                require(there, "leader completeness", f"{member} in {term} misses {describe(one.entry)}")

    def commits(
        self,
        member: str,
        term: int,
        log: Sequence[Entry],
        old: int,
        new: int,
        holders: Callable[[Entry], int],
    ) -> None:
        """Check that committed entries are on the disks of a majority and equal for all members."""
        require(old <= new < len(log), "committed entries exist", f"{member}: {old}, {new}, {len(log)}")
        for index in range(old + 1, new + 1):
            entry = log[index]
            if index == len(self.committed):
                count = holders(entry)
                require(
                    count > self.members // 2,
                    "a majority has committed entries on disk",
                    f"{describe(entry)}: {count}",
                )
                self.committed.append(Committed(entry, term))
            known = self.committed[index].entry
            require(known.same_as(entry), "committed entries do not change", f"{member}: {describe(entry)}")

    def truncates(self, member: str, index: int, committed_index: int) -> None:
        """Check that a truncation removes no committed entry."""
        require(
            index >= committed_index,
            "nothing committed is truncated",
            f"{member}: {index}, {committed_index}",
        )

    def appended(self, index: int, body: bytes, known_before: int) -> None:
        """Check an acknowledged append: it follows all that was known when it was requested."""
        require(index < len(self.committed), "acknowledged entries are committed", index)
        entry = self.committed[index].entry
        require(
            entry.body == body,
            "acknowledged entries are stored as sent",
            f"{describe(entry)} is not {body!r}",
        )
        require(index > known_before, "linearizable appends", f"{index} after {known_before}")
        self.acknowledged[index] = body
        self.highest_known = max(self.highest_known, index)

    def read(self, index: int, known_before: int) -> None:
        """Check that a read returns all that was known when it was requested."""
        require(index >= known_before, "linearizable reads", f"{index} after {known_before}")
        require(index < len(self.committed), "reads return committed indexes", index)
        self.highest_known = max(self.highest_known, index)

    def whole(self, member: str, log: Sequence[Entry]) -> None:
        """Check at the end that a member has all entries."""
        for index, one in enumerate(self.committed):
            there = index < len(log) and log[index].same_as(one.entry)
            require(there, "committed entries are never lost", f"{member} misses {describe(one.entry)}")
        for index, body in self.acknowledged.items():
            require(log[index].body == body, "acknowledged entries are never lost", f"{member}: {body!r}")


def describe(entry: Entry) -> str:
    """Return an entry as `index@term=body`."""
    return f"{entry.index}@{entry.term}={entry.body.decode(errors='replace')}"
