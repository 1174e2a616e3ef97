"""Events that come together are taken as one after the other: the logs and answers are the same."""

import random

import pytest

from pyledger.config.dledger import DLedgerConfig
from pyledger.protocol.dledger.messages import (
    AppendEntryRequest,
    AppendEntryResponse,
    Request,
    Response,
    TermState,
)
from pyledger.protocol.dledger.node import DLedgerNode
from pyledger.protocol.dledger.ready import Answered, Appends, Call, Event, Received
from pyledger.simulator.dledger.model_log import ModelLog

NAMES = ("n0", "n1", "n2")


class Group:
    """Three members, n0 leads; what they say arrives in rounds, `together` or one by one."""

    def __init__(self, *, together: bool, pending_max: int) -> None:
        self.together = together
        config = DLedgerConfig(append_on_election=False, max_pending_requests_num=pending_max)
        self.nodes = {
            name: DLedgerNode(
                group="g",
                self_id=name,
                peers=dict.fromkeys(NAMES, ""),
                storage=ModelLog(random.Random(1), lambda *_: None),
                random=random.Random(1),
                saved=TermState(1),
                now_ms=0,
                incarnation=1,
                config=config,
            )
            for name in NAMES
        }
        self.inboxes: dict[str, list[Event]] = {name: [] for name in NAMES}
        self.answers: dict[int, tuple[int, int, int]] = {}
        self.nodes["n0"].state.change_to_leader(1)

    def deliver(self, name: str) -> None:
        node, events = self.nodes[name], self.inboxes[name]
        self.inboxes[name] = []
        if self.together:
            node.step_all(events, 0)
        for event in [] if self.together else events:
            node.step(event, 0)
        node.tick(0)
        while (ready := node.ready()) is not None:
            for call in ready.calls:
                self.inboxes[call.peer].append(Received((name, call), call.request))
            for token, response in ready.replies:
                self.answer(token, response)
            for one in ready.appended:
                for token, response in node.append_responses(one):
                    self.answer(token, response)
            node.advance(ready, 0)

    def answer(self, token: object, response: Response) -> None:
        if isinstance(token, int):
            assert isinstance(response, AppendEntryResponse)
            self.answers[token] = (response.code, response.index, response.pos)
        else:
            assert isinstance(token, tuple)
            name, call = token
            assert isinstance(call, Call)
            self.inboxes[name].append(Answered(call.call_id, response))

    def settle(self) -> None:
        while any(self.inboxes.values()):
            for name in NAMES:
                self.deliver(name)


def append_request(body: bytes) -> Request:
    return AppendEntryRequest(group="g", remote_id="n0", body=body)


@pytest.mark.parametrize("pending_max", [10_000, 7], ids="pending={}".format)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_comes_of_events_together_and_apart(seed: int, pending_max: int) -> None:
    groups = [Group(together=together, pending_max=pending_max) for together in (True, False)]
    rng = random.Random(seed)
    token = 0
    for _ in range(20):
        bodies = [rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(1, 12))]
        tokens = list(range(token, token + len(bodies)))
        token += len(bodies)
        for group in groups:
            requests = [Received(n, append_request(body)) for n, body in zip(tokens, bodies, strict=True)]
            as_one = group.together and len(bodies) % 2
            group.inboxes["n0"] += [Appends([*tokens], bodies)] if as_one else requests
            group.settle()
    first, second = groups
    assert first.answers == second.answers
    assert len(first.answers) == token
    nodes = [node for group in groups for node in group.nodes.values()]
    logs = [list(node.storage.entries(0, token, 1 << 30)) for node in nodes]
    assert all(log == logs[0] for log in logs)
    assert {code for code, _, _ in first.answers.values()} == ({200, 503} if pending_max == 7 else {200})
