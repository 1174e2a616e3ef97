"""What does the machine of a DLedger group cost a leader, for each entry? In memory, without a network."""

import random

import pytest

from benchmarks.load.rounds import Rounds
from pyledger.config.dledger import DLedgerConfig
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    PushEntryRequest,
    PushEntryResponse,
    TermState,
)
from pyledger.protocol.dledger.node import DLedgerNode
from pyledger.protocol.dledger.ready import Answered, Appended, Call
from pyledger.simulator.dledger.model_log import ModelLog

ENTRIES = 1000
CONFIG = DLedgerConfig(append_on_election=False, max_batch_push_entries=ENTRIES, max_batch_push_bytes=1 << 20)


class Leader:
    """A leader whose followers are the benchmark."""

    def __init__(self, peers: int) -> None:
        names = [f"n{number}" for number in range(peers)]
        self.node = DLedgerNode(
            group="g",
            self_id="n0",
            peers=dict.fromkeys(names, ""),
            storage=ModelLog(random.Random(1), lambda *_: None),
            random=random.Random(1),
            saved=TermState(1),
            now_ms=0,
            incarnation=1,
            config=CONFIG,
        )
        self.node.state.change_to_leader(1)
        self.request = AppendEntryRequest(group="g", remote_id="n0", body=bytes(256))
        self.append()
        self.answer(self.take()[0])
        self.answer(self.take()[0])

    def append(self) -> None:
        """Each entry is a request of its own."""
        for token in range(ENTRIES):
            self.node._append((token,), self.request, (self.request.body,))

    def take(self) -> tuple[list[Call], list[Appended]]:
        """What is to be sent, and what is committed; the disk is done at once."""
        calls: list[Call] = []
        appended: list[Appended] = []
        self.node.tick(0)
        while (ready := self.node.ready()) is not None:
            calls += ready.calls
            appended += ready.appended
            self.node.advance(ready, 0)
        return calls, appended

    def answer(self, calls: list[Call]) -> None:
        """All followers took what they were sent."""
        for call in calls:
            if isinstance(call.request, PushEntryRequest) and call.request.entries:
                self.node.step(Answered(call.call_id, self.response(call.request)), 0)

    def response(self, request: PushEntryRequest) -> PushEntryResponse:
        first, last = request.entries[0].index, request.entries[-1].index
        return PushEntryResponse(
            term=1, index=first, count=len(request.entries), begin_index=0, end_index=last
        )


@pytest.mark.parametrize("peers", [3, 5], ids="peers={}".format)
def bench_commit(rounds: Rounds, peers: int) -> None:
    """All answers to one batch of 1,000 entries: counting, committing, finding the appends to answer."""
    rounds.benchmark.group = "dledger commit of 1,000 appends"
    leader = Leader(peers)

    def prepare() -> list[Call]:
        leader.take()
        leader.append()
        return leader.take()[0]

    def act(calls: list[Call]) -> int:
        leader.answer(calls)
        return len(leader.node.outbox.appended)

    rounds.run(prepare, act, units=ENTRIES, expected=ENTRIES, rounds=20)
