"""A small world of bookies, a writer and recoveries, in which a seed decides everything.

Requests and answers overtake each other and get lost; bookies crash and forget what they had not synced;
metadata is compared and set, and an answer of its store may be lost too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from pyledger.errors import EntryDigestError
from pyledger.protocol.bookkeeper import messages as m
from pyledger.protocol.bookkeeper.bookie import BookieRules, Record
from pyledger.protocol.bookkeeper.entry import DigestType, LedgerEntry
from pyledger.protocol.bookkeeper.metadata import LedgerMetadata, Segment
from pyledger.protocol.bookkeeper.recovery import LedgerRecovery
from pyledger.protocol.bookkeeper.results import Result, result_of
from pyledger.protocol.bookkeeper.writer import LedgerWriter, Proposal, SendAdd
from pyledger.wire.ledger.entry import EntryDigest, master_key, pack_entry, unpack_entry
from tests.protocol.bookkeeper.model_storage import DictStorage

LEDGER = 7
KEY = master_key(b"")
DIGEST = EntryDigest(DigestType.CRC32C)


@dataclass
class Bookie:
    """Rules over a journal whose tail a crash takes away."""

    name: str
    rules: BookieRules = field(default_factory=lambda: BookieRules(DictStorage()))
    journal: list[Record] = field(default_factory=list)
    synced: int = 0
    waiting: list[tuple[int, "Call", m.Response]] = field(default_factory=list)
    """Answers that wait for the journal to be on disk up to a length."""
    up: bool = True

    def handle(self, call: "Call") -> None:
        outcome = self.rules.handle(call.request)
        assert outcome.response is not None
        self.journal += outcome.records
        self.waiting.append((len(self.journal), call, outcome.response))

    def sync(self) -> list[tuple["Call", m.Response]]:
        self.synced = len(self.journal)
        answered = [(call, response) for _, call, response in self.waiting]
        self.waiting.clear()
        return answered

    def crash(self) -> list["Call"]:
        lost = [call for _, call, _ in self.waiting]
        self.waiting.clear()
        del self.journal[self.synced :]
        self.up = False
        return lost

    def start(self) -> None:
        self.rules = BookieRules(DictStorage())
        for record in self.journal:
            self.rules.replay(record)
        self.up = True


@dataclass
class Call:
    """A request of one client on its way."""

    client: "Client"
    bookie: str
    request: m.AddRequest | m.ReadRequest


class Client:
    """A machine, and what it is told."""

    def __init__(self, world: "World", machine: LedgerWriter | LedgerRecovery) -> None:
        self.world, self.machine = world, machine
        self.confirmed: list[int] = []
        self.done: Result | None = None

    def answered(self, call: Call, response: m.Response | None) -> None:
        """An answer, or none."""
        failure = Result.TIMEOUT if response is None else None
        request = call.request
        if isinstance(request, m.AddRequest):
            result = failure or result_of(response.status, Result.WRITE)
            answered = self.machine.answered if self.writes else self.machine.add_answered
            answered(call.bookie, request.entry_id, result)
        else:
            result = failure or result_of(response.status, Result.READ)
            entry = entry_in(response, request.entry_id)
            self.machine.read_answered(call.bookie, request.entry_id, result, entry, 0)
        self.follow()

    @property
    def writes(self) -> bool:
        return isinstance(self.machine, LedgerWriter)

    def follow(self) -> None:
        """Do what the machine wants."""
        while (ready := self.machine.ready()) is not None:
            if self.writes:
                sends, reads, ended = ready.sends, (), ready.closed
                self.confirmed += [one.entry_id for one in ready.added if one.result is Result.OK]
            else:
                sends, reads, ended = ready.adds, ready.reads, ready.done
            for send in sends:
                self.world.send(Call(self, send.bookie, add_request(send)))
            for read in reads:
                key = KEY if read.fence else None
                request = m.ReadRequest(
                    ledger_id=LEDGER, entry_id=read.entry_id, fence=read.fence, master_key=key
                )
                self.world.send(Call(self, read.bookie, request))
            if ready.proposal is not None:
                self.world.proposals.append((self, ready.proposal))
            self.done = ended if ended is not None else self.done


def add_request(send: SendAdd) -> m.AddRequest:
    entry = pack_entry(DIGEST, LEDGER, send.entry_id, send.last_add_confirmed, send.length, send.payload)
    return m.AddRequest(
        ledger_id=LEDGER, entry_id=send.entry_id, master_key=KEY, entry=entry, recovery=send.recovery
    )


def entry_in(response: m.Response | None, entry_id: int) -> LedgerEntry | None:
    if not isinstance(response, m.ReadResponse) or response.entry is None:
        return None
    try:
        return unpack_entry(DIGEST, LEDGER, None if entry_id < 0 else entry_id, response.entry)
    except EntryDigestError:
        return None


class World:
    """Everything, and the next thing that happens to it."""

    def __init__(
        self, seed: int, *, bookies: int = 5, ensemble: int = 3, write: int = 3, ack: int = 2
    ) -> None:
        self.random = Random(seed)
        self.bookies = {f"b{at}": Bookie(f"b{at}") for at in range(bookies)}
        first = tuple(self.random.sample(sorted(self.bookies), ensemble))
        self.metadata = LedgerMetadata(
            ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, segments=(Segment(0, first),)
        )
        self.calls: list[Call] = []
        self.answers: list[tuple[Call, m.Response | None]] = []
        self.proposals: list[tuple[Client, Proposal]] = []
        self.loss = self.random.choice((0.0, 0.05, 0.2))

    def replace(self, ensemble: tuple[str, ...], failed: Mapping[int, str]) -> dict[int, str]:
        free = [name for name in sorted(self.bookies) if name not in ensemble]
        self.random.shuffle(free)
        return dict(zip(sorted(failed), free, strict=False))

    def writer(self) -> Client:
        return Client(self, LedgerWriter(self.metadata, self.replace))

    def recovery(self) -> Client:
        ahead = self.random.choice((1, 1, 4))
        client = Client(self, LedgerRecovery(self.metadata, self.replace, read_ahead=ahead))
        client.follow()
        return client

    def send(self, call: Call) -> None:
        self.calls.append(call)

    def step(self) -> bool:
        """One thing happens; False: nothing is left to happen."""
        acts = [self.deliver] * bool(self.calls) + [self.answer] * bool(self.answers)
        acts += [self.sync] * any(bookie.waiting for bookie in self.bookies.values())
        acts += [self.compare_and_set] * bool(self.proposals)
        if not acts:
            return False
        self.random.choice(acts)()
        return True

    def settle(self) -> None:
        """Until nothing is left to happen."""
        while self.step():
            pass

    def deliver(self) -> None:
        call = self.calls.pop(self.random.randrange(len(self.calls)))
        bookie = self.bookies[call.bookie]
        if not bookie.up or self.random.random() < self.loss:
            self.answers.append((call, None))
            return
        bookie.handle(call)
        if self.random.random() < self.loss:
            bookie.handle(call)  # sent twice

    def sync(self) -> None:
        waiting = [bookie for bookie in self.bookies.values() if bookie.waiting]
        for call, response in self.random.choice(waiting).sync():
            self.answers.append((call, None if self.random.random() < self.loss else response))

    def answer(self) -> None:
        call, response = self.answers.pop(self.random.randrange(len(self.answers)))
        call.client.answered(call, response)

    def compare_and_set(self) -> None:
        client, proposal = self.proposals.pop(self.random.randrange(len(self.proposals)))
        machine = client.machine
        if self.metadata == proposal.current:
            self.metadata = proposal.wanted
            if self.random.random() < self.loss:
                machine.refused(self.metadata)  # stored, but the answer was lost and a second try came late
            else:
                machine.stored(self.metadata)
        else:
            machine.refused(self.metadata)
        client.follow()

    def crash(self, name: str) -> None:
        self.answers += [(call, None) for call in self.bookies[name].crash()]

    def start_all(self) -> None:
        for bookie in self.bookies.values():
            if not bookie.up:
                bookie.start()

    def read(self, entry_id: int) -> LedgerEntry | None:
        """Any good copy in the write set that the metadata names."""
        ensemble = self.metadata.segment_of(entry_id).ensemble
        for place in self.metadata.write_set(entry_id):
            data = self.bookies[ensemble[place]].rules.storage.get(LEDGER, entry_id)
            if data is not None:
                return unpack_entry(DIGEST, LEDGER, entry_id, data)
        return None
